"""Stage `train`: run the ranks of the training job and follow them.

The ranks are processes of their own, outside Prefect's: a killed build keeps its folder, and the
next one goes on from the last checkpoint in it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from evaluation.units import format_count
from infra.launchers.local import run_ranks
from tasks.artifacts import Artifact, Stage
from tasks.request import Progress, StageRequest
from tasks.session import current_session
from training.config import TrainingConfig

STAGE = Stage("train", module="training.worker", resumable=True)


def train_request(config: TrainingConfig, seed: int, tokenized: Artifact) -> StageRequest:
    """Ask for the model trained on `tokenized`."""

    def build(out: Path, progress: Progress) -> dict[str, Any]:
        session = current_session()
        job = {
            "config": config.model_dump(mode="json"),
            "seed": seed,
            "tokenized": str(tokenized.folder.resolve()),
            "out": str(out.resolve()),
        }
        with tempfile.TemporaryDirectory(prefix="mtnlg-train-") as scratch:
            job_file = Path(scratch) / "job.json"
            job_file.write_text(json.dumps(job), encoding="utf-8")
            progress(0, config.num_steps, "starting ranks")
            run_ranks(
                "training.worker",
                [str(job_file)],
                num_ranks=config.layout.num_ranks,
                launcher=session.launcher,
                log_folder=session.log_folder / "train",
                on_line=lambda line: _show(line, progress),
            )
        summary = json.loads((out / "training.json").read_text(encoding="utf-8"))
        names = ("num_parameters", "num_tokens", "final_validation_loss", "tokens_per_second")
        return {name: summary[name] for name in names}

    return StageRequest(
        stage=STAGE,
        config={"training": config.model_dump(mode="json"), "seed": seed},
        inputs={"tokenize": tokenized},
        build=build,
    )


def _show(line: str, progress: Progress) -> None:
    """Pass one of rank 0's lines on to the person who watches."""
    event = json.loads(line)
    if event["event"] == "progress":
        note = f"loss {event['loss']:.3f}, {format_count(event['tokens_per_second'])} tokens/s"
        progress(event["step"], event["num_steps"], note)
    elif event["event"] == "resumed":
        progress(event["step"], None, f"resumed at step {event['step']}")
