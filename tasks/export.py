"""Stage `export`: the trained model as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.artifacts import Artifact, Stage
from tasks.request import Progress, StageRequest

STAGE = Stage("export", module="training.export")


def export_request(trained: Artifact, tokenized: Artifact) -> StageRequest:
    """Ask for the Hugging Face folder of `trained`."""

    def build(out: Path, progress: Progress) -> dict[str, Any]:
        from training.export import export  # torch takes seconds to import

        progress(0, None, "merging shards")
        return export(trained.folder, tokenized.folder, out)

    return StageRequest(
        stage=STAGE,
        config={},
        inputs={"train": trained, "tokenize": tokenized},
        build=build,
    )
