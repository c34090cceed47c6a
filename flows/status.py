"""`mtnlg status`: what each stage of a run is now, next to what it was when the run ended.

A stage is *built* if its artifact is there and would be reused today, *stale* if recipe, code or
inputs have changed since, *missing* if it was never built or its artifact is gone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.plan import PlannedStage, plan
from flows.recipe import Recipe
from flows.stages import STAGES
from flows.terminal_text import format_figures
from tasks.runs import RunRecord, StageRecord
from tasks.store import FOLDER_DIGITS, ArtifactStore

_STYLES = {"built": "green", "stale": "yellow", "running": "cyan", "failed": "red"}


def status_of(record: RunRecord, store: ArtifactStore) -> dict[str, Any]:
    """Judge each stage of a run by the code, recipe and inputs of today."""
    recipe = Recipe.model_validate(record.resolved)
    note = None
    planned: dict[str, PlannedStage] = {}
    try:
        planned = {p.stage: p for p in plan(recipe, store, record.command)}
    except ValueError as error:  # An input that is gone, a damaged artifact: the run still was.
        note = str(error)
    return {
        "run": record.run_id,
        "state": record.state,
        "command": record.command,
        "started": record.started,
        "finished": record.finished,
        "error": record.error,
        "note": note,
        "stages": [_stage(record, name, planned.get(name)) for name in STAGES],
    }


def print_status(status: dict[str, Any]) -> None:
    """Show a run as a table."""
    console = Console()
    console.print(f"[bold]{status['run']}[/]  {status['state']}  {status['command']}")
    table = Table(box=None, pad_edge=False)
    for column in ("stage", "now", "key", "time"):
        table.add_column(column, justify="right" if column == "time" else "left")
    table.add_column("key figures", overflow="fold")
    for stage in status["stages"]:
        style = _STYLES.get(stage["status"], "dim")
        seconds = "" if stage["seconds"] is None else f"{stage['seconds']:.1f} s"
        what = stage["error"] or " · ".join(format_figures(stage["figures"]))
        key = (stage["key"] or "")[:FOLDER_DIGITS]
        table.add_row(stage["stage"], f"[{style}]{stage['status']}[/]", key, seconds, what)
    console.print(table)
    for text in filter(None, (status["error"], status["note"])):
        console.print(text, style="yellow", markup=False, soft_wrap=True)


def _stage(record: RunRecord, name: str, planned: PlannedStage | None) -> dict[str, Any]:
    recorded, folder = record.stages.get(name), record.artifact_folder(name)
    return {
        "stage": name,
        "status": _judge(recorded, folder, planned),
        "key": recorded.key if recorded else None,
        "folder": str(folder) if folder else None,
        "seconds": recorded.seconds if recorded else None,
        "figures": recorded.figures if recorded else {},
        "error": recorded.error if recorded else None,
    }


def _judge(recorded: StageRecord | None, folder: Path | None, planned: PlannedStage | None) -> str:
    if recorded is None:
        return "missing"
    if recorded.state in ("running", "failed", "interrupted"):
        return recorded.state
    if folder is None or not folder.is_dir():
        return "missing"
    unchanged = planned is not None and planned.artifact and planned.key == recorded.key
    return "built" if unchanged else "stale"
