"""`mtnlg verify`: are finished artifacts still what they were when they were published?"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from flows.errors import WrongUseError
from tasks.artifacts import Artifact
from tasks.store import ArtifactStore


def verify_artifacts(store: ArtifactStore, name: str | None) -> list[dict[str, Any]]:
    """Read every file of the chosen artifacts again.

    Args:
        store: where to look.
        name: a stage, a folder or the beginning of a key; None for all.

    Returns:
        For each artifact: stage, key, folder, number of files, bytes, and faults as text.

    Raises:
        WrongUseError: nothing goes by that name.
    """
    chosen = [artifact for artifact in store.artifacts() if name is None or _named(artifact, name)]
    if name is not None and not chosen:
        known = ", ".join(f"{a.stage} {a.key[:16]}" for a in store.artifacts()) or "none at all"
        raise WrongUseError(f"no artifact in {store.root} is called {name!r}; known: {known}")
    return [
        {
            "stage": artifact.stage,
            "key": artifact.key,
            "folder": str(artifact.folder),
            "files": len(artifact.manifest.files),
            "bytes": sum(file.size for file in artifact.manifest.files),
            "faults": [str(fault) for fault in store.verify(artifact)],
        }
        for artifact in chosen
    ]


def print_verification(checked: list[dict[str, Any]]) -> None:
    """Show one line an artifact, and the faults below it."""
    table = Table(box=None, pad_edge=False)
    for column, justify in (("", "left"), ("stage", "left"), ("key", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_column("files", justify="right")
    table.add_column("MB", justify="right")
    for entry in checked:
        mark = "[red]✗[/]" if entry["faults"] else "[green]✓[/]"
        size = f"{entry['bytes'] / 1e6:.1f}"
        table.add_row(mark, entry["stage"], entry["key"][:16], str(entry["files"]), size)
    console = Console()
    console.print(table if checked else "No artifacts yet; `mtnlg run quickstart` makes some.")
    for entry in checked:
        for fault in entry["faults"]:
            console.print(f"  {entry['stage']}: {fault}", style="red", markup=False, soft_wrap=True)


def _named(artifact: Artifact, name: str) -> bool:
    if len(name) >= 4 and (artifact.key.startswith(name) or artifact.folder.name == name):
        return True
    return name in (artifact.stage, str(artifact.folder))
