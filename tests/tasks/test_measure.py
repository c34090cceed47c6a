from __future__ import annotations

import subprocess
import sys
import time

import psutil

from tasks.measure import measured

BURN = "import time\nwhile time.process_time() < {}: pass"


def test_time_of_this_process_and_its_children_adds_up():
    with measured() as cost:
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
        subprocess.run([sys.executable, "-c", BURN.format(0.3)], check=True)
    # The interpreter of the child takes some time to start.
    assert 0.48 < cost.cpu_seconds < 1.0
    assert cost.wall_seconds >= 0.4


def test_a_child_that_was_there_before_counts_from_the_start_of_the_work():
    with subprocess.Popen(
        [sys.executable, "-c", BURN.format(0.3) + "\nprint(1, flush=True); input()\n"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with measured() as living:
            pass
        with measured() as ending:
            child.communicate("\n")
    assert living.cpu_seconds < 0.25
    assert ending.cpu_seconds < 0.25


def test_the_peak_of_a_child_is_seen():
    # Samples are rarer the larger this process is, so the child stays until one has seen it.
    code = "block = bytearray(200_000_000); print(1, flush=True); input()"
    with measured() as cost:
        before = _own_pss()
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            deadline = time.monotonic() + 60
            while cost.peak_memory_bytes < before + 150_000_000 and time.monotonic() < deadline:
                time.sleep(0.05)
            child.communicate("\n")
    assert cost.peak_memory_bytes >= before + 150_000_000


def _own_pss() -> int:
    pss: int = psutil.Process().memory_full_info().pss
    return pss
