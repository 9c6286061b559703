"""What learners of chapters 9 to 11 hand in, and the numbers that the catalogue knows."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from gptlab.cache import KVCache
from gptlab.config import PRESETS, GPTConfig
from gptlab.exercises.catalogue.param_groups import ADAMW_DECAY
from gptlab.exercises.engine import examine, make_cases, tells_apart
from gptlab.exercises.exercise import find
from gptlab.exercises.toy import Toy
from gptlab.generation import generate as package_generate
from gptlab.generation import sample_probs as package_sample_probs
from gptlab.ledger import Ledger
from gptlab.training import TrainingSettings, backward, learning_rate
from gptlab.unembedding import next_token_loss, token_loss
from tests.conftest import make_model, random_ids

# Chapter 9: the tables of numbers, written out, not computed

STATE = {
    1_991_036_928: None,
    "1.991 GB": None,
    "1.854 GiB": None,
    "1,991 MB": None,
    497_759_232: "weights alone",
    "474.7 MiB": "weights alone",
    995_518_464: "8 bytes",
    1_493_277_696: "12 bytes",
    2_608_594_944: "tied head",
    2_239_916_544: "18 bytes",
    2_488_796_160: "20 bytes",
    "1.991 GiB": "that of GB",
    "1.99 GiB": "that of GB",
    "1.854 GB": "that of GiB",
    124_439_808: "number of parameters",
}
INT8 = {
    124_439_808: None,
    "124.44 MB": None,
    "118.68 MiB": None,
    "118.68 MB": "that of MiB",
    "124.4 MiB": "that of MB",
    31_109_952: "divided by 4",
    497_759_232: "float32",
    248_879_616: "half precision",
    163_037_184: "tied head",
    84_934_656: "matrices of the blocks alone",
    242_955_264: "all else in float32",
    995_518_464: "bits",
}
CACHE = {
    37_748_736: None,
    "36 MiB": None,
    "37.75 MB": None,
    18_874_368: "one of keys and values",
    75_497_472: "float32",
    452_984_832: "heads are counted twice",
    3_145_728: "factor of 12",
    "3 MiB": "factor of 12",
    56_623_104: "queries",
    36_864: "one token",
    "36 MB": "that of MiB",
    "37.7 MiB": "that of MB",
}


@pytest.mark.parametrize(
    ("name", "table"), [("training_state", STATE), ("int8_weights", INT8), ("kv_cache", CACHE)]
)
def test_the_numbers_of_memory(name, table):
    for answer, words in table.items():
        report = examine(find(name), answer)
        if words is None:
            assert report.status == "passed", report
        else:
            assert words in report.diagnosis.message, report


def test_a_size_without_a_unit_is_read_as_bytes():
    assert "1.854 has no unit, so it is read as bytes" in examine(find("training_state"), 1.854).fact
    assert "unit" not in examine(find("training_state"), "2.5 GB").fact


@pytest.mark.parametrize("answer", ["2 GB", "1.9 GiB"])
def test_a_size_of_two_digits_is_rounded_too_much(answer):
    assert "rounded too much" in examine(find("training_state"), answer).fact


@pytest.mark.parametrize(
    ("precision", "total", "optimizer"),
    [
        ("fp32", 1_991_036_928, 995_518_464),
        ("amp", 1_991_036_928, 995_518_464),
        ("bf16", 995_518_464, 497_759_232),
        ("master", 1_991_036_928, 1_493_277_696),
    ],
)
def test_the_training_state_of_gpt2_small(precision, total, optimizer):
    sizes = find("training_bytes").reference(GPTConfig(), precision)
    assert sum(sizes.values()) == total
    assert sizes["optimizer"] == optimizer


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_training_state_is_what_pytorch_keeps(precision, dtype):
    model = make_model().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    model(random_ids(1, 4)).float().sum().backward()
    optimizer.step()
    moments = [t for state in optimizer.state.values() for key, t in state.items() if key != "step"]
    assert find("training_bytes").reference(model.config, precision) == {
        "weights": sum(p.nbytes for p in model.parameters()),
        "gradients": sum(p.grad.nbytes for p in model.parameters()),
        "optimizer": sum(t.nbytes for t in moments),
    }


def test_eighteen_bytes_a_parameter_are_named():
    def training_bytes(config, precision):
        sizes = find("training_bytes").reference(config, precision)
        return {**sizes, "gradients": sizes["gradients"] * (2 if precision == "master" else 1)}

    report = examine(find("training_bytes"), training_bytes)
    assert report.diagnosis.id == "float32-gradients"
    assert "18" in report.diagnosis.message


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        ((4, 4, 8), [1_991_036_928, 1_119_958_272, 684_418_944, 248_879_616]),
        ((2, 2, 12), [1_991_036_928, 684_418_944, 466_649_280, 248_879_616]),
    ],
)
def test_the_stages_of_zero_on_eight_ranks(split, sizes):
    zero_bytes = find("zero_bytes").reference
    assert [zero_bytes(124_439_808, 8, stage, split) for stage in range(4)] == sizes


def test_a_stage_compared_with_the_wrong_sign_is_named():
    def zero_bytes(n_params, world_size, stage, split=(4, 4, 8)):
        w, g, o = split
        o = o / world_size if stage > 1 else o
        g = g / world_size if stage > 2 else g
        w = w / world_size if stage > 3 else w
        return n_params * (w + g + o)

    assert examine(find("zero_bytes"), zero_bytes).diagnosis.id == "one-stage-less"


@pytest.mark.parametrize(("preset", "size"), [("gpt2", 37_748_736), ("gpt2-medium", 100_663_296)])
def test_a_cache_takes_what_its_buffers_take(preset, size):
    config = PRESETS[preset]
    assert find("kv_cache_bytes").reference(config, 1, 1024, 2) == size
    assert KVCache(config, 1, dtype=torch.float16, device="meta").nbytes == size


def test_layers_and_heads_are_told_apart_only_by_another_model():
    size = find("kv_cache_bytes").reference
    one_layer, one_head = frozenset({"one-layer"}), frozenset({"one-head"})
    small, medium = PRESETS["gpt2"], PRESETS["gpt2-medium"]
    assert size(small, 1, 1024, 2, on=one_layer) == size(small, 1, 1024, 2, on=one_head) == 3_145_728
    assert size(medium, 1, 1024, 2, on=one_layer) != size(medium, 1, 1024, 2, on=one_head)


def test_a_row_of_zeros_survives_int8():
    W = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.2, 4.0]])
    back = find("int8_roundtrip").reference(W)
    assert torch.allclose(back * 127 / 4, torch.tensor([[0.0, 0, 0], [32, -70, 127]]))
    assert find("int8_roundtrip").reference(W, on=frozenset({"zero-row"}))[0].isnan().all()


@pytest.mark.parametrize(
    ("quantise", "name"),
    [
        (lambda W, scale: (W / scale).to(torch.int8) * scale, "truncates"),
        (lambda W, scale: (W / scale).round().to(torch.int8), "not-back-int8"),
        (lambda W, scale: (W / scale * 128 / 127).round().to(torch.int8) * scale * 127 / 128, "by-128"),
    ],
)
def test_int8_as_it_is_often_written(quantise, name):
    def int8_roundtrip(W):
        scale = W.abs().amax(1, keepdim=True).clamp(min=1e-9) / 127
        return quantise(W, scale)

    report = examine(find("int8_roundtrip"), int8_roundtrip)
    assert report.diagnosis.id.startswith(name)


def test_one_scale_over_zeros_is_still_one_scale():
    def int8_roundtrip(W):
        scale = W.abs().max() / 127
        return (W / scale).round() * scale

    assert examine(find("int8_roundtrip"), int8_roundtrip).diagnosis.id == "one-scale"


# Chapter 10


def test_adamw_step_is_that_of_pytorch_over_several_steps():
    settings = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2}
    p = torch.nn.Parameter(torch.randn(3, 4))
    ours, m, v = p.detach().clone(), torch.zeros(3, 4), torch.zeros(3, 4)
    optimizer = torch.optim.AdamW([p], **settings)
    for step in range(1, 6):
        p.grad = torch.randn(3, 4)
        optimizer.step()
        ours, m, v = find("adamw_step").reference(ours, p.grad, m, v, step, **settings).values()
        assert torch.allclose(ours, p, atol=1e-6)


def test_adam_with_an_l2_penalty_is_named():
    def adamw_step(p, grad, m, v, step, lr, betas, eps, weight_decay):
        w = torch.nn.Parameter(p.clone())
        w.grad = grad
        optimizer = torch.optim.Adam([w], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        state = {"step": torch.tensor(step - 1.0), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
        optimizer.state[w] = state
        optimizer.step()
        return w.detach(), state["exp_avg"], state["exp_avg_sq"]

    report = examine(find("adamw_step"), adamw_step)
    assert report.right == "1 of 4 cases"
    assert report.diagnosis.id == "l2"


def test_adamw_step_in_place_is_found():
    def adamw_step(p, grad, m, v, step, lr, betas, eps, weight_decay):
        m.mul_(betas[0]).add_(grad, alpha=1 - betas[0])
        v.mul_(betas[1]).add_(grad**2, alpha=1 - betas[1])
        m_hat, v_hat = m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)
        return p * (1 - lr * weight_decay) - lr * m_hat / (v_hat.sqrt() + eps), m, v

    assert examine(find("adamw_step"), adamw_step).diagnosis.id == "mutates"


@pytest.mark.parametrize(("steps", "warmup"), [(40, 7), (40, 0), (5, 4), (5, 5), (1, 0)])
def test_lr_at_is_the_schedule_of_the_package(steps, warmup):
    settings = TrainingSettings(steps=steps, warmup=warmup, learning_rate=2e-3, final_share=0.1)
    for step in range(steps + 5):
        ours = find("lr_at").reference(step, steps, warmup, 2e-3, 2e-4)
        assert ours == pytest.approx(learning_rate(step, settings), rel=1e-12)


def test_lr_at_known_points():
    lr_at = find("lr_at").reference
    assert lr_at(0, 600_000, 2000, 6e-4, 6e-5) == pytest.approx(2.9985e-7, rel=1e-4)
    assert lr_at(2000, 600_000, 2000, 6e-4, 6e-5) == 6e-4


def test_a_schedule_as_nanogpt_has_it_ends_one_step_late():
    def lr_at(step, steps, warmup, max_lr, min_lr):
        if step < warmup:
            return max_lr * (step + 1) / (warmup + 1)
        if step > steps:
            return min_lr
        ratio = (step - warmup) / (steps - warmup)
        return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (max_lr - min_lr)

    assert examine(find("lr_at"), lr_at).diagnosis.id == "ends-late"


def test_clipping_in_place_is_found():
    def clip_grad(grads, max_norm):
        length = torch.stack([g.norm() for g in grads.values()]).norm()
        for g in grads.values():
            g.mul_((max_norm / length).clamp(max=1.0))
        return grads

    assert examine(find("clip_grad"), clip_grad).diagnosis.id == "mutates"


def test_each_tensor_clipped_by_pytorch_is_named():
    def clip_grad(grads, max_norm):
        clipped = {}
        for name, g in grads.items():
            p = torch.nn.Parameter(torch.zeros_like(g))
            p.grad = g.clone()
            torch.nn.utils.clip_grad_norm_([p], max_norm)
            clipped[name] = p.grad
        return clipped

    assert examine(find("clip_grad"), clip_grad).diagnosis.id == "per-tensor"


def accumulated(body):
    """A learner's accumulate, given what it does with the parts."""

    def accumulate(model, parts):
        body(model, parts, lambda x, y: token_loss(model(x), y))

    report = examine(find("accumulate"), accumulate)
    return report.diagnosis.id if report.diagnosis else report.status


