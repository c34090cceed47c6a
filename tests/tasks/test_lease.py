from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tasks.lease import Lease, LeaseLostError

HOLD = """
import os, sys, time
from pathlib import Path
from tasks.lease import Lease
lease = Lease.acquire(Path(sys.argv[1]), "key")
print(os.getpid(), flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def hold_elsewhere(folder: Path, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), how], stdout=subprocess.PIPE, text=True
    )


def test_a_killed_holder_frees_the_lease_and_a_waiter_was_told_who_it_was(tmp_path):
    with hold_elsewhere(tmp_path, "alone") as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == other.pid
        told: list[str] = []
        killer = threading.Timer(0.4, other.send_signal, [signal.SIGKILL])
        killer.start()
        started = time.monotonic()
        with Lease.acquire(tmp_path, "key", told.append):
            assert time.monotonic() - started > 0.2
        killer.join()
    assert len(told) == 1
    assert told[0].startswith(f"process {other.pid} on ")


def test_a_child_that_outlives_the_killed_holder_keeps_nothing(tmp_path):
    with hold_elsewhere(tmp_path, "fork") as other:
        assert other.stdout is not None
        other.stdout.readline()
        child = int(other.stdout.readline())
        try:
            other.send_signal(signal.SIGKILL)
            other.wait()
            os.kill(child, 0)
            started = time.monotonic()
            Lease.acquire(tmp_path, "key").release()
            assert time.monotonic() - started < 5
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_child_does_not_free_its_parents_lease(tmp_path):
    with Lease.acquire(tmp_path, "key") as lease:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        blocked = threading.Thread(target=lambda: Lease.acquire(tmp_path, "key").release())
        blocked.start()
        blocked.join(0.3)
        assert blocked.is_alive()
        with lease.fenced():
            pass
    blocked.join(5)
    assert not blocked.is_alive()


def test_threads_of_one_process_exclude_each_other(tmp_path):
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with Lease.acquire(tmp_path, "key"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_different_names_do_not_wait_for_each_other(tmp_path):
    with Lease.acquire(tmp_path, "one"), Lease.acquire(tmp_path, "two"):
        pass


def test_a_holder_whose_lock_folder_was_deleted_is_fenced_out(tmp_path):
    folder = tmp_path / "locks"
    lost = Lease.acquire(folder, "key")
    shutil.rmtree(folder)
    with pytest.raises(LeaseLostError, match="held by nobody"):
        lost.fenced().__enter__()
    with Lease.acquire(folder, "key") as taken:
        with pytest.raises(LeaseLostError, match=f"held by process {os.getpid()}"):
            lost.fenced().__enter__()
        with taken.fenced():
            pass
        lost.release()
        with taken.fenced():
            pass


def test_nobody_can_take_the_lease_inside_the_fenced_section(tmp_path):
    folder = tmp_path / "locks"
    with Lease.acquire(folder, "key") as holder:
        with holder.fenced():
            (folder / "key.lock").unlink()  # as if a network file system forgot the lock
            taker = threading.Thread(target=lambda: Lease.acquire(folder, "key").release())
            taker.start()
            taker.join(0.3)
            assert taker.is_alive()
            assert json.loads((folder / "key.lease").read_text())["token"] == holder.holder.token
        taker.join(5)
        with pytest.raises(LeaseLostError):
            holder.fenced().__enter__()
