import subprocess
import sys

import pytest

import gptlab


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_gptlab_loads_neither_torch_nor_matplotlib():
    loaded = run(
        "import sys, gptlab; print([m for m in ('torch', 'matplotlib', 'tiktoken') if m in sys.modules])"
    )
    assert loaded == "[]"


def test_config_and_ledger_work_where_torch_cannot_be_imported():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import gptlab; print(gptlab.Ledger.from_config(gptlab.PRESETS['gpt2']).total)"
    )
    assert run(code) == "124439808"


def test_import_is_quick_beside_the_interpreter_itself():
    """The promise is 0.2 s. A ratio, best of two each, so that a busy machine does not decide."""
    code = (
        "import subprocess, sys, time\n"
        "def best(stmt):\n"
        "    times = []\n"
        "    for _ in range(2):\n"
        "        t = time.perf_counter(); subprocess.run([sys.executable, '-c', stmt], check=True)\n"
        "        times.append(time.perf_counter() - t)\n"
        "    return min(times)\n"
        "print(best('import gptlab') < best('import torch') / 2)"
    )
    assert run(code) == "True"


def test_every_public_name_resolves_and_is_listed():
    for name in gptlab.__all__:
        assert getattr(gptlab, name) is not None
        assert name in dir(gptlab)


def test_no_public_function_shares_the_name_of_a_module():
    from pathlib import Path

    modules = {path.stem for path in Path(gptlab.__file__).parent.glob("*.py")}
    assert not modules & set(gptlab.__all__)


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(AttributeError, match="'gptlab' has no attribute 'GTP'; it offers GPT, "):
        gptlab.GTP  # noqa: B018
