"""The whole chain for real: a shrunken quickstart, in three dimensions, through the command line.

The tests share one workspace and run in order, as a user's day would go.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]
STAGES = ["ingest", "curate", "tokenize", "train", "export", "evaluate", "report"]
RECIPE = """
name: tiny
sources:
- {name: python, reader: installed_documentation, packages: [stdlib]}
- {name: notes, reader: text, path: notes}
curation:
  length: {min_characters: 100}
  held_out_fraction: 0.15
tokenizer: {vocab_size: 1024}
training:
  model: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, max_positions: 128}
  layout: {tensor_parallel: 2, pipeline_parallel: 2, data_parallel: 2}
  sequence_length: 128
  micro_batch: 2
  global_batch: 8
  train_tokens: 60K
  optimizer: {learning_rate: 3e-3, min_learning_rate: 3e-4, warmup_tokens: 10K}
  precision: fp32
  checkpoint_interval_tokens: 10K
  validation_interval_tokens: 20K
  validation_tokens: 4K
evaluation: {num_shots: [0, 1], num_items: 40}
"""


class Workspace:
    """A folder with a recipe in it, and the command to run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "DO_NOT_TRACK": "1", "COLUMNS": "80"}
        self.environment.pop("PREFECT_API_URL", None)

    def start(self, *arguments: str, project: Path = PROJECT) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *arguments],
            cwd=self.folder,
            env={**self.environment, "PYTHONPATH": str(project)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def mtnlg(self, *arguments: str, code: int = 0, project: Path = PROJECT) -> str:
        process = self.start(*arguments, project=project)
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in err
        return out if code == 0 else err

    def run(self, *arguments: str, root: str = "data") -> dict:
        return json.loads(self.mtnlg("run", "tiny.yaml", "--root", root, "--json", *arguments))

    def outlook(self, *arguments: str, project: Path = PROJECT) -> dict[str, str]:
        planned = json.loads(
            self.mtnlg(
                *("run", "tiny.yaml", "--root", "data", "--dry-run", "--json", *arguments),
                project=project,
            )
        )
        return {entry["stage"]: entry["outlook"] for entry in planned}

    def artifact(self, stage: str, root: str = "data") -> Path:
        (manifest,) = (self.folder / root / "artifacts" / stage).glob("*/manifest.json")
        return manifest.parent

    def digest(self, stage: str, root: str) -> str:
        manifest = (self.artifact(stage, root) / "manifest.json").read_text()
        return json.loads(manifest)["digest"]

    def losses(self, root: str) -> list[tuple]:
        lines = (self.artifact("train", root) / "metrics.jsonl").read_text().splitlines()
        return [(row["step"], row["loss"], row["sample_hash"]) for row in map(json.loads, lines)]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "tiny.yaml").write_text(RECIPE)
    (folder / "notes").mkdir()
    for number in range(12):
        words = " ".join(f"note {number} says that item {n * n} follows {n}" for n in range(60))
        (folder / "notes" / f"note{number}.txt").write_text(words + ".\n")
    return Workspace(folder)


@pytest.fixture(scope="module")
def first(workspace):
    return workspace.run()


def origins(result: dict) -> dict[str, str]:
    return {stage: entry["origin"] for stage, entry in result["stages"].items()}


