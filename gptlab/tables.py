"""Tables of a notebook: real ones on the page, in Colab and on GitHub, and lines of text in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Table:
    """Rows under a header; the last value of a cell shows it.

    Integers get commas between their thousands. A column of numbers, in which every cell that is not empty
    begins with a digit or a sign, stands to the right. Text is Markdown: ``code`` between backticks, maths between
    dollars.

    >>> Table("part | parameters", [("wte", 38_597_376), ("wpe", 786_432)])
    part  parameters
    wte   38,597,376
    wpe      786,432
    """

    def __init__(self, header: str, rows: Iterable[Sequence[object]]) -> None:
        """Take the titles of the columns, with a bar between them, and the rows.

        Raises:
            ValueError: a row has more or fewer cells than the header.
        """
        self.header = [title.strip() for title in header.split("|")]
        self.rows = [[_text(value) for value in row] for row in rows]
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"{row} has {len(row)} cells, the header {len(self.header)}: {self.header}")
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.header)
        filled = [[cell for cell in column if cell] for column in columns]
        self.right = [bool(column) and all(map(_is_number, column)) for column in filled]

    def _repr_markdown_(self) -> str:
        rule = ["---:" if right else "---" for right in self.right]
        cells = [[cell.replace("|", r"\|") for cell in row] for row in (self.header, *self.rows)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:]))

    def __repr__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, self.right, strict=True)
            ).rstrip()
            for line in lines
        )


def _text(value: object) -> str:
    """A cell: integers with commas, True and False as yes and no, all else as print would."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_number(cell: str) -> bool:
    return cell.lstrip("+-−")[:1].isdigit()
