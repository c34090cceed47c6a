"""Where the words of a run go.

A run's own view has the terminal to itself. Everything else that is written to standard output or
error, by Prefect, by libraries, by worker processes, goes to one file. This is done below Python,
at the file descriptors, so that nothing slips past it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2


@contextmanager
def words_to_file(file: Path, *, quiet: bool) -> Iterator[Console]:
    """Send all output to `file`; yield a console that still writes to where it went before.

    Args:
        file: appended to.
        quiet: the console writes to standard error, and leaves standard output to its user.
    """
    before = {number: os.dup(number) for number in (_STANDARD_OUTPUT, _STANDARD_ERROR)}
    shown = before[_STANDARD_ERROR if quiet else _STANDARD_OUTPUT]
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        with open(shown, "w", encoding=encoding, errors=errors, closefd=False) as terminal:
            _point_at(dict.fromkeys(before, log))
            yield Console(file=terminal)
    finally:
        _point_at(before)
        for descriptor in (*before.values(), log):
            os.close(descriptor)


def _point_at(targets: dict[int, int]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    for number, target in targets.items():
        os.dup2(target, number)
