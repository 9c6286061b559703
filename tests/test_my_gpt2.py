"""The reader's GPT-2: it is GPT-2, it needs PyTorch alone, and it is what the chapters show."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import gptlab
from gptlab import GPT, PRESETS, GPTConfig, my_gpt2
from gptlab.ledger import Ledger
from gptlab.my_gpt2 import GPT2

SOURCE = Path(my_gpt2.__file__).read_text("utf-8")
TINY = GPTConfig(vocab_size=11, n_positions=9, n_embd=10, n_layer=3, n_head=2)


def with_the_weights_of(model):
    """A reader's model in evaluation mode that shares the other's tensors."""
    with torch.device("meta"):
        mine = GPT2(model.config).eval()
    mine.load_state_dict(model.state_dict(), assign=True)
    return mine


def random_gpt(config, seed=0):
    """Large random weights, biases and gains included, so that no mistake hides behind a 0 or a 1."""
    torch.manual_seed(seed)
    model = GPT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


@pytest.mark.parametrize("seed", range(5))
def test_its_logits_are_the_packages_at_unequal_sizes(seed):
    model = random_gpt(TINY, seed)
    ids = torch.randint(11, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(with_the_weights_of(model)(ids), model(ids), rtol=1e-5, atol=1e-5)


def test_its_gradients_are_the_packages():
    model = random_gpt(TINY)
    mine = GPT2(TINY)
    mine.load_state_dict(model.state_dict())
    ids = torch.randint(11, (2, 7))
    for one in (model, mine):
        one(ids).square().mean().backward()
    for (name, a), (_, b) in zip(model.named_parameters(), mine.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.slow
def test_at_full_size_it_is_hugging_faces_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(GPT2Config()).eval()
    mine = GPT2(PRESETS["gpt2"]).eval()
    state = {name.removeprefix("transformer."): tensor for name, tensor in theirs.state_dict().items()}
    turned = ("c_attn.weight", "c_fc.weight", "c_proj.weight")
    mine.load_state_dict({n: t.T if n.endswith(turned) else t for n, t in state.items()})
    ids = torch.randint(50_257, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(mine(ids), theirs(ids).logits, rtol=1e-5, atol=1e-5)


def test_it_has_124439808_parameters_under_the_checkpoints_names():
    with torch.device("meta"):
        mine, model = GPT2(PRESETS["gpt2"]), GPT(PRESETS["gpt2"])
    assert sum(p.numel() for p in mine.parameters()) == 124_439_808
    assert Ledger.from_model(mine) == Ledger.from_model(model)


def test_any_object_with_the_five_sizes_is_a_config():
    sizes = SimpleNamespace(vocab_size=11, n_positions=9, n_embd=10, n_layer=3, n_head=2)
    assert GPT2(sizes)(torch.tensor([[1, 2, 3]])).shape == (1, 3, 11)


def test_it_passes_the_exercise_and_has_its_head_tied():
    assert gptlab.check("GPT2", GPT2).status == "passed"


def test_the_trained_model_speaks_through_it():
    model = gptlab.from_pretrained("shakespeare")
    ids = torch.tensor([gptlab.get_tokenizer().encode("My brother, and thy uncle, call'd")])
    with torch.no_grad():
        torch.testing.assert_close(with_the_weights_of(model)(ids), model(ids), rtol=1e-5, atol=1e-4)


def test_it_imports_nothing_but_pytorch_and_math():
    found = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    assert found == {"math", "torch"}
