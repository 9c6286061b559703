"""A guess: a question, room for an answer, and one fold that opens output, figure and explanation together.

In the notebook it is a code cell tagged ``hide-output``, the cells of its figures, and a Markdown cell that is one
``<details class="answer">``, which is a fold of its own in Colab, in JupyterLab and on GitHub. Here what the cells
show moves into it.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx

ANSWER, END = '<details class="answer">', "</details>"
ROOM = '<p class="guess"><label>Your guess <input type="text" autocomplete="off"></label></p>'


def folds(node: nodes.Node, mode: str) -> bool:
    """Whether a node is a code cell of which this part is folded away."""
    return isinstance(node, nodes.container) and node.get("hide_mode") == mode


def gather(doctree: nodes.document) -> None:
    """Move outputs and figures into the answers that follow them."""
    for asked in list(doctree.findall(lambda node: folds(node, "output"))):
        siblings, i = asked.parent.children, asked.parent.index(asked) + 1
        shown = [part for part in asked if part.get("nb_element") == "cell_code_output"]
        while i < len(siblings) and folds(siblings[i], "input"):
            shown.append(siblings[i])
            i += 1
        answer = siblings[i] if i < len(siblings) else None
        if not (isinstance(answer, nodes.raw) and answer.astext().startswith(ANSWER)):
            continue
        for part in shown:
            part.parent.remove(part)
        at = asked.parent.index(answer)
        asked.parent.insert(at + 1, [cell(part) for part in shown])
        asked.parent.insert(at, nodes.raw("", ROOM, format="html"))
        del asked["hide_mode"]


def cell(part: nodes.Element) -> nodes.Element:
    """A part of a code cell as a cell of its own."""
    if part.get("nb_element") == "cell_code":
        return part
    whole = nodes.container(nb_element="cell_code", classes=["cell"])
    whole += part
    return whole


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx, before the parts of cells get their folds."""
    app.connect("doctree-read", lambda app, doctree: gather(doctree), priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
