"""Fixtures that several files share. All sizes differ, so that no mistake hides behind a coincidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version

import jaxtyping
import pytest
import torch
from hypothesis import settings

from gptlab import GPT, PRESETS, GPTConfig

# The same examples in every run, and no time limit for one: this machine's speed is not what is tested.
settings.register_profile("gptlab", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("gptlab")

TINY = replace(PRESETS["gpt2"], vocab_size=59, n_positions=16, n_embd=24, n_layer=3, n_head=4)


def make_model(config: GPTConfig = TINY, seed: int = 0) -> GPT:
    """A model in evaluation mode with no value at its default: biases are not 0, gains not 1."""
    torch.manual_seed(seed)
    model = GPT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def random_ids(B: int, T: int, vocab_size: int = TINY.vocab_size, seed: int = 1) -> torch.Tensor:
    return torch.randint(vocab_size, (B, T), generator=torch.Generator().manual_seed(seed))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `gpu` or `pinned` is skipped where it cannot hold, and says so."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and PyTorch finds none: not validated on GPU")
    for marker in item.iter_markers("pinned"):
        import lowest  # from scripts/, which only pytest has on its path

        (package,) = marker.args
        pinned, installed = (
            lowest.pinned()[package],
            version(package).partition("+")[0],
        )  # 2.13.0+cpu is 2.13.0
        if installed != pinned:
            pytest.skip(f"holds with {package} {pinned}, and {package} {installed} is installed")


@pytest.fixture
def tiny() -> GPTConfig:
    return TINY


@pytest.fixture
def model() -> GPT:
    return make_model()


@pytest.fixture
def as_a_user() -> Iterator[None]:
    """Switch off the shape checks that only the tests have, to see the package's own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
