"""The address of the course's repository: one place, and every mention made from it.

    python scripts/repository.py               print the address and the state of every mention
    python scripts/repository.py owner/repo    set all of them (`make repository NAME=owner/repo`)

The one place is `[project.urls] Repository` in pyproject.toml. While it says OWNER/gptlab, this copy of the
course has no address: the site shows no button that would need one, and the notebooks' first cell says so.
`python scripts/repository.py OWNER/gptlab` returns to that state.

In Colab that cell installs the release whose version pyproject.toml has, by its tag: v0.1.0 for 0.1.0. A copy of a
notebook that somebody saved keeps working when the package changes. `scripts/release.py` sets the version.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACEHOLDER = "OWNER/gptlab"

# pyproject.toml comes last: if writing stops half-way, the old address still stands there, and a second run
# finishes the work.
FILES = (
    "_config.yml",
    "README.md",
    "CITATION.cff",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "book/*.md",
    "pyproject.toml",
)
NOTEBOOKS = "book/*.ipynb"

# Repositories of other projects that the course may link to, as regular expressions over "owner/name".
OTHERS = (
    r"(openai|karpathy|huggingface|pytorch|NVIDIA|mathjax|dequelabs|jupyter|executablebooks|Dao-AILab)/.+",
    r"(settings|features|apps|marketplace)/.+",  # GitHub's own pages
)

MARKER = "# Colab only:"
HEAD = f"""\
{MARKER} fetch the course's package. Where it is installed this cell does nothing.
import importlib.util

if importlib.util.find_spec("gptlab") is None:
"""
FETCH = '    %pip install -q "gptlab @ git+https://github.com/{name}@v{version}"'
NO_ADDRESS = """\
    raise ModuleNotFoundError(
        "gptlab is not installed, and this copy of the course has no repository address yet to fetch it "
        "from. In the course's folder run `make repository NAME=owner/repo`, or install the folder itself: "
        "`pip install -e .`"
    )"""

VERSION_RULE = re.compile(r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}")
OWNER_RULE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9]|[-_](?=[A-Za-z0-9])){0,38}")
NAME_RULE = re.compile(r"[A-Za-z0-9._-]{1,100}")

# A full stop that ends a sentence is no part of a name, and neither is ".git".
NAME = r"[\w.-]*?[\w-]"
REPOSITORY_MENTION = re.compile(
    r"(?<![\w.-])(?P<host>(?:github\.com|raw\.githubusercontent\.com|colab\.research\.google\.com/github)[/:])"
    rf"(?P<name>[\w-]+/{NAME})(?P<git>\.git)?(?![\w-]|\.\w)"
)
PAGES_MENTION = re.compile(r"https?://(?P<name>[\w-]+\.github\.io(?:/[\w.-]*[\w-])*)")


@dataclass(frozen=True)
class Mention:
    """One place that names a repository on GitHub or its pages, or a notebook's Colab cell."""

    path: str
    line: int
    text: str
    right: bool


def validate(name: str) -> str:
    """Return `name` if GitHub could hold a repository of that name, else raise ValueError."""
    owner, slash, repo = name.partition("/")
    remedy = "Give it as owner/repo, for example ada/gptlab: no https://, no .git, no spaces."
    if not slash or not owner or not repo:
        raise ValueError(f"{name!r} is not of the form owner/repo. {remedy}")
    if not OWNER_RULE.fullmatch(owner):
        raise ValueError(
            f"{owner!r} in {name!r} is no GitHub owner: up to 39 letters, digits, inner hyphens. {remedy}"
        )
    if not NAME_RULE.fullmatch(repo) or repo.endswith(".") or repo.lower().endswith(".git"):
        raise ValueError(
            f"{repo!r} in {name!r} is no repository name: letters, digits, '-', '_' and inner '.'. {remedy}"
        )
    if owner == "OWNER" and name != PLACEHOLDER:
        raise ValueError(f"OWNER means 'not set yet', and only as {PLACEHOLDER!r}; got {name!r}. {remedy}")
    return name


