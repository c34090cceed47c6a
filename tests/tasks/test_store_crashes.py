"""Builders killed at every step of the store, and at random moments, as real processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.artifacts import Stage
from tasks.code_closure import SourceTree
from tasks.store import ArtifactStore

CURATE = Stage("curate", "data_curation.curate")
TRAIN = Stage("train", "training.worker", resumable=True)
STEPS = 2


def build(text: str) -> Callable[[Path], dict[str, int]]:
    """Write STEPS files, going on after those that are there."""

    def run(out: Path) -> dict[str, int]:
        for step in range(STEPS):
            if not (out / str(step)).exists():
                (out / "draft").write_text(text)
                (out / "draft").rename(out / str(step))
        (out / "draft").unlink(missing_ok=True)
        return {"steps": STEPS}

    return run


def run_and_die(store: ArtifactStore, stage: Stage, text: str, force: bool, at: int) -> bool:
    """Build in a child that is killed before its `at`-th operation on the store's folder.

    Returns:
        Whether it was killed; False when it ended before.
    """
    child = os.fork()
    if child == 0:
        left = at

        def die_in_time(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event in WATCHED and any(_within(argument, store.root) for argument in arguments):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(die_in_time)
            store.build(stage, {}, {}, build(text), force=force)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


WATCHED = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}


def _within(argument: object, root: Path) -> bool:
    return isinstance(argument, str | os.PathLike) and str(argument).startswith(str(root))


def contents(folder: Path) -> set[str]:
    return {(folder / str(step)).read_text() for step in range(STEPS)}


@pytest.mark.parametrize("stage", [CURATE, TRAIN], ids=["wiped", "resumable"])
def test_killed_before_any_operation_nothing_unfinished_is_taken_for_finished(
    tmp_path, sources, stage
):
    at, killed = 0, True
    while killed:
        at += 1
        store = ArtifactStore(tmp_path / str(at), sources)
        killed = run_and_die(store, stage, "text", force=False, at=at)
        for folder in store.folders():
            assert store.verify(folder) == []
        artifact = store.build(stage, {}, {}, build("text"))
        assert store.verify(artifact) == []
        assert contents(artifact.folder) == {"text"}
        assert [file.path for file in artifact.manifest.files] == ["0", "1"]
        assert list(artifact.folder.parent.iterdir()) == [artifact.folder]
    assert at > 25


def test_a_forced_build_killed_before_any_operation_leaves_the_old_or_the_new_one(
    tmp_path, sources
):
    at, killed, seen = 0, True, set()
    while killed:
        at += 1
        store = ArtifactStore(tmp_path / str(at), sources)
        store.build(CURATE, {}, {}, build("old"))
        killed = run_and_die(store, CURATE, "new", force=True, at=at)
        for folder in store.folders():
            assert store.verify(folder) == []
        # The old one, aside in the worst moment, is put back: nothing is built.
        artifact = store.build(CURATE, {}, {}, build("built again"))
        assert artifact.origin == "reused"
        (text,) = contents(artifact.folder)
        seen.add(text)
        last = store.build(CURATE, {}, {}, build("last"), force=True)
        assert contents(last.folder) == {"last"}
        assert list(last.folder.parent.iterdir()) == [last.folder]
    assert seen == {"old", "new"}
    assert at > 25


BUILDER = """
import sys, time
from pathlib import Path
from tasks.artifacts import Stage
from tasks.code_closure import SourceTree
from tasks.store import ArtifactStore
root, sources, log = map(Path, sys.argv[1:4])
pause_s = float(sys.argv[4])
store = ArtifactStore(root, SourceTree(sources))

def build(out):
    with log.open("a") as file:
        file.write("built\\n")
    for number in range(40):
        if not (out / str(number)).exists():
            (out / "draft").write_text(str(number) * 1000)
            (out / "draft").rename(out / str(number))
            time.sleep(pause_s)
    return {"files": 40}

stage = Stage("train", "training.worker", resumable=True)
print("ready", flush=True)
artifact = store.build(
    stage, {}, {}, build, on_wait=lambda holder: print("waits for", holder, flush=True)
)
print(artifact.origin, artifact.digest, flush=True)
"""


def start_builder(
    root: Path, source_root: Path, log: Path, pause_s: float = 0.005
) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", BUILDER, *map(str, (root, source_root, log, pause_s))]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_builders_killed_at_random_moments_end_in_the_unbroken_result(tmp_path, source_root):
    log = tmp_path / "log"
    with start_builder(tmp_path / "unbroken", source_root, log) as process:
        origin, digest = process.communicate()[0].split()
    assert origin == "built"
    store = ArtifactStore(tmp_path / "store", SourceTree(source_root))
    moments = random.Random(7)
    for _ in range(10):
        with start_builder(store.root, source_root, log) as process:
            time.sleep(moments.uniform(0, 0.12))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        for folder in store.folders():
            assert store.verify(folder) == []
    left = store.root.glob("artifacts/train/*.partial/*")
    expected_origin = "reused" if store.folders() else "resumed" if any(left) else "built"
    with start_builder(store.root, source_root, log) as process:
        origin, resumed_digest = process.communicate()[0].split()
    assert origin == expected_origin
    assert resumed_digest == digest
    (artifact,) = store.artifacts()
    assert store.verify(artifact) == []


def test_of_two_processes_one_builds_and_the_other_waits_and_reuses(tmp_path, source_root):
    log = tmp_path / "log"
    with (
        start_builder(tmp_path / "store", source_root, log) as first,
        start_builder(tmp_path / "store", source_root, log) as second,
    ):
        outputs = [first.communicate()[0], second.communicate()[0]]
    assert log.read_text() == "built\n"
    # Which one came first is the machine's choice, and so is whether the second had to wait.
    last_lines = sorted(output.splitlines()[-1].split() for output in outputs)
    assert [origin for origin, _ in last_lines] == ["built", "reused"]
    assert last_lines[0][1] == last_lines[1][1]


def test_a_waiter_whose_builder_is_killed_goes_on_from_its_folder(tmp_path, source_root):
    log = tmp_path / "log"
    with start_builder(tmp_path / "store", source_root, log, pause_s=0.03) as first:
        while not list((tmp_path / "store").glob("artifacts/train/*/0")):
            time.sleep(0.002)
        first.send_signal(signal.SIGSTOP)
        with start_builder(tmp_path / "store", source_root, log) as second:
            assert second.stdout is not None
            assert second.stdout.readline().startswith(f"waits for process {first.pid} on ")
            first.send_signal(signal.SIGKILL)
            assert second.communicate()[0].startswith("resumed ")
