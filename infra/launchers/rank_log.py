"""What ranks write: rank 0's standard output is the job's, all else is one log file a rank."""

from __future__ import annotations

import os
import signal
from pathlib import Path

_SHOWN_LINES = 15


def log_file(folder: Path, rank: int) -> Path:
    """Where a rank writes."""
    return folder / f"rank-{rank:02}.log"


def redirect_output(folder: Path, rank: int) -> None:
    """Point this rank's standard error, and output except rank 0's, at its log."""
    log = os.open(log_file(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 2)
    if rank:
        os.dup2(log, 1)
    os.close(log)


def describe_failure(folder: Path, rank: int, exit_code: int) -> str:
    """Say which rank ended, how (negative codes are signals), and what it last wrote."""
    if exit_code < 0:
        how = f"was killed by {signal.Signals(-exit_code).name}"
    else:
        how = f"ended with exit code {exit_code}"
    log = log_file(folder, rank)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    last = text.splitlines()[-_SHOWN_LINES:]
    return "\n".join([f"rank {rank} {how}; its log is {log}", *("  " + line for line in last)])
