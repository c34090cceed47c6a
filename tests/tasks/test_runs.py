from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.artifacts import Stage
from tasks.runs import RecordDamagedError, RunRecord, all_runs, find, latest
from tasks.store import ArtifactStore


def begin(root: Path, recipe: str = "quickstart") -> RunRecord:
    return RunRecord.create(root, recipe, {"seed": 1}, f"mtnlg run {recipe}")


def test_a_record_reads_back_what_became_of_each_stage(tmp_path, sources):
    def build(out: Path) -> dict[str, int]:
        (out / "a").write_text("a")
        return {"documents": 3}

    artifact = ArtifactStore(tmp_path, sources).build(
        Stage("train", "training.worker"), {}, {}, build
    )
    run = begin(tmp_path)
    run.stage_started("train")
    run.stage_finished(artifact, 1.25)
    run.stage_started("export")
    run.stage_failed("export", "no room")
    run.finish("failed", "no room")
    read = RunRecord.load(run.folder)
    assert read == run
    assert list(read.stages) == ["train", "export"]
    train = read.stages["train"]
    assert (train.state, train.seconds, train.figures) == ("built", 1.25, {"documents": 3})
    assert (train.key, read.artifact_folder("train")) == (artifact.key, artifact.folder)
    assert read.artifact_folder("export") is None
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    (folder,) = (moved / "artifacts" / "train").iterdir()
    assert RunRecord.load(moved / "runs" / run.run_id).artifact_folder("train") == folder
    assert (read.stages["export"].state, read.stages["export"].error) == ("failed", "no room")
    assert (read.state, read.command, read.pid) == ("failed", "mtnlg run quickstart", os.getpid())
    assert read.resolved == {"seed": 1}


def test_runs_have_names_of_their_own_and_are_found_by_id_recipe_or_latest(tmp_path):
    runs = [begin(tmp_path, recipe) for recipe in ("quickstart", "mine", "quickstart")]
    assert len({run.run_id for run in runs}) == 3
    assert [run.run_id for run in all_runs(tmp_path)] == [run.run_id for run in runs]
    assert latest(tmp_path).run_id == runs[2].run_id
    assert find(tmp_path, "quickstart").run_id == runs[2].run_id
    assert find(tmp_path, runs[0].run_id).run_id == runs[0].run_id
    assert find(tmp_path, "mine").run_id == runs[1].run_id


def test_a_misspelt_run_is_answered_with_the_nearest(tmp_path):
    run = begin(tmp_path)
    with pytest.raises(ValueError, match=f"'quikstart'; the nearest are .*{run.run_id}"):
        find(tmp_path, "quikstart")
    with pytest.raises(ValueError, match=f"'zzz'; the nearest are {run.run_id}"):
        find(tmp_path, "zzz")


def test_with_no_run_the_remedy_is_named(tmp_path):
    with pytest.raises(ValueError, match="mtnlg run quickstart"):
        latest(tmp_path)
    with pytest.raises(ValueError, match="there is none yet"):
        find(tmp_path, "quickstart")


def test_a_run_of_a_living_process_is_running(tmp_path):
    assert RunRecord.load(begin(tmp_path).folder).state == "running"


def test_a_killed_run_is_interrupted_not_running(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from tasks.runs import RunRecord\n"
        "run = RunRecord.create(Path(sys.argv[1]), 'quickstart', {}, 'mtnlg run quickstart')\n"
        "run.stage_started('train'); print(1, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert latest(tmp_path).state == "running"
        process.send_signal(signal.SIGKILL)
    read = latest(tmp_path)
    assert (read.state, read.stages["train"].state) == ("interrupted", "interrupted")


def test_another_process_of_the_same_number_is_not_the_run(tmp_path):
    run = begin(tmp_path)
    run.pid_started -= 3600
    run.save()
    assert RunRecord.load(run.folder).state == "interrupted"


def test_a_reader_never_meets_half_a_record(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tasks.runs import RunRecord\n"
        "run = RunRecord.create(Path(sys.argv[1]), 'a', {'x': 'y' * 20000}, 'c')\n"
        "print(1, flush=True)\n"
        "while True: run.stage_started('train')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            assert latest(tmp_path).recipe == "a"
        process.send_signal(signal.SIGKILL)
    assert latest(tmp_path).recipe == "a"


def test_a_broken_record_is_named(tmp_path):
    run = begin(tmp_path)
    (run.folder / "run.json").write_text('{"run_id": 3}')
    with pytest.raises(ValueError, match=r"run\.json is no record of a run"):
        latest(tmp_path)


def test_a_damaged_record_hides_no_other_run_that_is_named(tmp_path):
    whole, damaged = begin(tmp_path), begin(tmp_path)
    (damaged.folder / "run.json").write_bytes((whole.folder / "run.json").read_bytes()[:40])
    assert find(tmp_path, whole.run_id).run_id == whole.run_id
    for look in (lambda: latest(tmp_path), lambda: find(tmp_path, damaged.run_id)):
        with pytest.raises(RecordDamagedError, match=damaged.run_id):
            look()