def test_the_ways_to_accumulate_wrongly_are_named():
    def every_part(weight):
        def body(model, parts, loss):
            for x, y in parts:
                (loss(x, y) * weight(y, parts)).backward()

        return body

    def zeroing(model, parts, loss):
        total = sum(y.numel() for _, y in parts)
        for x, y in parts:
            model.zero_grad()
            (loss(x, y) * y.numel() / total).backward()

    def zeroing_at_the_end(model, parts, loss):
        every_part(lambda y, parts: 1)(model, parts, loss)
        model.zero_grad()

    assert accumulated(every_part(lambda y, parts: 1)) == "not-divided"
    assert accumulated(every_part(lambda y, parts: 1 / len(parts))) == "mean-of-means"
    assert accumulated(every_part(lambda y, parts: len(y) / sum(len(t) for _, t in parts))) == "by-rows"
    assert accumulated(every_part(lambda y, parts: y.numel())) == "added-up"
    assert accumulated(zeroing) == "zeroed-between"
    assert accumulated(zeroing_at_the_end) == "nothing-left"
    assert accumulated(lambda model, parts, loss: [loss(x, y) for x, y in parts]) == "nothing-left"


def test_parts_that_wait_for_one_backward_are_named():
    def one_sum(model, parts, loss):
        total = sum(y.numel() for _, y in parts)
        sum(loss(x, y) * y.numel() / total for x, y in parts).backward()

    def one_behind(model, parts, loss):
        total, before = sum(y.numel() for _, y in parts), None
        for x, y in [*parts, (None, None)]:
            now = None if x is None else loss(x, y) * y.numel() / total
            if before is not None:
                before.backward()
            before = now

    assert accumulated(one_sum) == "holds-all"
    assert accumulated(one_behind) == "holds-all"


