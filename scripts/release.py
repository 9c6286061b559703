"""The course's version: one place, and every mention made from it.

    python scripts/release.py                    print the version and the state of every mention
    python scripts/release.py 0.2.0              set all of them (`make release VERSION=0.2.0`)
    python scripts/release.py --notes [0.2.0]    print what CHANGELOG.md says of a version, the latest by default

The one place is `[project] version` in pyproject.toml. Setting writes gptlab/__init__.py, CITATION.cff with the
day, the tag that the site's buttons lead to, the tag that the notebooks' first cell installs in Colab, and turns
"Unreleased" in CHANGELOG.md into the version and the day. It commits and tags nothing: it says how. No notebook
needs to be run for it: the hash that is stored with the outputs leaves the Colab cell out.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

import repository
import validated
from repository import ROOT, Mention, cell_of_the_course, stored_version, validate_version

# Where the version stands: the part between the groups. pyproject.toml comes last: if writing stops half-way, the
# old version still stands there, and a second run finishes the work.
PLACES = {
    "gptlab/__init__.py": r'^(__version__ = ")[^"\n]*(")$',
    "CITATION.cff": r"^(version: )\S+()$",
    "_config.yml": r"^(  branch: v)\S+()$",
    "pyproject.toml": r'^(version = ")[^"\n]*(")$',
}
RELEASED = r"^(date-released: )\S+()$"
CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## [Unreleased]"
HEADING = re.compile(r"^## \[(?P<version>[0-9][^\]\n]*)\] - (?P<date>\d{4}-\d\d-\d\d)$", re.MULTILINE)


def numbers(version: str) -> tuple[int, ...]:
    """(0, 10, 0) for 0.10.0, so that versions compare as numbers."""
    return tuple(map(int, version.split(".")))


def put(text: str, pattern: str, value: str, name: str) -> str:
    """`text` with another value in the one place that `pattern` finds."""
    places = re.findall(pattern, text, re.MULTILINE)
    if len(places) != 1:
        raise ValueError(
            f"{name}: {len(places)} lines match {pattern!r}, and it must be one. Restore that line."
        )
    return re.sub(pattern, lambda found: found[1] + value + found[2], text, flags=re.MULTILINE)


def latest(changelog: str) -> tuple[str, str]:
    """The first version that the changelog names, and its day."""
    found = HEADING.search(changelog)
    if found is None:
        raise ValueError(f"{CHANGELOG} names no version. Write a heading such as: ## [0.1.0] - 2026-11-30")
    return found["version"], found["date"]


def notes(changelog: str, version: str) -> str:
    """What the changelog says under a version's heading."""
    headings = list(re.finditer(r"^## \[(?P<version>[^\]\n]+)\].*$", changelog, re.MULTILINE))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] == version:
            return changelog[heading.end() : following.start() if following else len(changelog)].strip()
    named = ", ".join(heading["version"] for heading in headings)
    raise ValueError(f"{CHANGELOG} has no version {version!r}; it has: {named}")


def close(changelog: str, version: str, day: str) -> str:
    """The changelog with what was unreleased under the version, and an empty "Unreleased" above it."""
    if latest(changelog)[0] == version:  # a second run after one that stopped half-way
        return changelog
    if not notes(changelog, "Unreleased"):
        raise ValueError(f"{CHANGELOG}: nothing stands under {UNRELEASED}. Write first what has changed.")
    return put(changelog, rf"^({re.escape(UNRELEASED)}\n)(?=\n)()", f"\n## [{version}] - {day}\n", CHANGELOG)


