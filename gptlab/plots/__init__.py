"""Figures that more than one chapter uses. Data in, ``Axes`` out."""

from gptlab.plots.style import BLUE, GREEN, INK, ORANGE, PALE, course_style

__all__ = ["BLUE", "GREEN", "INK", "ORANGE", "PALE", "course_style"]
