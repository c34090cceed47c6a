"""Run a job's ranks on this machine and follow them.

Rank 0's standard output comes back line by line; what else the ranks say is in one log a rank.
The ranks end with this process, however it ends.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from infra.launchers.rank_log import describe_failure
from infra.processes import end_processes, guarded_command

Launcher: TypeAlias = Literal["fork", "torchrun"]
"""How ranks are started: fork after import, for CPUs, or torchrun."""

GRACE_S = 25.0
"""How long a launcher may take to end its ranks before it is killed itself.

Longer than the launchers' own grace (`fork.GRACE_S`), so that they get to kill a rank that hangs.
"""


class JobFailed(RuntimeError):  # noqa: N818  (a state, not a mistake of the program)
    """The ranks did not all end well."""


def run_ranks(
    module: str,
    arguments: Sequence[str],
    *,
    num_ranks: int,
    launcher: Launcher,
    log_folder: Path,
    on_line: Callable[[str], None],
) -> None:
    """Run `module.main(arguments)` on each rank; return when all have ended well.

    Args:
        module: what each rank runs.
        arguments: passed to it.
        num_ranks: how many processes.
        launcher: fork after import, for CPUs, or torchrun.
        log_folder: where each rank's log goes.
        on_line: called with each line that rank 0 prints.

    Raises:
        JobFailed: a rank ended badly; says which, why, and what it last wrote.
    """
    log_folder.mkdir(parents=True, exist_ok=True)
    if launcher == "fork":
        command = _fork_command(module, arguments, num_ranks, log_folder)
    else:
        command = _torchrun_command(module, arguments, num_ranks, log_folder)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            guarded_command(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"},
            # Ctrl-C is for us alone: we end the ranks in order.
            process_group=0,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                on_line(line.decode("utf-8", errors="replace").rstrip("\n"))
            code = process.wait()
        finally:
            end_processes([process], within_s=GRACE_S)
        if code != 0:
            errors.seek(0)
            said = errors.read().decode("utf-8", errors="replace").strip()
            raise JobFailed(_explain(said, launcher, code, log_folder))


def _fork_command(
    module: str, arguments: Sequence[str], num_ranks: int, log_folder: Path
) -> list[str]:
    launcher = [sys.executable, "-m", "infra.launchers.fork"]
    return [
        *launcher,
        *("--num-ranks", str(num_ranks), "--log-folder", str(log_folder)),
        module,
        *arguments,
    ]


def _torchrun_command(
    module: str, arguments: Sequence[str], num_ranks: int, log_folder: Path
) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--standalone", "--nproc-per-node", str(num_ranks), "--no-python"),
        # By default ranks meet at this host's name, which not every network can resolve.
        *("--local-addr", "127.0.0.1"),
        *(sys.executable, "-m", "infra.launchers.torchrun_rank"),
        *(str(log_folder), module, *arguments),
    ]


def _explain(said: str, launcher: str, code: int, log_folder: Path) -> str:
    """The launcher's own words; for torchrun's page of them, the rank that failed first."""
    first = re.search(r"Root Cause.*?rank\s*: (\d+).*?exitcode\s*: (-?\d+)", said, re.DOTALL)
    if first:
        return describe_failure(log_folder, int(first[1]), int(first[2]))
    return said or f"the {launcher} launcher ended with exit code {code} and said nothing"
