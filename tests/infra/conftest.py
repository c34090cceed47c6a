"""Real processes, found again by process id: nothing here looks at names."""

import subprocess
import sys
import time

import psutil
import pytest


@pytest.fixture
def start(tmp_path):
    """Start a Python program; it and all that it leaves end with the test."""
    started = []

    def run(program: str, **options) -> subprocess.Popen:
        file = tmp_path / f"program{len(started)}.py"
        file.write_text(program)
        process = subprocess.Popen(
            [sys.executable, str(file)], stdout=subprocess.PIPE, text=True, **options
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def wait_until():
    """Wait for something to become true; False if it does not in time."""

    def wait(condition, seconds: float = 5.0) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.05)
        return False

    return wait


@pytest.fixture
def gone():
    """Whether all these processes have ended."""

    def all_gone(pids: list[int]) -> bool:
        return not any(
            psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
            for pid in pids
        )

    return all_gone


@pytest.fixture
def descendants():
    """Process ids of all that a process started, and that they started."""

    def below(pid: int) -> list[int]:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]

    return below
