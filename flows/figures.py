"""Key figures of a stage as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def show_figures(figures: Mapping[str, Any]) -> str:
    """Name and number, a few in a row: `documents 21,133 · bytes 20,400,112`."""
    return " · ".join(f"{name.replace('_', ' ')} {_show(v)}" for name, v in figures.items())


def _show(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
