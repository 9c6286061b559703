"""No chapter uses a name of PyTorch that the reader has not met: PyTorch's own names, each where it is introduced.

A use is a name in a code cell that is shown: the last part of a chain such as `torch.optim.SGD`, `nn.Linear` or
`F.linear`, or an attribute such as `x.masked_fill`, of whatever object, that a tensor, a module, an optimizer or a
generator has. Code that is folded away (imports, the code of figures) need not be read, and does not count.

A name is introduced where a Markdown cell first has it in `code`: on the page "PyTorch for people who know NumPy", in
an earlier chapter, or before its use in the same one. A solution and fenced code introduce nothing.

What NumPy calls by the same name needs no introduction, unless it is a FALSE_FRIEND. What Python's own types have as
well, such as `split`, cannot be told from theirs, and is left out.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from nbformat import NotebookNode, v4
from notebooks import ANSWER
from prose_numbers import read_notebook

ROOT = Path(__file__).parents[2]
HIDDEN = {"remove-cell", "remove-input", "hide-input", "hide-cell"}

# What is not the same here as in NumPy.
FALSE_FRIENDS = {
    *("equal", "var", "std", "max", "min"),  # one answer for all; n - 1; pairs when there is a dim
    *("transpose", "view", "repeat", "flatten"),  # other arguments, or another result
    *("bool", "long", "device"),  # dtypes and devices of PyTorch, and the methods that convert
    "data",  # the tensor without its history, not its bytes
}
# What is not PyTorch's here, though a tensor has an attribute of that name.
OTHERS = {
    "name",  # of a row of the ledger, or of a path
}
PYTHONS = {name for kind in (str, bytes, list, tuple, dict, set, int, float) for name in dir(kind)}
NUMPYS = {*dir(np), *dir(np.ndarray)} - FALSE_FRIENDS
OF_OBJECTS = {
    name
    for kind in (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.Generator)
    for name in dir(kind)
    if not name.startswith("_")
} - (PYTHONS | OTHERS)


def reading_order() -> list[str]:
    """The notebooks as the site has them."""
    files = re.findall(r"file: book/(\S+)", (ROOT / "_toc.yml").read_text("utf-8"))
    return [f"{name}.ipynb" for name in files if (ROOT / "book" / f"{name}.ipynb").exists()]


def parsed(cell: NotebookNode) -> ast.Module:
    return ast.parse(re.sub(r"^\s*[%!].*$", "", cell.source, flags=re.M))


def imports(cells: list[NotebookNode]) -> dict[str, str]:
    """What each imported name stands for: {"F": "torch.nn.functional", "nn": "torch.nn", "np": "numpy"}."""
    found = {}
    for node in (node for cell in cells for node in ast.walk(parsed(cell))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def uses(tree: ast.Module, imported: dict[str, str]) -> Iterator[str]:
    """The names of PyTorch in one cell that are not NumPy's."""
    inner = set()  # the nodes inside a chain that has been dealt with
    for node in ast.walk(tree):
        if node in inner or not isinstance(node, ast.Attribute | ast.Name):
            continue
        parts, first = [], node
        while isinstance(first, ast.Attribute):
            parts.append(first.attr)
            first = first.value
            inner.add(first)
        home = imported.get(first.id, "") if isinstance(first, ast.Name) else ""
        if home.split(".")[0] == "torch":
            name = (parts or home.split("."))[0 if parts else -1]
            found = [] if parts == [] and home in {"torch", "torch.nn", "torch.nn.functional"} else [name]
        else:  # a module that is not PyTorch's has names of its own
            found = [] if home else [part for part in parts if part in OF_OBJECTS]
        yield from (name for name in found if name not in NUMPYS)


