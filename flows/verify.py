"""`mtnlg verify`: are finished artifacts still what they were when they were published?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from evaluation.units import format_bytes
from flows.errors import WrongUseError
from tasks.store import ArtifactStore

MIN_KEY_DIGITS = 4
"""Fewer digits name a key by accident."""


def verify_artifacts(store: ArtifactStore, name: str | None) -> list[dict[str, Any]]:
    """Read every file of the chosen artifacts again.

    Args:
        store: where to look.
        name: a stage, a folder or the beginning of a key; None for all.

    Returns:
        For each artifact: stage, key's beginning, folder, bytes, and faults as text.

    Raises:
        WrongUseError: nothing goes by that name.
    """
    folders = store.folders()
    chosen = [folder for folder in folders if name is None or _named(folder, name)]
    if name is not None and not chosen:
        known = ", ".join(f"{folder.parent.name} {folder.name}" for folder in folders)
        raise WrongUseError(
            f"no artifact in {store.root} is called {name!r}; known: {known or 'none at all'}"
        )
    return [
        {
            "stage": folder.parent.name,
            "key": folder.name,
            "folder": str(folder),
            "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
            "faults": [str(fault) for fault in store.verify(folder)],
        }
        for folder in chosen
    ]


def print_verification(checked: list[dict[str, Any]]) -> None:
    """Show one line an artifact, and the faults below it."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "stage", "key"):
        table.add_column(column)
    table.add_column("size", justify="right")
    for entry in checked:
        mark = "[red]✗[/]" if entry["faults"] else "[green]✓[/]"
        table.add_row(mark, entry["stage"], entry["key"], format_bytes(entry["bytes"]))
    console = Console()
    console.print(table if checked else "No artifacts yet; `mtnlg run quickstart` makes some.")
    for entry in checked:
        for fault in entry["faults"]:
            console.print(f"  {entry['stage']}: {fault}", style="red", markup=False, soft_wrap=True)


def _named(folder: Path, name: str) -> bool:
    same_key = len(name) >= MIN_KEY_DIGITS and (
        folder.name.startswith(name) or name.startswith(folder.name)
    )
    return same_key or name in (folder.parent.name, str(folder))