def test_looking_at_a_part_without_gradients_is_no_second_graph():
    def body(model, parts, loss):
        total = sum(y.numel() for _, y in parts)
        with torch.no_grad():
            [loss(x, y) for x, y in parts]
        for x, y in parts:
            (loss(x, y) * y.numel() / total).backward()

    assert accumulated(body) == "passed"


def test_a_mean_of_means_is_no_mean():
    """Losses {8} and {1, 1, 2}: 3, not 4.667."""
    model = torch.nn.Sequential(torch.nn.Embedding(2, 1), torch.nn.Linear(1, 2))
    parts = [(torch.zeros(1, n, dtype=torch.int64), torch.ones(1, n, dtype=torch.int64)) for n in (1, 3)]
    gradients = find("accumulate").reference(model, parts)
    token_loss(model(torch.zeros(1, 4, dtype=torch.int64)), torch.ones(1, 4, dtype=torch.int64)).backward()
    assert torch.allclose(gradients["1.bias"], model[1].bias.grad)


def test_accumulation_in_parts_is_that_of_the_package():
    model = make_model()
    x, y = random_ids(4, 6), random_ids(4, 6, seed=2)
    ours = find("accumulate").reference(model, list(zip(x.chunk(2), y.chunk(2), strict=True)))
    backward(model, x, y, micro_batches=2)
    for name, p in model.named_parameters():
        assert torch.allclose(ours[name], p.grad, atol=1e-5), name