def introduced(cell: NotebookNode) -> set[str]:
    """The words in the inline code of a Markdown cell."""
    if cell.source.startswith("<details>"):
        return set()
    text = re.sub(r"^```.*?^```", "", cell.source, flags=re.M | re.S)
    return {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", code)}


def not_introduced(notebooks: dict[str, NotebookNode]) -> list[tuple[str, int, str]]:
    """(notebook, cell, name) where a name is used that no cell before introduces, each once; cells count from 1."""
    met: set[str] = set()
    found = []
    for file, nb in notebooks.items():
        imported = imports([cell for cell in nb.cells if cell.cell_type == "code"])
        for number, cell in enumerate(nb.cells, start=1):
            if cell.cell_type == "markdown":
                met |= introduced(cell)
            elif cell.cell_type == "code" and not HIDDEN & {*cell.metadata.get("tags", [])}:
                new = dict.fromkeys(uses(parsed(cell), imported))
                found += [(file, number, name) for name in new if name not in met]
                met |= {*new}
    return found


def test_every_name_of_pytorch_is_introduced_before_it_is_used() -> None:
    found = not_introduced({name: read_notebook(ROOT / "book" / name) for name in reading_order()})
    assert not found, "\n".join(
        f"{file}: cell {number}: {name}: say what it does, in a Markdown cell before, with its name in `code`"
        for file, number, name in found
    )


# --- the check itself, on small notebooks -------------------------------------------------------------------


def notebook(*cells: str | tuple[str, str]) -> NotebookNode:
    """Markdown cells; a pair is a code cell with its tag."""
    return v4.new_notebook(
        cells=[
            v4.new_markdown_cell(cell)
            if isinstance(cell, str)
            else v4.new_code_cell(cell[0], metadata={"tags": [cell[1]] if cell[1] else []})
            for cell in cells
        ]
    )


IMPORTS = ("import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn", "hide-input")


def names(code: str, before: str = "") -> list[str]:
    """The names that are missing in a notebook of one cell of text and one of code."""
    return [name for _, _, name in not_introduced({"a.ipynb": notebook(IMPORTS, before, (code, ""))})]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("torch.optim.SGD([], lr=0.1)", ["SGD"]),
        ("F.gelu(x)", ["gelu"]),
        ("class A(nn.Module): ...", ["Module"]),
        ("x.view(2, 3).masked_fill(x > 0, 0.0)", ["masked_fill", "view"]),
        ("model.h[0].register_forward_hook(print)", ["register_forward_hook"]),
        ("from torch.nn.attention import sdpa_kernel\nsdpa_kernel(x)", ["sdpa_kernel"]),
        ("%time x.triu().numel()", []),  # a magic is no Python
        ("x = torch.zeros(3).triu(1).exp().sum(axis=0)", []),  # as in NumPy
        ("torch.equal(x, x); x.std(); x.max(1)", ["equal", "std", "max"]),  # not as in NumPy
        ("math.log(2), 'a b'.split(), [].sort(), {}.values()", []),  # Python's own
        ("row.name, config.n_embd", []),
    ],
)
def test_pytorchs_own_names_are_found_in_code(code: str, found: list[str]) -> None:
    assert sorted(names(code)) == sorted(found)


@pytest.mark.parametrize(
    "text",
    [
        "`numel`",
        "Say `x.numel()`.",
        "| `torch.numel(x)` | how many |",
        '<details class="answer">\n\n`numel`\n\n</details>',
    ],
)
def test_inline_code_introduces_a_name(text: str) -> None:
    assert names("x.numel()", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "numel",
        "`numels`",
        "```python\nx.numel()\n```",
        "<details><summary>Solution</summary>\n\n`numel`\n\n</details>",
    ],
)
def test_other_text_does_not(text: str) -> None:
    assert names("x.numel()", text) == ["numel"]


def test_a_name_must_come_before_its_use_or_in_an_earlier_notebook() -> None:
    use = ("x.numel()", "hide-output")
    assert not_introduced({"a.ipynb": notebook(use, "`numel`")}) == [("a.ipynb", 1, "numel")]
    assert not_introduced({"a.ipynb": notebook("`numel`"), "b.ipynb": notebook("", use)}) == []
    assert not_introduced({"a.ipynb": notebook(""), "b.ipynb": notebook("", use)}) == [
        ("b.ipynb", 2, "numel")
    ]


@pytest.mark.parametrize("tag", sorted(HIDDEN))
def test_code_that_is_folded_away_needs_no_introduction(tag: str) -> None:
    assert not_introduced({"a.ipynb": notebook(("x.numel()", tag))}) == []


# --- the page that introduces most of them ------------------------------------------------------------------


def test_the_page_comes_before_every_chapter() -> None:
    assert reading_order()[:2] == ["pytorch.ipynb", "01-tokens.ipynb"]


def test_each_section_of_the_page_ends_with_a_guess_and_its_folded_answer() -> None:
    cells = read_notebook(ROOT / "book" / "pytorch.ipynb").cells
    starts = [i for i, cell in enumerate(cells) if cell.source.startswith("## ")]
    assert cells[starts[-1]].source.startswith("## To keep")
    for start, end in itertools.pairwise(starts):
        heading = cells[start].source.splitlines()[0]
        question, answer, why = cells[end - 3 : end]
        assert re.search(r"^\*\*Guess\.\*\* .+\?$", question.source, re.M), heading
        assert answer.metadata["tags"] == ["hide-output"], heading
        assert why.source.startswith(ANSWER), heading


def test_code_on_the_page_is_short() -> None:
    for cell in read_notebook(ROOT / "book" / "pytorch.ipynb").cells:
        if cell.cell_type == "code" and "remove-cell" not in cell.metadata.get("tags", []):
            assert len(cell.source.splitlines()) <= 8, cell.source
