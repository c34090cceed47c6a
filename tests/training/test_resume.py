"""A killed run goes on to exactly the numbers of an unbroken one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_job import Run, read_logs, records, run_job, start_ranks

EXACT_FIELDS = ("step", "tokens", "loss", "learning_rate", "grad_norm", "sample_hash")


def kill_after_checkpoint(
    whole: Run, tokenized: Path, folder: Path, *, step: int, victim: str
) -> None:
    """Start the job of `whole` and kill -9 its launcher or a rank after a checkpoint."""
    ranks = start_ranks(whole.config, tokenized, folder / "out", folder)
    assert ranks.stdout is not None
    for line in ranks.stdout:
        if json.loads(line) == {"event": "checkpoint", "step": step}:
            break
    launcher = psutil.Process(ranks.pid)
    children = launcher.children(recursive=True)
    target = launcher if victim == "launcher" else children[-1]
    os.kill(target.pid, signal.SIGKILL)
    ranks.communicate(timeout=60)
    assert ranks.returncode != 0
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive, "ranks outlived their launcher"
    assert records(folder / "out" / "metrics.jsonl")[-1]["step"] < 20


def assert_same_run(resumed: Path, whole: Run) -> None:
    """The records, samples and weights of two outputs are equal, speeds apart."""
    found = records(resumed / "metrics.jsonl")
    for field in EXACT_FIELDS:
        assert [m[field] for m in found] == [m[field] for m in whole.metrics], field
    assert records(resumed / "validation.jsonl") == whole.validation
    for file in sorted((whole.out / "model").glob("*.safetensors")):
        assert (resumed / "model" / file.name).read_bytes() == file.read_bytes(), file.name
    seen = [np.load(out / "seen_samples.npy") for out in (resumed, whole.out)]
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize(
    ("layout", "precision", "victim"),
    [("2x2x2", "bf16", "rank"), ("1x1x2", "fp32", "launcher"), ("1x2x1", "fp32", "rank")],
)
def test_a_killed_run_ends_in_the_same_numbers(
    layout: str,
    precision: str,
    victim: str,
    run: Callable[..., Run],
    tokenized: Path,
    tmp_path: Path,
) -> None:
    whole = run(layout, precision=precision) if precision != "fp32" else run(layout)
    kill_after_checkpoint(whole, tokenized, tmp_path, step=8, victim=victim)
    events = run_job(whole.config, tokenized, tmp_path / "out", tmp_path)
    assert events[0]["event"] == "resumed"
    step = events[0]["step"]
    assert step in (8, 16)  # 16 if the run was that far before the kill landed
    assert_same_run(tmp_path / "out", whole)
    assert json.loads((tmp_path / "out" / "training.json").read_text())["resumed_from"] == [step]
    losses = EventAccumulator(str(tmp_path / "out" / "tensorboard")).Reload()
    assert [s.step for s in losses.Scalars("training/loss")] == [m["tokens"] for m in whole.metrics]


@pytest.fixture(scope="module")
def stopped(
    run: Callable[..., Run], tokenized: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The output of a run killed after its second checkpoint."""
    folder = tmp_path_factory.mktemp("stopped")
    kill_after_checkpoint(run("1x2x1"), tokenized, folder, step=16, victim="rank")
    return folder / "out"


@pytest.mark.parametrize("damage", ["flipped byte", "missing file", "no manifest"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    damage: str, stopped: Path, run: Callable[..., Run], tokenized: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(stopped, out)
    checkpoint = out / "checkpoint" / "step-00000016"
    file = checkpoint / "layer_02-model_00-model_states.pt"
    if damage == "flipped byte":
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "missing file":
        file.unlink()
    else:
        file = checkpoint / "manifest.json"
        file.unlink()
    whole = run("1x2x1")
    events = run_job(whole.config, tokenized, out, tmp_path)
    assert events[0] == {"event": "resumed", "step": 8}
    (line,) = [line for line in read_logs(tmp_path).splitlines() if "is damaged" in line]
    assert "step-00000016" in line and file.name in line
    assert_same_run(out, whole)


def test_half_a_checkpoint_is_never_taken(
    stopped: Path, run: Callable[..., Run], tokenized: Path, tmp_path: Path
) -> None:
    """A writer killed on the way leaves a partial folder; a killed record leaves half a line."""
    out = tmp_path / "out"
    shutil.copytree(stopped, out)
    (out / "checkpoint" / "step-00000016").rename(out / "checkpoint" / "step-00000016.partial")
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 17, "tok')
    whole = run("1x2x1")
    events = run_job(whole.config, tokenized, out, tmp_path)
    assert events[0] == {"event": "resumed", "step": 8}
    assert "is damaged" not in read_logs(tmp_path)
    assert_same_run(out, whole)


def test_a_finished_run_started_again_trains_nothing(
    run: Callable[..., Run], tokenized: Path, tmp_path: Path
) -> None:
    whole = run("1x1x1")
    shutil.copytree(whole.out, tmp_path / "out")
    events = run_job(whole.config, tokenized, tmp_path / "out", tmp_path)
    assert events == [{"event": "resumed", "step": 20}, {"event": "done"}]
    assert_same_run(tmp_path / "out", whole)


def test_a_checkpoint_of_another_job_is_refused_with_both_values(
    run: Callable[..., Run], tokenized: Path, tmp_path: Path
) -> None:
    whole = run("1x1x1")
    shutil.copytree(whole.out, tmp_path / "out")
    changed = whole.config.model_copy(update={"train_tokens": 4096})
    errors = _failure(start_ranks(changed, tokenized, tmp_path / "out", tmp_path), tmp_path)
    assert "training.train_tokens: 2560 there, 4096 here" in errors


def test_a_diverged_run_stops_and_says_what_to_change(
    run: Callable[..., Run], tokenized: Path, tmp_path: Path
) -> None:
    config = run("1x1x1").config
    optimizer = config.optimizer.model_copy(
        update={"learning_rate": 1e38, "min_learning_rate": 1e37}
    )
    changed = config.model_copy(update={"optimizer": optimizer})
    errors = _failure(start_ranks(changed, tokenized, tmp_path / "out", tmp_path), tmp_path)
    assert "5 steps in a row" in errors
    assert "Lower optimizer.learning_rate = 1e+38" in errors
    last = records(tmp_path / "out" / "metrics.jsonl")[-1]
    assert last["loss"] is None
    assert last["skipped_steps"] >= 4


def _failure(ranks: subprocess.Popen[str], scratch: Path) -> str:
    start = time.monotonic()
    _, errors = ranks.communicate(timeout=60)
    assert ranks.returncode != 0
    assert time.monotonic() - start < 60
    return errors + read_logs(scratch)
