"""Stage `tokenize`: train or load the tokenizer, and write Megatron shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_curation.bpe import tokenizer_files
from data_curation.config import TokenizerConfig
from data_curation.tokenize import tokenize
from infra.processes import worker_pool
from tasks.artifacts import Artifact, Stage
from tasks.content_digest import digest_files
from tasks.request import Progress, StageRequest
from tasks.session import current_session

STAGE = Stage("tokenize", module="data_curation.tokenize")


def tokenize_request(
    config: TokenizerConfig, seed: int, curated: Artifact, digest_cache: Path
) -> StageRequest:
    """Ask for the shards of `curated`; a tokenizer that is loaded enters the key by content."""

    def build(out: Path, progress: Progress) -> dict[str, Any]:
        with worker_pool(current_session().num_workers) as executor:
            return tokenize(
                config, curated.folder, out, seed=seed, executor=executor, progress=progress
            )

    loaded = tokenizer_files(config)
    return StageRequest(
        stage=STAGE,
        config={"tokenizer": config.model_dump(mode="json"), "seed": seed},
        inputs={"curate": curated},
        raw_inputs={"tokenizer": digest_files(loaded, digest_cache)} if loaded else {},
        build=build,
    )