def test_the_groups_of_gpt2_small():
    decays = find("param_groups").reference(GPTConfig(), 0.1)
    sizes = {row.name: row.parameters for row in Ledger.from_config(GPTConfig())}
    decaying = [sizes[name] for name, decay in decays.items() if decay]
    spared = [sizes[name] for name, decay in decays.items() if not decay]
    assert (len(decaying), sum(decaying)) == (50, 124_318_464)
    assert (len(spared), sum(spared)) == (98, 121_344)


def test_what_adamw_takes_for_a_group_that_does_not_say():
    optimizer = torch.optim.AdamW([{"params": [torch.nn.Parameter(torch.zeros(1))]}])
    assert optimizer.param_groups[0]["weight_decay"] == ADAMW_DECAY


def everything_twice(model, weight_decay):
    named = list(model.named_parameters(remove_duplicate=False))
    return [
        {"params": [p for name, p in named if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for name, p in named if p.ndim == 1], "weight_decay": 0.0},
    ]


@pytest.mark.parametrize(
    ("param_groups", "name"),
    [
        (everything_twice, "twice"),
        (lambda model, weight_decay: list(model.parameters()), "not-groups"),
        (lambda model, weight_decay: torch.optim.AdamW(model.parameters()), "not-groups"),
        (lambda model, wd: [{"params": [n for n, p in model.named_parameters()]}], "not-a-parameter"),
        (lambda model, wd: [{"params": model.parameters(), "weight_decay": wd}], "all"),
        (lambda model, wd: [{"params": model.named_parameters(), "weight_decay": wd}], "all"),
        (
            lambda model, wd: [
                {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": wd},
                {"params": [p for p in model.parameters() if p.ndim == 1]},
            ],
            "default-decay",
        ),
        (
            lambda model, wd: [
                {"params": [p for n, p in model.named_parameters() if "bias" not in n], "weight_decay": wd},
                {"params": [p for n, p in model.named_parameters() if "bias" in n], "weight_decay": 0},
            ],
            "gains",
        ),
    ],
)
def test_the_ways_to_group_parameters_wrongly_are_named(param_groups, name):
    report = examine(find("param_groups"), param_groups)
    assert report.diagnosis, report
    assert report.diagnosis.id == name, report
    assert all(len(line) <= 80 for line in str(report).splitlines())


def trained(*calls):
    """A learner's train_step that makes these calls in this order."""

    def train_step(model, optimizer, x, y):
        made = {}

        def forward():
            made["loss"] = token_loss(model(x), y)

        def backward():
            made["loss"].backward()

        known = {
            "forward": forward,
            "backward": backward,
            "zero": optimizer.zero_grad,
            "step": optimizer.step,
        }
        for call in calls:
            known[call]()
        return made["loss"].item()

    report = examine(find("train_step"), train_step)
    return report.diagnosis.id if report.diagnosis else report.status


@pytest.mark.parametrize(
    ("calls", "name"),
    [
        ("forward zero backward step", "passed"),
        ("zero forward backward step", "passed"),
        ("forward backward step zero", "passed"),
        ("forward backward step", "not-zeroed"),
        ("step zero forward backward", "step-first"),
        ("step forward backward", "not-zeroed+step-first"),
        ("forward step zero backward", "step-before-backward"),
        ("forward step backward", "step-before-backward"),
        ("forward zero step backward", "never-moves"),
        ("forward backward zero step", "never-moves"),
        ("forward step backward zero", "never-moves"),
        ("forward zero backward", "never-moves"),
        ("forward zero step", "never-moves"),
    ],
)
def test_the_order_of_the_calls(calls, name):
    assert trained(*calls.split()) == name


def test_the_same_batch_again_gives_exactly_twice_the_gradient():
    model, batches = make_cases(find("train_step"))[1]
    right, wrong = (
        find("train_step").reference(model, batches, on=frozenset(on)) for on in ((), ("not-zeroed",))
    )
    assert torch.equal(right["weights after step 1"], wrong["weights after step 1"])
    assert batches[0] is batches[1]
    assert not torch.allclose(right["weights after step 2"], wrong["weights after step 2"])


def test_targets_that_are_shifted_once_more_are_named():
    def train_step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = next_token_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    assert examine(find("train_step"), train_step).diagnosis.id == "shifted-again"


def one_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = token_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def test_a_loss_that_is_a_tensor_is_named_and_its_graph_too():
    report = examine(find("train_step"), one_step)
    assert report.diagnosis.id == "a-tensor"
    assert "the graph of the whole step" in report.diagnosis.message
    report = examine(find("train_step"), lambda *case: one_step(*case).detach())
    assert report.diagnosis.id == "a-tensor"
    assert "graph" not in report.diagnosis.message


def test_a_step_in_evaluation_mode_is_named_and_one_that_asks_for_training_mode_passes():
    def in_mode(training):
        def train_step(model, optimizer, x, y):
            model.train(training)
            return one_step(model, optimizer, x, y).item()

        return examine(find("train_step"), train_step)

    assert in_mode(False).diagnosis.id == "eval-mode"
    assert in_mode(True).status == "passed"


def test_a_forgotten_loss_is_a_fact():
    def train_step(model, optimizer, x, y):
        optimizer.zero_grad()
        token_loss(model(x), y).backward()
        optimizer.step()

    report = examine(find("train_step"), train_step)
    assert "'loss of step 1' has None, expected" in report.fact


STEP = {
    491_520: None,
    "492k": None,
    12_288: "one micro-batch",
    480: "windows",
    40_960: "one window",
    491_040: "left out",
    524_288: "512 windows",
    3_932_160: "eight GPUs",
}


def test_the_tokens_of_a_step():
    for answer, words in STEP.items():
        report = examine(find("tokens_per_step"), answer)
        if words is None:
            assert report.status == "passed", report
        else:
            assert words in report.diagnosis.message, report


# Chapter 11: the known points are those of reported bugs


@pytest.mark.parametrize(
    ("odds", "temperature", "top_k", "top_p", "kept"),
    [
        ((0.45, 0.3, 0.2, 0.05), 1.0, None, 0.7, {0, 1}),
        ((0.45, 0.3, 0.2, 0.05), 1.0, None, 1e-8, {0}),
        ((2, 1, 1), 1.0, None, 0.5, {0}),  # exactly p
        ((8, 4, 2, 1), 0.5, None, 0.75, {0}),
        ((8, 4, 2, 1), 2.0, None, 0.75, {0, 1, 2}),
        ((1, 2, 3, 4), 1.0, 100, None, {0, 1, 2, 3}),
        ((1, 2, 3, 4), 0.0, 2, 0.5, {3}),
    ],
)
def test_sample_probs_at_known_points(odds, temperature, top_k, top_p, kept):
    logits = torch.tensor([odds]).log()
    for sample_probs in (find("sample_probs").reference, package_sample_probs):
        probs = sample_probs(logits, temperature, top_k, top_p)
        assert set(probs[0].nonzero()[:, 0].tolist()) == kept
        assert probs.sum() == pytest.approx(1)


def filtered(keep):
    """A learner's sample_probs whose top-p step is ``keep(sorted probabilities, p)``; the rest is right."""

    def sample_probs(logits, temperature, top_k, top_p):
        if temperature == 0:
            return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
        logits = logits / temperature
        if top_k is not None:
            kth = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < kth, -math.inf)
        if top_p is not None:
            ordered, order = logits.sort(descending=True)
            ordered = ordered.masked_fill(~keep(ordered.softmax(-1), top_p), -math.inf)
            logits = torch.zeros_like(logits).scatter(-1, order, ordered)
        return logits.softmax(-1)

    return examine(find("sample_probs"), sample_probs)


