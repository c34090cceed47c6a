"""Ranks are started, followed and ended as one: fork after import, and torchrun."""

import signal
import time

import pytest

from infra.launchers.local import JobFailed, run_ranks

MODULE = """
import fcntl, os, signal, sys, time

def main(arguments):
    rank = int(os.environ["RANK"])
    print(f"rank {rank} of {os.environ['WORLD_SIZE']} says {arguments[0]}", flush=True)
    print(f"rank {rank} complains", file=sys.stderr, flush=True)
    match arguments:
        case ["raise"] if rank == 1:
            raise ValueError("no more of this")
        case ["kill"] if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    if arguments[0].startswith("cascade"):
        cascade(rank, *arguments)
    if arguments[0] in ("raise", "kill", "sleep"):
        time.sleep(60)

def cascade(rank, how, file):
    # Rank 2 fails, and the kernel lets go of its lock: as with a lost connection, peers notice.
    lock = open(file, "a")
    if rank == 2:
        fcntl.flock(lock, fcntl.LOCK_EX)
        open(file + ".held", "w").close()
        time.sleep(0.3)
        if how == "cascade-kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("the cause")
    while not os.path.exists(file + ".held"):
        time.sleep(0.01)
    fcntl.flock(lock, fcntl.LOCK_SH)
    if rank == 1:
        os.abort()
    raise ConnectionError("an effect")
"""

JOB = """
import sys
from pathlib import Path
from infra.launchers.local import run_ranks

run_ranks("ranked_module", ["sleep"], num_ranks=3, launcher={launcher!r},
          log_folder=Path({logs!r}), on_line=lambda line: print(line, flush=True))
"""

LAUNCHERS = ["fork", "torchrun"]


@pytest.fixture
def job(tmp_path, monkeypatch):
    (tmp_path / "ranked_module.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(argument: str, launcher: str, *more: str) -> list[str]:
        lines = []
        run_ranks(
            "ranked_module",
            [argument, *more],
            num_ranks=3,
            launcher=launcher,
            log_folder=tmp_path / "logs",
            on_line=lines.append,
        )
        return lines

    return run


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_only_rank_0_is_heard_and_the_others_are_in_their_logs(job, tmp_path, launcher):
    assert job("hello", launcher) == ["rank 0 of 3 says hello"]
    logs = [(tmp_path / "logs" / f"rank-0{rank}.log").read_text() for rank in range(3)]
    assert logs[0] == "rank 0 complains\n"
    assert "rank 2 of 3 says hello" in logs[2]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_that_raises_ends_the_job_and_is_named_with_its_last_words(job, launcher):
    started = time.monotonic()
    with pytest.raises(JobFailed, match=r"rank 1 ended with exit code 1(.|\n)*no more of this"):
        job("raise", launcher)
    assert time.monotonic() - started < 45


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_that_is_killed_is_named_with_its_signal(job, launcher):
    with pytest.raises(JobFailed, match="rank 1 was killed by SIGKILL"):
        job("kill", launcher)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cascade-kill", "rank 2 was killed by SIGKILL"),
        ("cascade-raise", r"rank 2 ended with exit code 1(.|\n)*the cause"),
    ],
)
def test_the_rank_that_failed_first_is_named_not_those_it_took_along(job, tmp_path, how, message):
    for attempt in range(5):
        with pytest.raises(JobFailed, match=message):
            job(how, "fork", str(tmp_path / f"failed-{attempt}"))


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("victim", ["caller", "launcher"])
def test_kill_9_anywhere_leaves_no_rank_behind(
    start, wait_until, gone, descendants, tmp_path, job, launcher, victim
):
    process = start(JOB.format(launcher=launcher, logs=str(tmp_path / "logs")))
    assert "says sleep" in process.stdout.readline()
    assert wait_until(lambda: len(descendants(process.pid)) >= 4)
    below = descendants(process.pid)
    (process if victim == "caller" else _first_child(process.pid)).send_signal(signal.SIGKILL)
    assert wait_until(lambda: gone(below), 10)


def test_torchrun_killed_while_its_ranks_start_leaves_none_behind(
    start, wait_until, gone, descendants, tmp_path, job
):
    process = start(JOB.format(launcher="torchrun", logs=str(tmp_path / "logs")))
    assert wait_until(lambda: len(descendants(process.pid)) == 4, 60)
    below = descendants(process.pid)
    _first_child(process.pid).kill()
    assert wait_until(lambda: gone(below), 10)


def test_sigterm_to_the_fork_launcher_ends_its_ranks(start, wait_until, gone, tmp_path, job):
    process = start(JOB.format(launcher="fork", logs=str(tmp_path / "logs")))
    assert "says sleep" in process.stdout.readline()
    launcher = _first_child(process.pid)
    ranks = [child.pid for child in launcher.children()]
    launcher.terminate()
    assert wait_until(lambda: gone(ranks), 10)


def test_a_module_that_cannot_be_imported_is_told(tmp_path):
    with pytest.raises(JobFailed, match="nosuchmodule"):
        run_ranks(
            "nosuchmodule",
            [],
            num_ranks=2,
            launcher="fork",
            log_folder=tmp_path,
            on_line=print,
        )


def _first_child(pid: int):
    import psutil

    return psutil.Process(pid).children()[0]
