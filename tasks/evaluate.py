"""Stage `evaluate`: scores, baselines and sample continuations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.config import EvaluationConfig
from tasks.artifacts import Artifact, Stage
from tasks.request import Progress, StageRequest

STAGE = Stage("evaluate", module="evaluation.evaluate")


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
        config={"evaluation": config.model_dump(mode="json"), "seed": seed},
        inputs={
            "export": exported,
            "tokenize": tokenized,
            "curate": curated,
            "train": trained,
        },
        build=build,
    )
