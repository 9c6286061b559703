"""Chapter 10: one step of the optimizer, for one tensor."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gptlab.exercises.exercise import NOTHING_WRONG, Exercise, Mistake
from gptlab.exercises.outputs import named

if TYPE_CHECKING:
    from torch import Tensor

Case = tuple["Tensor", "Tensor", "Tensor", "Tensor", int, float, tuple[float, float], float, float]


def reference(
    p: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    on: frozenset[str] = NOTHING_WRONG,
) -> dict[str, Tensor]:
    old_m, old_v = m, v
    b1, b2 = betas[::-1] if "betas-exchanged" in on else betas
    t = step + ("one-step-more" in on) - ("from-0" in on)
    if "l2" in on:
        grad = grad + weight_decay * p
    decay = 0.0 if on & {"l2", "no-decay"} else weight_decay * (1 if "decay-without-lr" in on else lr)
    m = b1 * m + (1 if "unweighted" in on else 1 - b1) * grad
    v = b2 * v + (1 if "unweighted" in on else 1 - b2) * (grad if "not-squared" in on else grad**2)
    m_hat = m if on & {"uncorrected", "m-uncorrected"} else m / (1 - b1**t)
    v_hat = v if on & {"uncorrected", "v-uncorrected"} else v / (1 - b2**t)
    if "eps-first" in on:
        size = (v**0.5 + eps) * (v_hat / v).nan_to_num(1.0) ** 0.5
    elif "no-root" in on:
        size = v_hat + eps
    elif "eps-inside" in on:
        size = (v_hat + eps) ** 0.5
    else:
        size = v_hat**0.5 + (0.0 if "no-eps" in on else eps)
    update = lr * (grad if "no-momentum" in on else m_hat) / size
    if "ascent" in on:
        update = -update
    p = (p - update) * (1 - decay) if "decay-last" in on else p * (1 - decay) - update
    if "corrected-kept" in on:
        m, v = m_hat, v_hat
    return {"p": p, "m": old_m, "v": old_v} if "not-kept" in on else {"p": p, "m": m, "v": v}


def cases(rng: random.Random) -> list[Case]:
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def case(
        step: int,
        betas: tuple[float, float],
        weight_decay: float,
        *shape: int,
        eps: float = 1e-8,
        scale: float = 1.0,
    ) -> Case:
        m, v = scale * normal(*shape), (scale * (1 + normal(*shape).abs())) ** 2
        grad = scale * normal(*shape)
        if step == 1:
            m, v = torch.zeros(shape), torch.zeros(shape)
            grad[0] = 0.0  # the row of a token that was not read
        lr = 0.05 + 0.1 * rng.random()
        return normal(*shape), grad, m, v, step, lr, betas, eps, weight_decay

    return [
        case(7, (0.8, 0.99), 0.3, 3, 4, eps=1e-2, scale=0.05),
        case(1, (0.9, 0.95), 0.1, 3, 5),
        case(40, (0.9, 0.999), 0.0, 6),
        case(2, (0.9, 0.999), 0.2, 2, 3, eps=1e-3, scale=1e-3),
    ]


EXERCISE = Exercise(
    name="adamw_step",
    chapter=10,
    task="adamw_step(p, grad, m, v, step, lr, betas, eps, weight_decay) makes one step of AdamW for one tensor and "
    "returns the new p, m, v, all of p's shape. m and v are the running means of the gradients and of their squares, "
    "as the step before left them, 0 before the first; step is 1 for the first step; betas is a pair. The weight decay "
    "is that of AdamW: it takes lr · weight_decay of the old p away, and has no part in m and v.",
    difficulty="medium",
    minutes=20,
    reference=reference,
    mistakes=(
        Mistake(
            "l2",
            "the decay is added to the gradient and goes through m and v. That is Adam with an L2 penalty, and "
            "weights with large gradients decay less. AdamW leaves the gradient alone: p · (1 - lr · weight_decay).",
        ),
        Mistake(
            "uncorrected",
            "m and v are used as they are. They start at 0 and are too small in the first steps: divide them by "
            "1 - β₁ᵗ and 1 - β₂ᵗ, t the step.",
        ),
        Mistake(
            "m-uncorrected", "v is corrected for its start at 0, m is not. Divide it by 1 - β₁ᵗ, t the step."
        ),
        Mistake(
            "v-uncorrected", "m is corrected for its start at 0, v is not. Divide it by 1 - β₂ᵗ, t the step."
        ),
        Mistake(
            "from-0",
            "the correction counts steps from 0, so in the first one it divides by 1 - β⁰ = 0. step is 1 there "
            "already: leave it as it is.",
        ),
        Mistake(
            "one-step-more",
            "the correction is that of the next step. step is 1 in the first one: leave it as it is.",
        ),
        Mistake("eps-inside", "eps is added to v, inside the root. Add it to the root: √v̂ + eps."),
        Mistake(
            "eps-first",
            "eps is added to √v before the correction, so the correction reaches it as well. Correct first: "
            "√(v / (1 - β₂ᵗ)) + eps. Where gradients are as small as eps, the two differ.",
        ),
        Mistake(
            "no-eps",
            "eps is missing. A weight that has had no gradient yet has v = 0, and 0 / 0 is NaN. Add eps to the root.",
        ),
        Mistake("no-root", "the step is divided by v̂. Divide it by its root, √v̂ + eps."),
        Mistake(
            "not-squared", "v is a mean of the gradients, as m is. It is the mean of their squares: grad²."
        ),
        Mistake("betas-exchanged", "the betas are exchanged. The first belongs to m, the second to v."),
        Mistake(
            "unweighted",
            "the new gradient enters with its full weight. In a running mean it gets 1 - β: "
            "m = β₁ · m + (1 - β₁) · grad, v likewise.",
        ),
        Mistake(
            "no-momentum",
            "the step goes along the gradient, not along its running mean. m is computed but not used.",
        ),
        Mistake(
            "decay-without-lr",
            "the decay is not multiplied by the learning rate: weight_decay of p is lost in each step. Take "
            "lr · weight_decay.",
        ),
        Mistake("no-decay", "nothing decays. Multiply p by 1 - lr · weight_decay."),
        Mistake(
            "decay-last",
            "the decay comes after the step, and shortens the step as well. It takes its part of the old p: multiply "
            "first, then subtract.",
        ),
        Mistake("ascent", "the step goes up the gradient. Subtract it: the loss should fall."),
        Mistake(
            "corrected-kept",
            "the new p is right, but the corrected means are returned, and the next step would correct them again. "
            "Return m and v as they are before the division.",
        ),
        Mistake(
            "not-kept",
            "the new p is right, but m and v are returned as they came. The next step needs the new ones.",
        ),
    ),
    cases=cases,
    adapt=named("p", "m", "v"),
    hints=(
        "Two running means: where the gradient points, and how large it is. The step is the first divided by the root "
        "of the second.",
        "Both means start at 0. What has to be divided by what, so that after one step they are grad and grad²? And "
        "which p does the decay belong to?",
        "m = β₁ m + (1 - β₁) grad, v = β₂ v + (1 - β₂) grad², m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ), "
        "p = p (1 - lr · weight_decay) - lr · m̂ / (√v̂ + eps), with t = step.",
        "def adamw_step(p, grad, m, v, step, lr, betas, eps, weight_decay):\n    beta1, beta2 = betas\n"
        "    m = beta1 * m + ...\n    v = ...\n    m_hat = m / ...\n    v_hat = ...\n    p = ...\n    return p, m, v",
    ),
    solution="""
