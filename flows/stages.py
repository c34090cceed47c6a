"""The stages of a run, what each reads, and what each asks of the artifact store.

This is the only place that knows how recipe and stages are wired: the flows run by it, and plans
and status tables are derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flows.recipe import Recipe
from tasks.artifacts import Artifact
from tasks.curate import curate_request
from tasks.evaluate import evaluate_request
from tasks.export import export_request
from tasks.ingest import ingest_request
from tasks.report import report_request
from tasks.request import StageRequest
from tasks.tokenize import tokenize_request
from tasks.train import train_request

STAGE_INPUTS: dict[str, tuple[str, ...]] = {
    "ingest": (),
    "curate": ("ingest",),
    "tokenize": ("curate",),
    "train": ("tokenize",),
    "export": ("train", "tokenize"),
    "evaluate": ("export", "tokenize", "curate", "train"),
    "report": ("ingest", "curate", "tokenize", "train", "export", "evaluate"),
}
STAGES = tuple(STAGE_INPUTS)


def request_for(
    stage: str, recipe: Recipe, inputs: Mapping[str, Artifact], command: str, root: Path
) -> StageRequest:
    """What `stage` of `recipe` asks of the store, its inputs being at hand.

    Args:
        stage: one of STAGES.
        recipe: the whole recipe; a stage takes its own section.
        inputs: the artifacts that STAGE_INPUTS names for the stage.
        command: how a reader of the report runs this again.
        root: where the store is; holds the cache of input digests.
    """
    digest_cache = root / "digests.sqlite"
    seed = recipe.seed
    match stage:
        case "ingest":
            return ingest_request(recipe.sources, digest_cache)
        case "curate":
            return curate_request(recipe.curation, seed, inputs["ingest"])
        case "tokenize":
            return tokenize_request(recipe.tokenizer, seed, inputs["curate"], digest_cache)
        case "train":
            return train_request(recipe.training, seed, inputs["tokenize"])
        case "export":
            return export_request(inputs["train"], inputs["tokenize"])
        case "evaluate":
            return evaluate_request(
                recipe.evaluation,
                seed,
                exported=inputs["export"],
                tokenized=inputs["tokenize"],
                curated=inputs["curate"],
                trained=inputs["train"],
            )
        case "report":
            return report_request(recipe.name, recipe.to_yaml(), command, inputs)
    raise AssertionError(stage)
