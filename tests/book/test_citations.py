"""Every paper that a text names is in the bibliography, under its authors and its year, and can be found.

Read are the cells of the notebooks, with captions and alt texts, the pages, and the Python files. What the paper says
is for a person to check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from citation_anchors import key_of
from prose_numbers import ROOT, all_notebooks, book_files
from pybtex.database import BibliographyData, Entry, parse_file, parse_string

CODE = ("gptlab", "scripts", "benchmarks", "tests")

NAME = r"[^\W\d_a-z][^\W\d_]*[^\W\d_A-Z](?:[-'’][^\W\d_]+)*"
YEAR = r"(?:19|20)\d\d\b"
# Press and Wolf (2017); Sennrich, Haddow and Birch, 2016; Dao et al. 2022; Gage, 1994. One name and a year with only
# a space between them may be anything, "Since 2017", and counts where the name is an author's.
MENTION = re.compile(
    rf"\b(?P<names>{NAME}(?:(?:, {NAME})* and {NAME})?)"
    rf"(?P<others> et al\.)?(?P<between>,? \(?)(?P<year>{YEAR})"
)
LINK = re.compile(r"\[([^]]+)\]\((?:\.\./)*(?:book/)?bibliography\.md\b[^)]*\)")


def surnames(entry: Entry) -> list[str]:
    """As a text writes them, without LaTeX's braces and accents."""
    return [str(person.rich_last_names[-1]) for person in entry.persons["author"]]


def plain(text: str) -> str:
    """A text in one line, without the signs of comments."""
    return re.sub(r"\s+", " ", re.sub(r"\n\s*#+ ?", " ", text))


def cited(text: str) -> set[str]:
    """The keys of the links to the bibliography."""
    return {key for link in LINK.findall(plain(text)) if (key := key_of(link)) is not None}


def mention_problems(text: str, authors_of: dict[str, list[str]]) -> Iterator[str]:
    """What is wrong with the papers that a text names."""
    text = plain(text)
    first_authors = {authors[0] for authors in authors_of.values()}
    for found in MENTION.finditer(text):
        names = re.split(r", | and ", found["names"])
        loose = len(names) == 1 and not found["others"] and found["between"] == " "
        if loose and names[0] not in first_authors:
            continue
        key = key_of(found[0])
        if key not in authors_of:
            yield f"{found[0]}: references.bib has no entry with the key {key}"
            continue
        authors = authors_of[key]
        if found["others"] and len(authors) < 3:
            yield f"{found[0]}: et al. stands for at least two, but the authors are {authors}"
        if names != (authors[:1] if found["others"] else authors):
            yield f"{found[0]}: the authors are {authors}"
    for name in re.findall(rf"({NAME}) et al\.", text):
        if name not in first_authors:
            yield f"{name} et al.: no entry of references.bib begins with this name"
    for link in LINK.findall(text):
        if re.search(YEAR, link) and MENTION.match(link) is None:
            yield f"{link}: write it as Press and Wolf, 2017, or Vaswani et al. (2017)"


def entry_problems(key: str, entry: Entry) -> Iterator[str]:
    """What is missing in an entry, or contradicts itself."""
    fields = {name.lower(): value for name, value in entry.fields.items()}
    if not entry.persons.get("author"):
        yield f"{key}: no author"
        return
    missing = [name for name in ("title", "year") if not fields.get(name)]
    yield from (f"{key}: no {name}" for name in missing)
    if missing:
        return
    if key != key_of(f"{surnames(entry)[0]} {fields['year']}"):
        yield f"{key}: the first author is {surnames(entry)[0]}, and the year {fields['year']}"
    if not fields.keys() & {"eprint", "doi", "url"}:
        yield f"{key}: nothing says where to find it: give eprint, doi or url"
    number = re.fullmatch(r"(\d\d)(0[1-9]|1[012])\.\d{4,5}", fields.get("eprint", ""))
    if "eprint" in fields and (number is None or fields.get("archiveprefix") != "arXiv"):
        yield f"{key}: {fields['eprint']} is no arXiv number, or archiveprefix is not arXiv"
    if number and not 0 <= int(fields["year"]) - 2000 - int(number[1]) <= 2:
        yield f"{key}: arXiv:{number[0]} is of 20{number[1]}, the paper of {fields['year']}"
    if "doi" in fields and not re.fullmatch(r"10\.\d{4,5}/\S+", fields["doi"]):
        yield f"{key}: {fields['doi']} is no DOI"
    if "url" in fields and not re.fullmatch(r"https://\S+", fields["url"]):
        yield f"{key}: {fields['url']} is no https address"
    if "pages" in fields and not re.fullmatch(r"\d+--\d+", fields["pages"]):
        yield f"{key}: pages {fields['pages']}: write them as 157--163"


def book_texts() -> dict[str, str]:
    """What readers of the book see, by file."""
    texts = {path.name: path.read_text("utf-8") for path in book_files(ROOT, ".md")}
    for name, nb in all_notebooks(ROOT).items():
        figures = [cell.metadata.get("mystnb", {}) for cell in nb.cells]
        captions = [figure.get("figure", {}).get("caption", "") for figure in figures]
        alts = [figure.get("image", {}).get("alt", "") for figure in figures]
        texts[name] = "\n\n".join([cell.source for cell in nb.cells] + captions + alts)
    return texts


def code_texts() -> dict[str, str]:
    """The Python files and what stands beside them, by file. This one's faults are meant."""
    paths = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    paths += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths if path != Path(__file__)}


@pytest.fixture(scope="module")
def references() -> BibliographyData:
    return parse_file(ROOT / "book" / "references.bib")


@pytest.fixture(scope="module")
def authors_of(references: BibliographyData) -> dict[str, list[str]]:
    return {key: surnames(entry) for key, entry in references.entries.items()}


