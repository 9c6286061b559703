"""Let a docstring say `gptlab.generate`, as a reader would, and link to where it is documented.

The same for the names of `gptlab.memory`.
"""

from __future__ import annotations

from typing import cast

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

import gptlab
import gptlab.memory

PUBLIC = {"gptlab": gptlab.__all__, "gptlab.memory": gptlab.memory.__all__}


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Link a name that a package only looks up to the module that holds it."""
    package, _, name = node.get("reftarget", "").rpartition(".")
    if node.get("refdomain") != "py" or name not in PUBLIC.get(package, ()):
        return None
    suffix = f".{name}"
    domain = cast(PythonDomain, env.get_domain("py"))
    homes = [full for full in domain.objects if full.startswith(f"{package}.") and full.endswith(suffix)]
    if len(homes) != 1:
        return None
    place = domain.objects[homes[0]]
    return make_refnode(app.builder, node["refdoc"], place.docname, place.node_id, content, homes[0])


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.connect("missing-reference", resolve)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
