"""Words and figures as a terminal can take them: in the room there is, and safe to show.

Key figures are shown whole or left out, never cut in the middle of a number. Text from the corpus
or a model is shown as it is: no markup, no control characters.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from evaluation.units import format_bytes, format_count, format_duration
from tasks.artifacts import Figures

ROOMY = 76
"""Columns from which tables spread out."""


def format_figures(figures: Figures) -> list[str]:
    """ "documents 53,704", "text 21.0 MB": the unit is read off the name."""
    shown = []
    for name, value in figures.items():
        words = name.replace("_", " ")
        if value is None:
            shown.append(f"{words} unknown")
        elif isinstance(value, str):
            shown.append(f"{words} {printable(value)}")
        elif "bytes" in name.split("_") and "_per_" not in name:
            shown.append(f"{words.replace('bytes', '').strip()} {format_bytes(value)}".strip())
        elif name.endswith("_seconds") or name == "seconds":
            shown.append(
                f"{words.removesuffix('seconds').strip()} {format_duration(value)}".strip()
            )
        elif name.endswith("_per_second"):
            shown.append(f"{format_count(value)} {words.removesuffix(' per second')}/s")
        elif isinstance(value, int):
            shown.append(f"{words.removeprefix('num ')} {_count(value)}")
        else:
            shown.append(f"{words} {value:.4g}")
    return shown


def _count(value: int) -> str:
    return f"{value:,}" if abs(value) < 1_000_000 else format_count(value)


def whole_parts(parts: Sequence[str], room: int, separator: str) -> str:
    """The longest beginning of `parts` that fits."""
    text = ""
    for part in parts:
        longer = f"{text}{separator}{part}" if text else part
        if cell_len(longer) > room:
            break
        text = longer
    return text


def fit(text: str, room: int, ascii_only: bool = False) -> str:
    """The text, cut to `room` columns and ended by dots where it is longer; nothing under 4."""
    if cell_len(text) <= room:
        return text
    dots = "..." if ascii_only else "…"
    return set_cell_size(text, max(0, room - len(dots))).rstrip() + dots if room > 3 else ""


def printable(text: str) -> str:
    """One line without control characters; a terminal would obey them."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
