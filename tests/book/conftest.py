"""A small book, executed once per session: every test works on a copy of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import notebooks
import pytest
from nbformat import NotebookNode, v4
from repository import colab_cell

BARS = """
import matplotlib.pyplot as plt

def draw(heights):
    _, ax = plt.subplots(figsize=(2, 1))
    ax.bar(range(len(heights)), heights)
"""

FIGURE = {
    "mystnb": {
        "image": {"alt": "Two bars: 38.6M and 85.1M high."},
        "figure": {"caption": "The table is less than half as tall as the blocks: 38.6M against 85.1M.\n"},
    }
}


def sample() -> NotebookNode:
    """A notebook that passes every check once it is executed. Tests find its cells by their ids."""
    cells = [
        v4.new_markdown_cell("# 1 A sample\n\nThe table holds 38.6M numbers, 23.67 % of all.", id="intro"),
        v4.new_code_cell(colab_cell(None), id="colab", metadata={"tags": ["remove-cell"]}),
        v4.new_code_cell("print(50257, 768)\nprint(f'{50257 * 768:,}')", id="count"),
        v4.new_code_cell("round(100 * 38_597_376 / 163_037_184, 3)", id="share"),
        v4.new_markdown_cell(
            "One row per token:\n\n$$50{,}257 \\times 768 = 38{,}597{,}376 \\tag{1.1}$$\n\nSee Eq. (1.1).",
            id="maths",
        ),
        v4.new_code_cell(
            "from gptlab.plots import bars\n\nprint('blocks: 85.1M')\nbars.draw([38.6, 85.1])",
            id="figure",
            metadata=FIGURE,
        ),
        v4.new_code_cell(
            "raise ValueError('n_embd=768 must be divisible by n_head=13')",
            id="trap",
            metadata={"tags": ["raises-exception"]},
        ),
        v4.new_code_cell(
            "import os\n\nprint(os.environ['OMP_NUM_THREADS'], os.path.basename(os.getcwd()))", id="env"
        ),
    ]
    return v4.new_notebook(cells=cells)


@pytest.fixture(scope="session")
def executed_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a repository with one executed notebook and a package that draws its figure."""
    root = tmp_path_factory.mktemp("executed")
    (root / "gptlab" / "plots").mkdir(parents=True)
    for name in ("__init__.py", "config.py", "ledger.py", "plots/__init__.py"):
        (root / "gptlab" / name).write_text("")
    (root / "gptlab" / "plots" / "bars.py").write_text(BARS)
    (root / "book").mkdir()
    path = root / "book" / "01-sample.ipynb"
    path.write_text(json.dumps(sample()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(root))  # the kernel imports this gptlab, not the course's
        assert notebooks.main(["run"], root=root) == 0
    return root


@pytest.fixture
def book(executed_book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the executed book, to be tampered with."""
    root = shutil.copytree(executed_book, tmp_path / "course")
    monkeypatch.setenv("PYTHONPATH", str(root))
    return root


@pytest.fixture
def edit(book: Path) -> Callable[[str, Callable[[NotebookNode], None]], None]:
    """edit("cell id", function): change one cell of the stored notebook, and nothing else."""

    def apply(cell_id: str, change: Callable[[NotebookNode], None]) -> None:
        path = book / "book" / "01-sample.ipynb"
        nb = notebooks.read_notebook(path)
        change(next(cell for cell in nb.cells if cell.id == cell_id))
        path.write_text(notebooks.dump(nb))

    return apply
