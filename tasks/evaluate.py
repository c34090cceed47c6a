"""Stage `evaluate`: scores, baselines and sample continuations."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from evaluation.config import EvaluationConfig
from evaluation.task_files import write_tasks
from tasks.artifacts import Artifact, Stage
from tasks.request import Progress, StageRequest

STAGE = Stage("evaluate", module="evaluation.evaluate")


def check_evaluation(config: EvaluationConfig, seed: int, curated: Artifact) -> None:
    """See that the tasks can be made from what was held out.

    Raises:
        ValueError: there is too little text; says what to change.
    """
    with tempfile.TemporaryDirectory(prefix="mtnlg-tasks-") as folder:
        write_tasks(
            config.tasks,
            curated.folder,
            Path(folder) / "tasks",
            num_items=config.num_items,
            max_shots=max(config.num_shots),
            seed=seed,
        )


def evaluate_request(
    config: EvaluationConfig,
    seed: int,
    *,
    exported: Artifact,
    tokenized: Artifact,
    curated: Artifact,
    trained: Artifact,
) -> StageRequest:
    """Ask for the scores of `exported` on what `curated` held out."""

    def build(out: Path, progress: Progress) -> dict[str, Any]:
        from evaluation.evaluate import evaluate  # torch and lm-eval take seconds to import

        return evaluate(
            config,
            exported.folder,
            tokenized.folder,
            curated.folder,
            trained.folder,
            out,
            seed=seed,
            progress=progress,
        )

    return StageRequest(
        stage=STAGE,
        # How many prompts run at once changes no score.
        config={"evaluation": config.model_dump(mode="json", exclude={"batch_size"}), "seed": seed},
        inputs={
            "export": exported,
            "tokenize": tokenized,
            "curate": curated,
            "train": trained,
        },
        build=build,
    )
