"""Stage `ingest`: read the sources into documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_curation.config import Source
from data_curation.ingest import ingest
from data_curation.readers import input_files
from infra.processes import worker_pool
from tasks.artifacts import Stage
from tasks.content_digest import digest_files
from tasks.request import Progress, StageRequest
from tasks.session import current_session

STAGE = Stage("ingest", module="data_curation.ingest")


def ingest_request(sources: Sequence[Source], digest_cache: Path) -> StageRequest:
    """Ask for the documents of `sources`; the content of every input file is part of the key."""

    def build(out: Path, progress: Progress) -> dict[str, Any]:
        with worker_pool(current_session().num_workers) as executor:
            return ingest(sources, out, executor=executor, progress=progress)

    return StageRequest(
        stage=STAGE,
        config={"sources": [source.model_dump(mode="json") for source in sources]},
        raw_inputs={s.name: digest_files(input_files(s), digest_cache) for s in sources},
        build=build,
    )
