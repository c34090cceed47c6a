"""What a run would do, or has done, without doing anything.

A stage can only be judged once the artifacts it reads exist, since their content is part of its
key; what follows a stage that must be built is therefore "unknown", not "build".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table

from flows.recipe import Recipe
from flows.stages import STAGE_INPUTS, request_for
from tasks.artifacts import Artifact
from tasks.store import FOLDER_DIGITS, ArtifactStore

Outlook = Literal["reuse", "build", "resume", "unknown"]


@dataclass(frozen=True)
class PlannedStage:
    """A stage as the next run would meet it."""

    stage: str
    outlook: Outlook
    key: str | None
    artifact: Artifact | None


def plan(
    recipe: Recipe, store: ArtifactStore, command: str, forced_stages: Collection[str] = ()
) -> list[PlannedStage]:
    """Say of each stage whether a run of `recipe` would reuse, resume or build it."""
    planned: list[PlannedStage] = []
    artifacts: dict[str, Artifact] = {}
    for stage, names in STAGE_INPUTS.items():
        if not all(name in artifacts for name in names):
            planned.append(PlannedStage(stage, "unknown", None, None))
            continue
        inputs = {name: artifacts[name] for name in names}
        request = request_for(stage, recipe, inputs, command, store.root)
        key = store.key(
            request.stage, dict(request.config), dict(request.inputs), dict(request.raw_inputs)
        )
        # A forced stage is not looked at: it may be forced since what is there is damaged.
        found = None if stage in forced_stages else store.find(stage, key)
        if found is not None:
            artifacts[stage] = found
            planned.append(PlannedStage(stage, "reuse", key, found))
        else:
            resumes = stage not in forced_stages and store.has_partial(request.stage, key)
            planned.append(PlannedStage(stage, "resume" if resumes else "build", key, None))
    return planned


def print_plan(recipe: Recipe, planned: list[PlannedStage]) -> None:
    """Show what a run would do, one line a stage."""
    console = Console()
    console.print(f"[bold]{recipe.name}[/]  {recipe.description}")
    table = Table(box=None, pad_edge=False)
    for column in ("stage", "would be", "key"):
        table.add_column(column)
    words = {
        "reuse": "[blue]reused[/]",
        "build": "[green]built[/]",
        "resume": "[green]resumed[/]",
        "unknown": "[dim]known once what it reads is built[/]",
    }
    for entry in planned:
        table.add_row(entry.stage, words[entry.outlook], (entry.key or "")[:FOLDER_DIGITS])
    console.print(table)
