"""Stage `ingest`: read the sources into documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
            figures = ingest(sources, out, executor=executor, progress=progress)
        changed = [
            name for name, digest in _digests(sources, digest_cache) if digests[name] != digest
        ]
        if changed:
            raise ValueError(
                f"files of {', '.join(changed)} changed while they were read, so the documents "
                "are not those of any one moment. Run again once they rest."
            )
        return figures

    digests = dict(_digests(sources, digest_cache))
    return StageRequest(
        stage=STAGE,
        config={"sources": [source.model_dump(mode="json") for source in sources]},
        raw_inputs=digests,
        build=build,
    )


def _digests(sources: Sequence[Source], digest_cache: Path) -> Iterator[tuple[str, str]]:
    for source in sources:
        yield source.name, digest_files(input_files(source), digest_cache)