def test_top_p_as_it_is_often_written():
    def shifted(probs, p):
        remove = probs.cumsum(-1) > p
        remove[:, 1:] = remove[:, :-1].clone()
        remove[:, 0] = False
        return ~remove

    def shifted_twice(probs, p):
        remove = probs.cumsum(-1) - probs >= p
        remove[:, 1:] = remove[:, :-1].clone()
        remove[:, 0] = False
        return ~remove

    assert filtered(shifted).diagnosis.id == "goes-on-at-p"
    assert filtered(lambda probs, p: probs.cumsum(-1) - probs < p).status == "passed"
    assert filtered(lambda probs, p: probs.cumsum(-1) - probs <= p).diagnosis.id == "goes-on-at-p"
    assert filtered(shifted_twice).diagnosis.id == "keeps-next"
    assert filtered(lambda probs, p: probs.cumsum(-1) <= p).diagnosis.id == "drops-crossing"


def test_greedy_ids_instead_of_floats_are_said():
    def sample_probs(logits, temperature, top_k, top_p):
        if temperature == 0:
            return F.one_hot(logits.argmax(-1), logits.shape[-1])
        return package_sample_probs(logits, temperature, top_k, top_p)

    report = examine(find("sample_probs"), sample_probs)
    assert report.right == "13 of 14 cases"
    assert "its type is torch.int64, expected torch.float32" in report.fact


