"""Checks that raise, asked for what they would say: a recipe's faults are told all at once."""

from __future__ import annotations

from collections.abc import Callable


def faults_of(check: Callable[[], object]) -> list[str]:
    """What `check` objects to: the text of the ValueError that it raises, or nothing."""
    try:
        check()
    except ValueError as error:
        return [str(error)]
    return []
