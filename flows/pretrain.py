"""The Prefect flows: one for each stage, and the whole chain.

A stage's flow receives the artifacts that it reads, so Prefect draws the arrows between stages.
All heavy work is inside one task a stage.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from prefect import flow

from flows.recipe import Recipe
from flows.stages import STAGE_INPUTS, request_for
from tasks.artifacts import Artifact
from tasks.build_artifact import build_artifact
from tasks.evaluate import check_evaluation


@flow(name="stage", flow_run_name="{stage}", persist_result=False)
def run_stage(
    stage: str, recipe: Recipe, inputs: dict[str, Artifact], command: str, root: Path
) -> Artifact:
    """One stage, from the artifacts it reads to the one it writes."""
    request = request_for(stage, recipe, inputs, command, root)
    # The task ends in a state of its own making (Reused, Resumed), which Prefect hands back as is.
    state = build_artifact(request, return_state=True)
    return cast(Artifact, state.result())


STAGE_FLOWS = {stage: run_stage.with_options(name=stage) for stage in STAGE_INPUTS}


@flow(name="pretrain", flow_run_name="pretrain {recipe.name}", persist_result=False)
def pretrain(recipe: Recipe, command: str, root: Path) -> dict[str, Artifact]:
    """Raw text in, evaluated language model out.

    Returns:
        The artifact of each stage, by name, in order.
    """
    artifacts: dict[str, Artifact] = {}
    for stage, names in STAGE_INPUTS.items():
        inputs = {name: artifacts[name] for name in names}
        if stage == "train":
            # Hours of training must not end in a corpus that is too small to be scored.
            check_evaluation(recipe.evaluation, recipe.seed, artifacts["curate"])
        artifacts[stage] = STAGE_FLOWS[stage](stage, recipe, inputs, command, root)
    return artifacts