def test_generate_is_that_of_the_package():
    model, ids = make_model(), random_ids(2, 5)
    for n in (1, 14):  # 14: past the last position
        ours = find("generate").reference(model, ids, n)
        assert torch.equal(ours, package_generate(model, ids, n, temperature=0.0))


@pytest.mark.parametrize("seed", range(5))
def test_every_mistake_of_generation_shows_whatever_the_seed(seed):
    for name in ("generate", "generate_cached"):
        assert tells_apart(find(name), make_cases(find(name), seed)[0])


def test_a_text_that_is_cropped_with_its_window_is_named():
    def generate(model, ids, n):
        for _ in range(n):
            ids = ids[:, -model.config.n_positions :]
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
        return ids

    report = examine(find("generate"), generate)
    assert report.right == "2 of 4 cases"
    assert report.diagnosis.id == "crops-output"


def test_a_token_drawn_instead_of_chosen_is_no_known_mistake():
    def generate(model, ids, n):
        for _ in range(n):
            probs = model(ids[:, -model.config.n_positions :])[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(probs, 1)], dim=1)
        return ids

    report = examine(find("generate"), generate)
    assert report.status == "incorrect"
    assert report.diagnosis is None


def kv_step(attend):
    def learners(q, K, V, k, v):
        longer_K, longer_V = torch.cat([K, k], 2), torch.cat([V, v], 2)
        return attend(q, K, V, longer_K, longer_V), longer_K, longer_V

    return examine(find("kv_step"), learners)