def adamw_step(p, grad, m, v, step, lr, betas, eps, weight_decay):
    beta1, beta2 = betas
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    p = p * (1 - lr * weight_decay)
    p = p - lr * m_hat / (v_hat.sqrt() + eps)
    return p, m, v
""",
    also_correct=(
        "import torch\n"
        "def adamw_step(p, grad, m, v, step, lr, betas, eps, weight_decay):\n"
        "    w = torch.nn.Parameter(p.clone())\n"
        "    w.grad = grad.clone()\n"
        "    optimizer = torch.optim.AdamW([w], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)\n"
        "    state = {'step': torch.tensor(step - 1.0), 'exp_avg': m.clone(), 'exp_avg_sq': v.clone()}\n"
        "    optimizer.state[w] = state\n"
        "    optimizer.step()\n"
        "    return w, state['exp_avg'], state['exp_avg_sq']\n",
        "def adamw_step(p, grad, m, v, step, lr, betas, eps, weight_decay):\n"
        "    m = m.lerp(grad, 1 - betas[0])\n"
        "    v = v.mul(betas[1]).addcmul(grad, grad, value=1 - betas[1])\n"
        "    rate = lr / (1 - betas[0] ** step)\n"
        "    size = v.sqrt() / (1 - betas[1] ** step) ** 0.5 + eps\n"
        "    return p - lr * weight_decay * p - rate * m / size, m, v\n",
        "import numpy as np\n"
        "def adamw_step(p, grad, m, v, step, lr, betas, eps, weight_decay):\n"
        "    p, g, m, v = (a.double().numpy() for a in (p, grad, m, v))\n"
        "    means = [(b * a + (1 - b) * x) for b, a, x in zip(betas, (m, v), (g, g * g))]\n"
        "    m_hat, v_hat = (a / (1 - b**step) for b, a in zip(betas, means))\n"
        "    return [p - lr * (m_hat / (np.sqrt(v_hat) + eps) + weight_decay * p), *means]\n",
    ),
)