def tagged(version: str, root: Path) -> bool:
    """Whether git has the version's tag already."""
    command = ["git", "tag", "--list", f"v{version}"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return bool(run.stdout.strip())


def set_version(version: str, root: Path = ROOT, day: str | None = None) -> list[Path]:
    """Write the version everywhere; return the files that changed. Nothing is written unless all can be."""
    validate_version(version)
    old = stored_version(root)
    if numbers(version) <= numbers(old):
        raise ValueError(
            f"{version} does not come after {old}, the version in pyproject.toml. Give a higher one."
        )
    if tagged(version, root):
        raise ValueError(f"git has the tag v{version} already. Give a higher version.")
    day = day or datetime.datetime.now(datetime.UTC).date().isoformat()
    texts = {}
    for path in sorted(root.glob(repository.NOTEBOOKS)):
        raw = repository.read_exactly(path)
        if repository.colab_source(raw) is None:
            raise ValueError(
                f"{path.relative_to(root)} has no cell that starts with {repository.MARKER!r}. Add it."
            )
        texts[path] = repository.set_colab_cell(raw, cell_of_the_course(root, version=version))
    texts[root / CHANGELOG] = close(repository.read_exactly(root / CHANGELOG), version, day)
    for name, pattern in PLACES.items():
        texts[root / name] = put(repository.read_exactly(root / name), pattern, version, name)
    texts[root / "CITATION.cff"] = put(texts[root / "CITATION.cff"], RELEASED, day, "CITATION.cff")
    changed = [path for path, text in texts.items() if text != repository.read_exactly(path)]
    for path in changed:
        path.write_bytes(texts[path].encode("utf-8"))
    return changed


def mentions(root: Path = ROOT) -> list[Mention]:
    """Every mention of the version, and whether it agrees with pyproject.toml; the notebooks' Colab cells too."""
    version = stored_version(root)
    named, day = latest((root / CHANGELOG).read_text(encoding="utf-8"))
    expected = {name: (pattern, version) for name, pattern in PLACES.items()}
    found = [Mention(CHANGELOG, 1, f"[{named}] - {day}", named == version)]
    for name, (pattern, value) in [*expected.items(), ("CITATION.cff", (RELEASED, day))]:
        text = (root / name).read_text(encoding="utf-8")
        match = re.search(pattern, text, re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1 if match else 1
        shown = match[0].strip() if match else f"no line like {pattern!r}"
        found.append(
            Mention(name, line, shown, match is not None and match[0] == match[1] + value + match[2])
        )
    return found + [mention for mention in repository.mentions(root) if mention.path.endswith(".ipynb")]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print, set or quote; 0 when every mention agrees with pyproject.toml."""
    parser = argparse.ArgumentParser(description="Print or set the version of the course.")
    parser.add_argument("version", nargs="?", metavar="x.y.z", help="the version to set; without it, print")
    parser.add_argument("--notes", action="store_true", help="print what the changelog says of the version")
    options = parser.parse_args(arguments)
    try:
        if options.notes:
            changelog = (root / CHANGELOG).read_text(encoding="utf-8")
            print(notes(changelog, options.version or latest(changelog)[0]))
            return 0
        if options.version is not None:
            for path in set_version(options.version, root):
                print(f"changed  {path.relative_to(root).as_posix()}")
            advise(options.version, root)
            return 0
        print(stored_version(root))
        found = mentions(root)
    except (ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for mention in found:
        print(f"{'agrees ' if mention.right else 'DIFFERS'}  {mention.path}:{mention.line}  {mention.text}")
    return 0 if all(mention.right for mention in found) else 1


def advise(version: str, root: Path) -> None:
    """Print what is left to do by hand."""
    for path in sorted(root.glob(repository.NOTEBOOKS)):
        name = path.relative_to(root).as_posix()
        if (on_cpu := validated.states(name, root)["cpu"]).startswith(("not", "changed")):
            print(f"its page says of a CPU '{on_cpu}'  {name}  (make test, then make stamp)")
    print("Read the diff. Then:")
    for command in (
        f"git commit -am 'Release {version}'",
        f"git tag v{version}",
        f"git push origin main v{version}",
    ):
        print(f"    {command}")


if __name__ == "__main__":
    sys.exit(main())
