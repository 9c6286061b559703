"""The lowest versions that pyproject.toml allows, as exact pins for pip.

    python scripts/lowest.py             torch==2.8, tiktoken==0.9, ... one a line
    python scripts/lowest.py --tools     also what the package's tests need, as pinned in requirements.txt

`make lowest` installs them into a folder of their own and runs the package's quick tests there. So a minimum is the
first version that has been tried, and there is no second list.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = (
    *("pytest", "pytest-xdist", "hypothesis", "beartype"),
    *("nbformat", "nbclient", "ipykernel", "nbval", "markdown-it-py", "mdit-py-plugins"),  # for scripts/
    "PyYAML",
)
MINIMUM = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9]+(?:\.[0-9]+)*)")


def lowest(root: Path = ROOT) -> list[str]:
    """Each dependency at its minimum.

    Raises:
        ValueError: a dependency has another form than ``name>=version``, so that its minimum is not known.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text("utf8"))["project"]
    pins = []
    for dependency in project["dependencies"]:
        minimum = MINIMUM.fullmatch(dependency)
        if minimum is None:
            raise ValueError(f"pyproject.toml: {dependency!r}: write it as name>=version")
        pins.append(f"{minimum[1]}=={minimum[2]}")
    return pins


def pinned(root: Path = ROOT) -> dict[str, str]:
    """Each package of requirements.txt with its version."""
    requirements = (root / "requirements.txt").read_text("utf8")
    return dict(re.findall(r"^([\w-]+)==(\S+)", requirements, re.MULTILINE))


def tools(root: Path = ROOT) -> list[str]:
    """What the tests need beside the package, in the versions of requirements.txt.

    Raises:
        ValueError: one of them is not pinned there.
    """
    versions = pinned(root)
    if missing := [tool for tool in TOOLS if tool not in versions]:
        raise ValueError(f"requirements.txt pins no {missing[0]}")
    return [f"{tool}=={versions[tool]}" for tool in TOOLS]


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Print the pins."""
    parser = argparse.ArgumentParser(description="The lowest versions that pyproject.toml allows.")
    parser.add_argument("--tools", action="store_true", help="also what the package's tests need")
    print("\n".join([*lowest(root), *(tools(root) if parser.parse_args(argv).tools else [])]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
