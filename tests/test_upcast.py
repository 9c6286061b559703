from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gptlab import generation
from gptlab.upcast import FEWEST_ROWS, UpcastProducts, upcast_if_emulated
from tests.conftest import make_model, random_ids

HALF = [torch.bfloat16, torch.float16]


class TypesOfProducts(TorchDispatchMode):
    """Records the type in which each matrix product is computed."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.addmm.default:
            self.seen.append(args[1].dtype)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(FEWEST_ROWS, 48), (2, 4, 48), (3, 5, 48)])
def test_the_result_is_the_exact_product_rounded_once(dtype, bias, shape):
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(48, 20, bias=bias).to(dtype)
    x = torch.randn(shape, generator=generator).to(dtype)
    with torch.no_grad(), UpcastProducts():
        result = layer(x)
    exact = F.linear(x.double(), layer.weight.double(), None if layer.bias is None else layer.bias.double())
    assert result.dtype == dtype
    # Half a unit in the last place for the rounding, and float32's own error in the sum.
    allowed = exact.abs() * torch.finfo(dtype).eps / 2 + 48 * torch.finfo(torch.float32).eps
    assert ((result.double() - exact).abs() <= allowed).all()


@pytest.mark.parametrize(
    ("rows", "computed_in"), [(FEWEST_ROWS, torch.float32), (FEWEST_ROWS - 1, torch.bfloat16)]
)
def test_products_of_few_rows_stay_in_half_precision(rows, computed_in):
    layer = nn.Linear(48, 20).bfloat16()
    with torch.no_grad(), TypesOfProducts() as products, UpcastProducts():
        layer(torch.ones(1, rows, 48, dtype=torch.bfloat16))
    assert products.seen == [computed_in]


@pytest.mark.parametrize(
    ("capability", "dtype", "rows", "upcasts"),
    [
        ("AVX2", torch.bfloat16, FEWEST_ROWS, True),
        ("AVX2", torch.float16, 1024, True),
        ("AVX2", torch.bfloat16, FEWEST_ROWS - 1, False),
        ("AVX2", torch.float32, 1024, False),
        ("AVX512", torch.bfloat16, 1024, False),
        ("NEON", torch.bfloat16, 1024, False),
    ],
)
def test_only_where_half_precision_is_emulated(monkeypatch, capability, dtype, rows, upcasts):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    context = upcast_if_emulated(torch.ones(1, dtype=dtype), rows)
    assert type(context) is (UpcastProducts if upcasts else nullcontext)


def test_weights_on_another_device_are_left_alone(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert isinstance(
        upcast_if_emulated(torch.ones(1, dtype=torch.bfloat16, device="meta"), 1024), nullcontext
    )


def test_generation_reads_the_prompt_upcast_and_the_following_tokens_not(monkeypatch):
    asked = []

    def recorded(weight, rows):
        asked.append((weight.dtype, rows))
        return nullcontext()

    monkeypatch.setattr(generation, "upcast_if_emulated", recorded)
    model = make_model().bfloat16()
    prompt = random_ids(2, 5)
    generation.generate(model, prompt, 3, temperature=0.0)
    assert asked == [(torch.bfloat16, 10), (torch.bfloat16, 2), (torch.bfloat16, 2)]


def test_generation_gives_the_same_tokens_with_and_without(monkeypatch):
    model = make_model().bfloat16()
    prompt = random_ids(2, 12)
    tokens = []
    for context in (nullcontext, UpcastProducts):
        monkeypatch.setattr(generation, "upcast_if_emulated", lambda weight, rows, context=context: context())
        tokens.append(generation.generate(model, prompt, 12, temperature=0.0))
    assert torch.equal(*tokens)
