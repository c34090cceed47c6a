"""Nothing outlives the process that started it."""

import os
import signal
import time

import pytest

from infra.processes import worker_pool

POOL = """
import os, sys, time
from infra.processes import worker_pool

def main():
    with worker_pool(2) as pool:
        pids = set()
        while len(pids) < 2:
            pids |= set(pool.map(pid_of, range(4)))
        print(*pids, flush=True)
        list(pool.map(time.sleep, [60, 60]))

def pid_of(_):
    time.sleep(0.1)
    return os.getpid()

if __name__ == "__main__":
    main()
"""

GUARDED = """
import subprocess, sys, time
from infra.processes import guarded_command
child = subprocess.Popen(guarded_command([sys.executable, "-c", "import time; time.sleep(60)"]))
print(child.pid, flush=True)
time.sleep(60)
"""


def test_workers_of_a_killed_process_end(start, wait_until, gone):
    process = start(POOL)
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    assert not gone(workers[:1])
    process.send_signal(signal.SIGKILL)
    assert wait_until(lambda: gone(workers))


def test_a_guarded_command_ends_with_the_process_that_started_it(start, wait_until, gone):
    process = start(GUARDED)
    child = int(process.stdout.readline())
    assert not gone([child])
    process.send_signal(signal.SIGKILL)
    assert wait_until(lambda: gone([child]))


def test_an_error_in_the_block_ends_workers_that_are_busy(wait_until, gone):
    with pytest.raises(KeyError, match="stop"), worker_pool(1) as pool:
        workers = [pool.submit(os.getpid).result()]
        busy = pool.submit(time.sleep, 60)
        assert wait_until(busy.running)
        started = time.monotonic()
        raise KeyError("stop")
    assert gone(workers)
    assert time.monotonic() - started < 5


def test_a_worker_computes_in_one_thread():
    with worker_pool(1) as pool:
        assert pool.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
