"""``gptlab.memory`` offers its public names, and loads PyTorch for none that predicts."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import gptlab.memory

WITHOUT_TORCH = ("forms", "sharding", "step", "timeline", "weights")


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_what_predicts_is_imported_from_the_package_where_torch_cannot_be():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gptlab import GPTConfig\n"
        "from gptlab.memory import TrainingStep, inference_memory, per_rank_bytes, training_memory\n"
        "print(training_memory(GPTConfig(), batch_size=1, context=8).state)"
    )
    done = run(code)
    assert done.stdout.strip() == "1991037520", done.stderr


def test_importing_the_package_loads_none_of_its_modules():
    code = "import sys, gptlab.memory; print([m for m in sys.modules if m.startswith(('gptlab.memory.', 'torch'))])"
    assert run(code).stdout.strip() == "[]"


def test_every_public_name_resolves_and_is_listed():
    for name in gptlab.memory.__all__:
        assert getattr(gptlab.memory, name) is not None
        assert name in dir(gptlab.memory)


def test_no_public_name_is_that_of_a_module():
    modules = {path.stem for path in Path(gptlab.memory.__file__).parent.glob("*.py")}
    assert not modules & set(gptlab.memory.__all__)


@pytest.mark.parametrize("name", [*WITHOUT_TORCH, "measure", "trace"])
def test_the_classes_and_functions_of_the_reference_are_public(name):
    module = importlib.import_module(f"gptlab.memory.{name}")
    here = {
        member
        for member, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__
    }
    assert {member for member in here if not member.startswith("_")} <= set(gptlab.memory.__all__)


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(AttributeError, match="module 'gptlab.memory' has no attribute 'peak'; it offers "):
        gptlab.memory.peak  # noqa: B018
