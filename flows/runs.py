"""Which run does a user name?"""

from __future__ import annotations

from pathlib import Path

from flows.errors import WrongUseError
from tasks.runs import RecordDamagedError, RunRecord, find, latest


def run_named(root: Path, name: str | None) -> RunRecord:
    """The run of that name, the latest of the recipe of that name, or the latest of all.

    Raises:
        WrongUseError: there is none; the nearest names are given.
        RecordDamagedError: its record, or one that may be later, cannot be read.
    """
    try:
        return find(root, name) if name else latest(root)
    except RecordDamagedError:
        raise
    except ValueError as error:
        raise WrongUseError(str(error)) from None