def wait_for_step(workspace: Workspace, root: str, step: int, process: subprocess.Popen) -> None:
    """Wait until training under `root` has written a checkpoint and passed `step`."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        for metrics in (workspace.folder / root / "artifacts" / "train").glob("*/metrics.jsonl"):
            checkpoints = list(metrics.parent.glob("checkpoint/latest*"))
            if checkpoints and len(metrics.read_text().splitlines()) > step:
                return
        time.sleep(0.05)
    raise AssertionError("training did not get that far")


def leftovers(processes: list[psutil.Process]) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(processes, timeout=15)
    return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_text_goes_in_and_an_evaluated_model_comes_out(workspace, first):
    assert origins(first) == dict.fromkeys(STAGES, "built")
    assert Path(workspace.folder / first["report"]).read_text().startswith("<!doctype html>")
    assert first["summary"]
    losses = workspace.losses("data")
    assert len(losses) == 59  # 60,000 tokens in steps of 8 x 128, the last one whole
    assert losses[-1][1] < losses[0][1] - 1


def test_a_second_run_reuses_everything(workspace, first):
    started = time.monotonic()
    again = workspace.run()
    assert origins(again) == dict.fromkeys(STAGES, "reused")
    assert time.monotonic() - started < 60


def test_prefect_knows_flows_stages_and_what_was_reused(workspace, first):
    database = sqlite3.connect(workspace.folder / "data" / "prefect" / "prefect.db")
    runs = database.execute(
        "SELECT flow.name, flow_run.name, flow_run.state_type FROM flow_run "
        "JOIN flow ON flow.id = flow_run.flow_id"
    ).fetchall()
    assert {name for name, _, _ in runs} == {"pretrain", *STAGES}
    assert ("pretrain", "pretrain tiny", "COMPLETED") in runs
    tasks = database.execute("SELECT state_name FROM task_run WHERE name LIKE 'build-%'")
    states = [name for (name,) in tasks]
    assert states.count("Completed") == 7
    assert states.count("Reused") == 7


def test_other_shots_touch_only_evaluation_and_report(workspace, first):
    outlook = workspace.outlook("-o", "evaluation.num_shots=[0,2]")
    assert outlook == dict.fromkeys(STAGES[:5], "reuse") | {
        "evaluate": "build",
        "report": "unknown",
    }


def test_edited_dedup_code_rebuilds_curation(workspace, first, tmp_path):
    copy = tmp_path / "project"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns(".*", "mtnlg-data", "tests"))
    dedup = copy / "data_curation" / "near_duplicates.py"
    dedup.write_text(dedup.read_text() + "\nTHE_CODE_IS_NOW = 'another'\n")
    outlook = workspace.outlook(project=copy)
    assert outlook["ingest"] == "reuse"
    assert outlook["curate"] == "build"
    dedup.write_text(dedup.read_text().replace("THE_CODE_IS_NOW = 'another'", "# A comment."))
    assert set(workspace.outlook(project=copy).values()) == {"reuse"}


def test_one_byte_of_an_input_rebuilds_what_depends_on_it(workspace, first):
    note = workspace.folder / "notes" / "note3.txt"
    text, status = note.read_text(), note.stat()
    note.write_text(text.replace("item", "Item", 1))
    os.utime(note, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert note.stat().st_size == status.st_size
    assert workspace.outlook()["ingest"] == "build"
    note.write_text(text)
    assert set(workspace.outlook().values()) == {"reuse"}


def test_from_and_force_choose_what_is_built_anew(workspace, first):
    assert workspace.outlook("--from", "export")["train"] == "reuse"
    assert workspace.outlook("--from", "export")["export"] == "build"
    forced = workspace.run("--force", "report")
    assert origins(forced) == dict.fromkeys(STAGES, "reused") | {"report": "built"}


def test_status_report_and_generate_show_the_run(workspace, first):
    status = json.loads(workspace.mtnlg("status", first["run"], "--root", "data", "--json"))
    assert [stage["status"] for stage in status["stages"]] == ["built"] * 7
    assert "train" in workspace.mtnlg("status", "--root", "data")
    summary = json.loads(workspace.mtnlg("report", "tiny", "--root", "data", "--json"))
    # What each stage took, and whether it was reused, is that of the run that made the report.
    assert summary.pop("stages") and first["summary"].pop("stages")
    assert summary == first["summary"]
    shown = workspace.mtnlg("report", "--root", "data")
    assert "unigram" in shown and "report.html" in shown
    arguments = ("generate", "--root", "data", "--prompt", "Return the", "--seed", "7", "--json")
    once, twice = (json.loads(workspace.mtnlg(*arguments)) for _ in range(2))
    assert once == twice
    assert once[0]["prompt"] == "Return the" and once[0]["continuation"]


def test_a_flipped_byte_is_found_and_refused_by_name(workspace, first):
    assert all(
        not e["faults"] for e in json.loads(workspace.mtnlg("verify", "--root", "data", "--json"))
    )
    shard = workspace.artifact("tokenize") / "shards" / "train-00000.bin"
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    status = shard.stat()
    shard.write_bytes(content)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    process = workspace.start("verify", "--root", "data")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "train-00000.bin" in out
    message = workspace.mtnlg("run", "tiny.yaml", "--root", "data", "--from", "train", code=1)
    assert "train-00000.bin" in message and "--force tokenize" in message
    content[1000] ^= 1
    shard.write_bytes(content)
    assert origins(workspace.run()) == dict.fromkeys(STAGES, "reused")


def test_killed_flow_and_rank_resume_to_the_numbers_of_an_unbroken_run(workspace, first):
    """Also shows that two runs from scratch give the same documents, shards and losses."""
    flow = workspace.start("run", "tiny.yaml", "--root", "broken")
    wait_for_step(workspace, "broken", 12, flow)
    below = psutil.Process(flow.pid).children(recursive=True)
    assert len(below) > 8
    flow.send_signal(signal.SIGKILL)
    flow.communicate()
    assert not leftovers(below)

    flow = workspace.start("run", "tiny.yaml", "--root", "broken")
    wait_for_step(workspace, "broken", 30, flow)
    below = psutil.Process(flow.pid).children(recursive=True)
    ranks = [p for p in below if not p.children() and "infra.launchers.fork" in p.cmdline()]
    assert len(ranks) == 8
    ranks[5].kill()
    _, message = flow.communicate(timeout=60)
    assert flow.returncode == 1
    assert "was killed by SIGKILL" in message and "rank" in message
    assert not leftovers(below)

    result = workspace.run(root="broken")
    assert origins(result)["tokenize"] == "reused"
    assert origins(result)["train"] == "resumed"
    assert workspace.losses("broken") == workspace.losses("data")
    for stage in ("ingest", "curate", "tokenize"):
        assert workspace.digest(stage, "broken") == workspace.digest(stage, "data")


def test_sigterm_ends_the_run_in_order_and_is_recorded(workspace, first):
    flow = workspace.start("run", "tiny.yaml", "--root", "data", "--from", "train")
    deadline = time.monotonic() + 60
    while len(psutil.Process(flow.pid).children(recursive=True)) < 9:
        assert time.monotonic() < deadline and flow.poll() is None
        time.sleep(0.05)
    below = psutil.Process(flow.pid).children(recursive=True)
    flow.terminate()
    flow.communicate(timeout=60)
    assert flow.returncode == 143
    assert not leftovers(below)
    status = json.loads(workspace.mtnlg("status", "--root", "data", "--json"))
    assert status["state"] == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("run", "nosuch"), "quickstart"),
        (("run", "tiny.yaml", "--from", "trian"), "'trian' is no stage"),
        (("status", "nosuchrun"), "nosuchrun"),
        (("verify", "nosuchthing"), "nosuchthing"),
        (("generate",), "--prompt"),
        (("generate", "nosuchmodel", "--prompt", "a"), "nosuchmodel"),
        (("run",), "Missing argument"),
        (("runn",), "No such command"),
        (("run", "tiny.yaml", "-o", "training.model.hiden_size=3"), "hidden_size"),
    ],
)
def test_wrong_use_is_told_and_exits_with_2(workspace, first, arguments, part):
    assert part in workspace.mtnlg(*arguments, code=2)
