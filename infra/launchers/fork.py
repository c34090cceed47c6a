"""Start ranks on this machine by forking a process that has imported everything already.

    python -m infra.launchers.fork --num-ranks 8 --log-folder LOGS MODULE [ARGUMENTS...]

Importing torch, DeepSpeed and megatron-core takes seconds, on two cores half a minute for eight
ranks. Forking after one import takes that once. It is for CPUs only: a process that has touched
CUDA must not be forked, so GPUs are hidden from the ranks.

Rank 0 keeps this process's standard output; everything else goes to one log file a rank. The
first rank that fails ends all: this process then exits with 1 and says which rank, why, and what
it last wrote. If this process ends, by whatever signal, so do all ranks.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from types import FrameType, ModuleType

from infra.launchers.rank_log import describe_failure, redirect_output
from infra.processes import die_with_parent

GRACE_S = 20.0
"""How long ranks may take to end after SIGTERM before they are killed."""

SETTLE_S = 0.2
"""How long to wait after a first failure for others, to tell the cause from what it caused."""


_ABORTED = -signal.SIGABRT
_RANK_BYTES = 4


def main(arguments: list[str]) -> int:
    """Run a job; return its exit code."""
    num_ranks, log_folder, module_name, module_arguments = _parse(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    log_folder.mkdir(parents=True, exist_ok=True)
    module = importlib.import_module(module_name)
    port = _free_port()
    raised, raise_here = os.pipe()
    os.set_blocking(raised, False)
    # A collection in a rank would write to every object, and so copy the pages that ranks share.
    gc.collect()
    gc.freeze()
    ranks: dict[int, int] = {}
    for rank in range(num_ranks):
        parent = os.getpid()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            die_with_parent(parent)
            _run_rank(module, module_arguments, rank, num_ranks, port, log_folder, raise_here)
        ranks[pid] = rank
    return _Supervisor(ranks, log_folder, raised).wait()


def _run_rank(
    module: ModuleType,
    arguments: list[str],
    rank: int,
    num_ranks: int,
    port: int,
    log_folder: Path,
    raised: int,
) -> None:
    """Be one rank; never returns. A rank that raises first writes its number to `raised`."""
    code = 1
    try:
        redirect_output(log_folder, rank)
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(num_ranks),
            LOCAL_WORLD_SIZE=str(num_ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
        module.main(arguments)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code:
            os.write(raised, rank.to_bytes(_RANK_BYTES, "big"))
    except BaseException:
        os.write(raised, rank.to_bytes(_RANK_BYTES, "big"))
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without the interpreter's shutdown: libraries loaded before the fork may hang in it.
        os._exit(code)


class _Supervisor:
    """Waits for ranks; the first failure, or a signal to stop, ends them all.

    A rank that fails makes its peers fail within milliseconds, and the kernel does not say who was
    first. So failures are gathered for a moment: a rank that was struck by a signal is the cause,
    else the one that raised first, as told by the order in which ranks wrote to a pipe.
    """

    def __init__(self, ranks: dict[int, int], log_folder: Path, raised: int) -> None:
        self._running = ranks
        self._log_folder = log_folder
        self._raised = raised
        self._failed: dict[int, int] = {}
        self._stopped_by: int | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def wait(self) -> int:
        while self._running and self._stopped_by is None:
            self._reap()
            if self._failed:
                time.sleep(SETTLE_S)
                self._reap()
                rank = self._first_to_fail()
                code = self._failed.get(rank, 1)
                self._end_all(signal.SIGKILL)
                print(describe_failure(self._log_folder, rank, code), file=sys.stderr)
                return 1
            time.sleep(0.05)
        if self._stopped_by is not None:
            self._end_all(signal.SIGTERM)
            return 128 + self._stopped_by
        return 0

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._stopped_by = number

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            rank, code = self._running.pop(pid), os.waitstatus_to_exitcode(status)
            if code != 0:
                self._failed[rank] = code

    def _first_to_fail(self) -> int:
        # A library aborts a rank whose peers are gone: that is an effect, like an exception.
        struck = [rank for rank, code in self._failed.items() if code < 0 and code != _ABORTED]
        try:
            written = os.read(self._raised, _RANK_BYTES)
        except BlockingIOError:
            written = b""
        raised = [int.from_bytes(written, "big")] if written else []
        return [*struck, *raised, *self._failed][0]

    def _end_all(self, number: signal.Signals) -> None:
        deadline = time.monotonic() + GRACE_S
        for pid in self._running:
            os.kill(pid, number)
        while self._running:
            self._reap()
            if time.monotonic() > deadline:
                deadline += GRACE_S
                for pid in self._running:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _parse(arguments: list[str]) -> tuple[int, Path, str, list[str]]:
    match arguments:
        case ["--num-ranks", number, "--log-folder", folder, module, *rest] if number.isdecimal():
            return int(number), Path(folder), module, rest
    print(__doc__, file=sys.stderr)
    sys.exit(2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