def stored_name(root: Path = ROOT) -> str:
    """owner/repo as pyproject.toml has it; `PLACEHOLDER` while there is none."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    url = project.get("urls", {}).get("Repository")
    if url is None:
        raise ValueError(
            f'pyproject.toml has no [project.urls] Repository. Add: Repository = "https://github.com/{PLACEHOLDER}"'
        )
    found = re.fullmatch(r"https://github\.com/([^/]+/[^/]+)", url)
    if found is None:
        raise ValueError(f"pyproject.toml: Repository is {url!r}. Write it as https://github.com/owner/repo")
    return validate(found[1])


def read(root: Path = ROOT) -> str | None:
    """owner/repo, or None while this copy of the course has no address."""
    name = stored_name(root)
    return None if name == PLACEHOLDER else name


def stored_version(root: Path = ROOT) -> str:
    """The version as pyproject.toml has it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    return validate_version(str(project.get("version", "")))


def validate_version(version: str) -> str:
    """Return `version` if it is of the form that releases have, else raise ValueError."""
    if not VERSION_RULE.fullmatch(version):
        raise ValueError(
            f"{version!r} is no version. Give three numbers, for example 0.2.0: no v, no suffix."
        )
    return version


def pages_url(name: str) -> str:
    """Where GitHub Pages serves a repository's site. Host names have no capitals; a path keeps them."""
    owner, repo = name.split("/")
    host = owner if name == PLACEHOLDER else owner.lower()
    return f"https://{host}.github.io" + ("" if repo.lower() == f"{owner.lower()}.github.io" else f"/{repo}")


def colab_cell(repository: str | None, version: str = "") -> str:
    """The first code cell of every notebook (tag `remove-cell`), with an address owner/repo or without.

    Args:
        repository: None while there is no address.
        version: the release to install; needed with an address.
    """
    if repository is None:
        return HEAD + NO_ADDRESS
    return HEAD + FETCH.format(name=validate(repository), version=validate_version(version))


def cell_of_the_course(root: Path = ROOT, *, name: str | None = None, version: str | None = None) -> str:
    """The Colab cell for the address and the version that pyproject.toml has, or for others."""
    name = stored_name(root) if name is None else name
    version = stored_version(root) if version is None else version
    return colab_cell(None if name == PLACEHOLDER else name, version)


def replace_address(text: str, old: str, new: str) -> str:
    """`text` with the address of repository `old`, and of its pages, turned into that of `new`."""

    def repository(found: re.Match[str]) -> str:
        return found["host"] + new + (found["git"] or "") if found["name"] == old else found[0]

    def pages(found: re.Match[str]) -> str:
        rest = below(found[0], pages_url(old))
        return found[0] if rest is None else pages_url(new) + rest

    return PAGES_MENTION.sub(pages, REPOSITORY_MENTION.sub(repository, text))


def below(url: str, base: str) -> str | None:
    """What follows `base` in `url`: "" for `base` itself, "/..." for a page under it, else None."""
    rest = url.removeprefix(base)
    return rest if url.startswith(base) and (not rest or rest.startswith("/")) else None


def colab_source(raw: str) -> tuple[int, int, str] | None:
    """Where the Colab cell's source stands in a notebook's JSON text (start, end), and the source itself."""
    decoder = json.JSONDecoder()
    # An unescaped "source": cannot stand inside a JSON string, so every match is a key.
    for key in re.finditer(r'"source":\s*', raw):
        value, end = decoder.raw_decode(raw, key.end())
        source = value if isinstance(value, str) else "".join(value)
        if source.startswith(MARKER):
            return key.end(), end, source
    return None


