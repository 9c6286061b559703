"""The reader's GPT-2: each definition of gptlab.my_gpt2 stands letter for letter in its chapter, in code shown."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
import torch
from safetensors.torch import load_file, save_file

from gptlab import GPT, checkpoint, my_gpt2
from tests.conftest import TINY

ROOT = Path(__file__).parents[2]
SOURCE = Path(my_gpt2.__file__).read_text("utf-8")
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}

CHAPTERS = {
    **dict.fromkeys(("attend", "split_heads", "merge_heads", "Attention"), "03-attention"),
    **dict.fromkeys(("gelu", "MLP", "Block"), "04-block"),
    "GPT2": "05-whole-model",
}


def definitions(source: str) -> dict[str, str]:
    """The functions and classes of a module, as they are written."""
    return {
        node.name: ast.get_source_segment(source, node) or ""
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def shown_in(chapter: str) -> list[dict[str, str]]:
    """The definitions in each code cell of a chapter that a reader sees, up to the exercises."""
    cells = nbformat.read(ROOT / "book" / f"{chapter}.ipynb", as_version=4).cells
    end = next(i for i, cell in enumerate(cells) if cell.source.startswith("## Exercises"))
    return [
        definitions(cell.source)
        for cell in cells[:end]
        if cell.cell_type == "code" and not FOLDED & {*cell.metadata.get("tags", [])}
    ]


def test_every_definition_has_its_chapter() -> None:
    assert definitions(SOURCE).keys() == CHAPTERS.keys()


@pytest.mark.parametrize(("name", "chapter"), CHAPTERS.items())
def test_a_chapter_shows_its_pieces_letter_for_letter(name: str, chapter: str) -> None:
    (shown,) = (cell[name] for cell in shown_in(chapter) if name in cell)
    assert shown == definitions(SOURCE)[name]


@pytest.mark.parametrize("chapter", sorted({*CHAPTERS.values()}))
def test_what_a_chapter_imports_from_the_readers_model_was_built_before_it(chapter: str) -> None:
    cells = nbformat.read(ROOT / "book" / f"{chapter}.ipynb", as_version=4).cells
    imported = {
        alias.name
        for cell in cells
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.ImportFrom) and node.module == "gptlab.my_gpt2"
        for alias in node.names
    }
    assert all(CHAPTERS[name] < chapter for name in imported)


def test_no_line_is_wider_than_the_page() -> None:
    code = SOURCE[SOURCE.index("import math") :]
    assert max(map(len, code.splitlines())) <= 76


def test_the_loader_of_chapter_5_reads_a_file_with_masks(tmp_path: Path) -> None:
    cells = nbformat.read(ROOT / "book/05-whole-model.ipynb", as_version=4).cells
    (source,) = (cell.source for cell in cells if "def load(" in cell.source)
    space = {"load_file": load_file}
    exec(source[: source.rindex("\n\n\n")], space)
    torch.manual_seed(0)
    model = GPT(TINY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    checkpoint.save_checkpoint(model, tmp_path)
    file = tmp_path / "model.safetensors"
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 9, 9).tril() for i in range(TINY.n_layer)}
    save_file(load_file(file) | masks, file)
    mine = my_gpt2.GPT2(TINY)
    space["load"](mine, file)
    ids = torch.randint(TINY.vocab_size, (2, 5))
    with torch.no_grad():
        torch.testing.assert_close(mine(ids), model(ids), rtol=1e-5, atol=1e-5)
