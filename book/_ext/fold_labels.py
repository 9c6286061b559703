"""What is folded away says what it is: the imports, the code of a figure, an output.

MyST-NB writes "Show code cell source" on all of them. A cell's own `code_prompt_show` is left as it is.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx

BUILDERS_OWN = "code cell {type}"


def content(cell: nodes.Element) -> str:
    """The name of the part of a code cell that is folded away, for `Show the …` and `Hide the …`."""
    source = next((part for part in cell if part.get("nb_element") == "cell_code_source"), None)
    output = next((part for part in cell if part.get("nb_element") == "cell_code_output"), None)
    drawn = output is not None and any(output.findall(nodes.image))
    if cell["hide_mode"] == "output":
        return "figure" if drawn else "output"
    if cell["hide_mode"] == "all" and output is not None:
        return "code and the figure" if drawn else "code and its output"
    if drawn:
        return "code of this figure"
    begins_with = source.astext().split(maxsplit=1)[0] if source is not None else ""
    return "imports" if begins_with in {"import", "from"} else "code"


def label(app: Sphinx, doctree: nodes.document) -> None:
    """Put the names into the prompts, before MyST-NB wraps the parts in their folds."""
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") == "cell_code" and cell.get("hide_mode"):
            name = f"the {content(cell)}"
            for prompt in ("prompt_show", "prompt_hide"):
                cell[prompt] = cell[prompt].replace(BUILDERS_OWN, name)


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.connect("doctree-read", label)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
