"""Numbers as people read them: one rule for each unit, so that no figure is shown two ways."""

from __future__ import annotations

_DECIMAL = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def format_count(number: float) -> str:
    """Three digits and a scale: 1_093_632 -> "1.09 M"; below 10,000 to the unit: "5,932"."""
    if abs(number) < 9_999.5:
        return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.3g}"
    for letter, scale in _DECIMAL:
        if abs(number) >= 0.9995 * scale:  # rounds up to it
            return f"{_three_digits(number / scale)} {letter}"
    raise AssertionError(number)


def format_bytes(number: float) -> str:
    """Decimal multiples: 21_040_000 -> "21.0 MB"."""
    for letter, scale in _DECIMAL:
        if abs(number) >= 0.9995 * scale:  # rounds up to it
            return f"{_three_digits(number / scale)} {letter}B"
    return f"{number:.0f} B"


def format_duration(seconds: float) -> str:
    """Two units at most: 0.4 -> "0.4 s", 250 -> "4 min 10 s", 7_380 -> "2 h 03 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_clock(seconds: float) -> str:
    """A running clock: "0:07", "12:30", "1:02:30"."""
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def format_percent(share: float, digits: int = 1) -> str:
    """A share of one as a percentage: 0.173 -> "17.3 %"."""
    return f"{100 * share:.{digits}f} %"


def join_words(words: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def _three_digits(number: float) -> str:
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f}"