def test_one_query_by_sdpa():
    sdpa = F.scaled_dot_product_attention
    assert kv_step(lambda q, K, V, longer_K, longer_V: sdpa(q, longer_K, longer_V)).status == "passed"
    for attend, name in [
        (lambda q, K, V, longer_K, longer_V: sdpa(q, longer_K, longer_V, is_causal=True), "is-causal"),
        (lambda q, K, V, longer_K, longer_V: sdpa(q, longer_V, longer_K), "exchanged"),
        (lambda q, K, V, longer_K, longer_V: sdpa(q, longer_K, longer_V, scale=1), "unscaled"),
    ]:
        report = kv_step(attend)
        assert report.diagnosis.id == name
        assert all(len(line) <= 80 for line in str(report).splitlines())


def test_an_output_without_the_cache_is_said():
    report = examine(find("kv_step"), lambda q, K, V, k, v: q)
    assert report.diagnosis.id == "not-three"
    assert "a Tensor" in report.diagnosis.message


def test_a_cache_changes_no_token():
    model, ids, n = make_cases(find("generate_cached"))[0]
    whole = Toy(19, 12, 8, torch.Generator())
    whole.load_state_dict(model.state_dict())
    cached = find("generate_cached").reference(model, ids, n)
    assert torch.equal(cached["ids"], find("generate").reference(whole, ids, n))


def test_right_tokens_without_a_cache_are_not_enough():
    def generate_cached(model, ids, n):
        for _ in range(n):
            logits, _ = model(ids, 0, None)
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        return ids

    assert examine(find("generate_cached"), generate_cached).diagnosis.id == "no-cache"


def test_a_past_that_is_thrown_away_is_named():
    def generate_cached(model, ids, n):
        logits, past = model(ids, 0, None)
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        for _ in range(n - 1):
            logits, _ = model(ids[:, -1:], ids.shape[1] - 1, past)
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        return ids

    assert examine(find("generate_cached"), generate_cached).diagnosis.id == "not-updated"
