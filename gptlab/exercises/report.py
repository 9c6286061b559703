"""What the learner gets to see: a card in a notebook, plain text in a terminal."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from typing import Literal

from gptlab.exercises.exercise import Diagnosis

Status = Literal["passed", "incorrect", "error", "not_attempted"]

HEADLINES = {
    "passed": ("✓", "passed", "#1a7f37"),
    "incorrect": ("✗", "not yet", "#b35900"),
    "error": ("!", "it raises an error", "#b42318"),
    "not_attempted": ("○", "not attempted", "#57606a"),
}


@dataclass(frozen=True)
class Report:
    """The result of a check.

    Attributes:
        exercise: the name of the exercise.
        status: ``"passed"``, ``"incorrect"``, ``"error"`` or ``"not_attempted"``.
        right: what is right already.
        diagnosis: the recognised mistake, or None.
        fact: without a diagnosis, one fact about the answer.
        example: a call that shows it.
        line: with an error, the learner's own line that raised it.
        remark: something about the check itself, such as a progress file that cannot be written.
    """

    exercise: str
    status: Status
    right: str = ""
    diagnosis: Diagnosis | None = None
    fact: str = ""
    example: str = ""
    line: str = ""
    remark: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of each line of the report, the headline aside."""
        found = self.diagnosis
        rows = [
            ("right so far" if self.status != "passed" else "right", self.right),
            ("recognised", found.message if found else ""),
            ("what we see", self.fact),
            ("your line", self.line),
            ("for example", found.evidence if found else self.example),
            ("or, the same", ", ".join(found.also_possible) if found else ""),
            ("next", self._next()),
            ("note", self.remark),
        ]
        return [(label, text) for label, text in rows if text]

    def _next(self) -> str:
        if self.status == "passed":
            return ""
        if self.status == "not_attempted":
            return f"replace the ... above and run the cell again; gptlab.hint({self.exercise!r}) helps"
        return f"gptlab.hint({self.exercise!r})"

    def __str__(self) -> str:
        sign, words, _ = HEADLINES[self.status]
        lines = [f"{sign} {self.exercise}: {words}"]
        for label, text in self.rows():
            lines += textwrap.wrap(text, 78, initial_indent=f"  {label}: ", subsequent_indent="    ")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        sign, words, colour = HEADLINES[self.status]
        rows = "".join(
            f'<div style="margin-top:.35em"><span style="opacity:.75">{html.escape(label)}:</span> '
            f"{html.escape(text)}</div>"
            for label, text in self.rows()
        )
        return (
            f'<div style="border:1px solid {colour};border-left-width:.4em;border-radius:.3em;'
            f'padding:.6em .9em;margin:.4em 0;max-width:46em;line-height:1.45">'
            f"<div><strong>{sign} {html.escape(self.exercise)}</strong>: {words}</div>{rows}</div>"
        )