def test_every_paper_that_the_book_names_is_in_the_bibliography(authors_of: dict[str, list[str]]) -> None:
    texts = book_texts()
    assert len(texts) > 15
    assert [(name, p) for name, text in texts.items() for p in mention_problems(text, authors_of)] == []


def test_every_paper_that_the_code_names_is_in_the_bibliography(authors_of: dict[str, list[str]]) -> None:
    texts = code_texts()
    assert "Vaswani et al. 2017" in plain(texts["gptlab/attention.py"])
    assert [(name, p) for name, text in texts.items() for p in mention_problems(text, authors_of)] == []


def test_every_entry_is_cited_in_the_book(references: BibliographyData) -> None:
    linked = set().union(*map(cited, book_texts().values()))
    assert sorted(references.entries.keys() - linked) == []


def test_every_entry_is_complete_and_can_be_found(references: BibliographyData) -> None:
    assert [p for key, entry in references.entries.items() for p in entry_problems(key, entry)] == []


def test_no_paper_stands_in_the_bibliography_twice(references: BibliographyData) -> None:
    for name in ("title", "eprint", "doi", "url"):
        values = [entry.fields[name].lower() for entry in references.entries.values() if name in entry.fields]
        assert len(values) == len(set(values)), name


# ----------------------------------------------------------------------------------------------------
# The checks can fail

GOOD_AUTHORS = {"wolf2017": ["Wolf", "Brüll"], "re2020": ["Ré", "Du", "Eck"], "dao2023": ["Dao"]}

GOOD = """
@misc{wolf2017,
  author = {Wolf, Ada and Br{\\"u}ll, Bo},
  title  = {{A Title}},
  year   = {2017},
  eprint = {1608.05859},
  archiveprefix = {arXiv},
}
@article{re2020,
  author = {R{\\'e}, Cy and Du, Di and Eck, Ed},
  title  = {{Another}},
  year   = {2020},
  doi    = {10.18653/v1/E17-2025},
  pages  = {1--12},
}
@misc{dao2023,
  author = {Dao, Tri},
  title  = {{A Third}},
  year   = {2023},
  url    = {https://example.org/third},
}
"""


@pytest.mark.parametrize(
    "text",
    [
        "[Wolf and Brüll (2017)](bibliography.md), section 2; (Wolf and Brüll, 2017, table 3)",
        '"""Source: Ré\n    et al. 2020, section 3.1, and Ré, Du and Eck 2020."""',
        "# after Wolf and\n# Brüll 2017",
        "[Dao, 2023](bibliography.md#dao2023), Dao (2023), Dao 2023 and the [papers](bibliography.md)",
        "Since 2017, in May 2019 or on June 12, 2017, with Python 3.11; Ré et al. found it.",
    ],
)
def test_a_good_mention_passes(text: str) -> None:
    assert list(mention_problems(text, GOOD_AUTHORS)) == []


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("[Wolf and Brüll (2018)](bibliography.md)", "no entry with the key wolf2018"),
        ("Source: Nobody et al. 2020, section 3", "no entry with the key nobody2020"),
        ("as Nobody et al. say", "begins with this name"),
        ("Wolf et al., 2017", "at least two"),
        ("Wolf and Miller (2017)", "the authors are ['Wolf', 'Brüll']"),
        ("Ré and Du (2020)", "the authors are ['Ré', 'Du', 'Eck']"),
        ("Ré (2020)", "the authors are"),
        ("Dao 2022", "no entry with the key dao2022"),
        ("Nobody (1999)", "no entry with the key nobody1999"),
        ("[the paper of 2017](bibliography.md)", "write it as"),
    ],
)
def test_a_wrong_mention_is_reported(text: str, reported: str) -> None:
    problems = list(mention_problems(text, GOOD_AUTHORS))
    assert any(reported in problem for problem in problems), problems


def test_authors_are_read_as_a_text_writes_them() -> None:
    assert {
        key: surnames(entry) for key, entry in parse_string(GOOD, "bibtex").entries.items()
    } == GOOD_AUTHORS


def test_only_a_link_counts_as_a_citation() -> None:
    assert cited("[Dao, 2023](bibliography.md) and Wolf and Brüll (2017), the [papers](bibliography.md)") == {
        "dao2023"
    }


@pytest.mark.parametrize(
    ("good", "wrong", "reported"),
    [
        ("", "", None),
        ("  author = {Dao, Tri},\n", "", "dao2023: no author"),
        ("  title  = {{A Third}},\n", "", "dao2023: no title"),
        ("  year   = {2023},\n", "", "dao2023: no year"),
        ("  url    = {https://example.org/third},\n", "", "dao2023: nothing says where"),
        ("https://example.org/third", "example.org/third", "no https address"),
        ("year   = {2017}", "year   = {2018}", "wolf2017: the first author is Wolf, and the year 2018"),
        ("wolf2017", "brull2017", "brull2017: the first author is Wolf"),
        ("1608.05859", "1608/05859", "no arXiv number"),
        ("1608.05859", "1908.05859", "is of 2019, the paper of 2017"),
        ("  archiveprefix = {arXiv},\n", "", "archiveprefix is not arXiv"),
        ("10.18653/v1/E17-2025", "doi.org/10.18653", "is no DOI"),
        ("1--12", "1-12", "write them as"),
    ],
)
def test_a_faulty_entry_is_reported(good: str, wrong: str, reported: str | None) -> None:
    entries = parse_string(GOOD.replace(good, wrong) if good else GOOD, "bibtex").entries
    problems = [p for key, entry in entries.items() for p in entry_problems(key, entry)]
    assert problems == [] if reported is None else any(reported in problem for problem in problems), problems