def set_colab_cell(raw: str, source: str) -> str:
    """The notebook's text with another Colab cell and every other character as it was."""
    found = colab_source(raw)
    if found is None or found[2] == source:
        return raw
    start, end, _ = found
    old = raw[start:end]
    if not old.startswith("["):
        return raw[:start] + json.dumps(source, ensure_ascii=False) + raw[end:]
    before = re.match(r"\[(\s*)", old)
    after = re.search(r"(\s*)\]$", old)
    assert before is not None  # a JSON list has both its brackets
    assert after is not None
    lines = [json.dumps(line, ensure_ascii=False) for line in source.splitlines(keepends=True)]
    separator = "," + (before[1] or " ")
    return raw[:start] + "[" + before[1] + separator.join(lines) + after[1] + "]" + raw[end:]


def read_exactly(path: Path) -> str:
    """The file's text with its line ends as they are."""
    return path.read_bytes().decode("utf-8")


def files(root: Path) -> list[Path]:
    """The text files that may carry the address, pyproject.toml last."""
    return [path for pattern in FILES for path in sorted(root.glob(pattern))]


def set_name(name: str, root: Path = ROOT) -> list[Path]:
    """Write the address everywhere; return the files that changed. Setting it again changes nothing."""
    validate(name)
    old = stored_name(root)
    changed = []
    cell = cell_of_the_course(root, name=name)
    for path in [*sorted(root.glob(NOTEBOOKS)), *files(root)]:
        before = read_exactly(path)
        if path.suffix == ".ipynb":
            after = set_colab_cell(before, cell)
        else:
            after = replace_address(replace_address(before, old, name), PLACEHOLDER, name)
        if after != before:
            path.write_bytes(after.encode("utf-8"))
            changed.append(path)
    return changed


def text_mentions(path: Path, root: Path, name: str) -> list[Mention]:
    """Every mention in one text file of a repository on GitHub or its pages, other projects' left out."""
    found = []
    where = path.relative_to(root).as_posix()
    for number, line in enumerate(read_exactly(path).splitlines(), start=1):
        for match in REPOSITORY_MENTION.finditer(line):
            if not any(re.fullmatch(other, match["name"], re.IGNORECASE) for other in OTHERS):
                found.append(Mention(where, number, match[0], match["name"] == name))
        for match in PAGES_MENTION.finditer(line):
            owner_and_repo = match["name"].replace(".github.io", "", 1)
            if not any(re.fullmatch(other, owner_and_repo, re.IGNORECASE) for other in OTHERS):
                found.append(Mention(where, number, match[0], below(match[0], pages_url(name)) is not None))
    return found


def mentions(root: Path = ROOT) -> list[Mention]:
    """Every mention in the files that `set_name` writes, and whether it agrees with pyproject.toml."""
    name = stored_name(root)
    found = [mention for path in files(root) for mention in text_mentions(path, root, name)]
    cell = cell_of_the_course(root)
    for path in sorted(root.glob(NOTEBOOKS)):
        raw = read_exactly(path)
        where = path.relative_to(root).as_posix()
        source = colab_source(raw)
        if source is None:
            found.append(Mention(where, 1, f"no cell that starts with {MARKER!r}", False))
        else:
            line = raw.count("\n", 0, source[0]) + 1
            found.append(Mention(where, line, "Colab cell", source[2] == cell))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print or set; 0 when every mention agrees with pyproject.toml."""
    parser = argparse.ArgumentParser(description="Print or set the address of the course's repository.")
    parser.add_argument("name", nargs="?", metavar="owner/repo", help="the address to set; without it, print")
    name = parser.parse_args(arguments).name
    try:
        if name is not None:
            for path in set_name(name):
                print(f"changed  {path.relative_to(ROOT).as_posix()}")
        current = read()
        print(f"https://github.com/{current}" if current else "not set yet (make repository NAME=owner/repo)")
        if current and name is not None:
            tag = f"v{stored_version()}"
            print(
                f"Colab opens and installs the tag {tag}: commit, then git tag {tag} and git push origin main {tag}"
            )
        found = mentions()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for mention in found:
        print(f"{'agrees ' if mention.right else 'DIFFERS'}  {mention.path}:{mention.line}  {mention.text}")
    return 0 if all(mention.right for mention in found) else 1


if __name__ == "__main__":
    sys.exit(main())
