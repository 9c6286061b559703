"""Without a repository address, no button and no link that would need one: a note in the footer instead.

The address stands in pyproject.toml; `make repository NAME=owner/repo` copies it into _config.yml, which the
theme reads. The buttons then appear by themselves, the one for Colab on notebook pages only.
"""

from __future__ import annotations

from sphinx.application import Sphinx
from sphinx.config import Config

PLACEHOLDER = "https://github.com/OWNER/"
BUTTONS = ("use_repository_button", "use_issues_button", "use_source_button", "use_edit_page_button")
NOTE = (
    '<p class="no-address">Buttons for Colab and for the source appear once this copy of the course has a '
    "repository address: <code>make repository NAME=owner/repo</code></p>"
)


def without_address(app: Sphinx, config: Config) -> None:
    """Turn off whatever would lead to a repository that has no address yet."""
    options = config.html_theme_options
    if not options.get("repository_url", "").startswith(PLACEHOLDER):
        return
    options["repository_url"] = ""
    options["launch_buttons"] = {}
    options.update(dict.fromkeys(BUTTONS, False))
    options["extra_footer"] = NOTE + options.get("extra_footer", "")
    config.html_baseurl = ""


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx, before the theme looks at its options."""
    app.connect("config-inited", without_address, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
