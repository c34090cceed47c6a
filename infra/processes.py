"""Processes that end with the process that started them.

A run that is killed, even by SIGKILL, must leave nothing behind. On Linux the kernel does this:
each child asks for SIGKILL when its parent ends (PR_SET_PDEATHSIG). Elsewhere a thread of the
child watches for a new parent. Two traps are dealt with here:

- the signal is sent when the *thread* that made the child ends, so children must be started from a
  thread that lives as long as they should, in practice the main thread;
- a parent that ended before the child could ask is noticed by comparing parents afterwards.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

GUARDED_PROCESS = "MTNLG_GUARDED_PROCESS"
"""Environment variable: process id of the guarded command, for what it starts."""

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Make this process end, without notice, when its parent does.

    Args:
        parent: process id of the parent, where known beforehand; by default the present one.
    """
    parent = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def guarded_command(command: Sequence[str]) -> list[str]:
    """Wrap a command so that it ends with this process."""
    return [sys.executable, "-m", "infra.processes", str(os.getpid()), *command]


@contextmanager
def worker_pool(num_workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that end with this one.

    Workers are spawned, not forked: this process may run threads, whose locks a fork would copy.
    Each computes in one thread. An error in the body of the `with` statement ends them at once.

    Enter it, and submit to it, in a thread that lives as long as the pool: workers end with the
    thread that made them.
    """
    pool = ProcessPoolExecutor(
        num_workers,
        mp_context=get_context("spawn"),
        initializer=_start_worker,
        initargs=(os.getpid(),),
    )
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        # Killed before shutdown: that forgets the workers, and waits for what they are doing.
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(cancel_futures=True)
        raise


def end_processes(processes: Sequence[subprocess.Popen[bytes]], *, within_s: float) -> None:
    """Ask processes to end; kill those that are still there `within_s` seconds later."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + within_s
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start_worker(parent: int) -> None:
    die_with_parent(parent)
    # There is a worker a core; a library that starts a thread a core in each only slows them all.
    os.environ.update(OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1")
    # Ctrl-C reaches the whole terminal; the parent decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _execute_guarded(arguments: Sequence[str]) -> None:
    parent, *command = arguments
    die_with_parent(int(parent))
    if sys.platform != "linux":
        # The watching thread would not survive exec: stay, and end the command with us.
        sys.exit(subprocess.call(command))
    os.environ[GUARDED_PROCESS] = str(os.getpid())
    os.execvp(command[0], command)


if __name__ == "__main__":
    _execute_guarded(sys.argv[1:])
