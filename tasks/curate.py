"""Stage `curate`: clean, filter and deduplicate documents, and hold some out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_curation.config import CurationConfig
from data_curation.curate import curate
from infra.processes import worker_pool
from tasks.artifacts import Artifact, Stage
from tasks.request import Progress, StageRequest
from tasks.session import current_session

STAGE = Stage("curate", module="data_curation.curate")


def curate_request(config: CurationConfig, seed: int, ingested: Artifact) -> StageRequest:
    """Ask for the curated documents of `ingested`."""

    def build(out: Path, progress: Progress) -> dict[str, Any]:
        with worker_pool(current_session().num_workers) as executor:
            return curate(
                config, ingested.folder, out, seed=seed, executor=executor, progress=progress
            )

    return StageRequest(
        stage=STAGE,
        config={"curation": config.model_dump(mode="json"), "seed": seed},
        inputs={"ingest": ingested},
        build=build,
    )
