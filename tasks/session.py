"""What all stages of one run share: the store, the record, who watches, and how to execute.

The flow opens a session; tasks look it up. It is no flow parameter, since none of it changes what
a run computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from infra.launchers.local import Launcher
from tasks.artifacts import Figures, Origin
from tasks.runs import RunRecord
from tasks.store import ArtifactStore


class View(Protocol):
    """Whoever shows a person how the run goes."""

    def stage_started(self, stage: str) -> None: ...
    def stage_progress(self, stage: str, done: float, total: float | None, note: str) -> None: ...
    def stage_waiting(self, stage: str, note: str) -> None: ...
    def stage_finished(
        self, stage: str, state: Origin, seconds: float, figures: Figures
    ) -> None: ...
    def stage_failed(self, stage: str, message: str) -> None: ...


@dataclass(frozen=True)
class Session:
    """One run while it goes on."""

    store: ArtifactStore
    record: RunRecord
    view: View
    num_workers: int
    launcher: Launcher
    forced_stages: frozenset[str]
    log_folder: Path


_current: ContextVar[Session] = ContextVar("mtnlg_session")


@contextmanager
def open_session(session: Session) -> Iterator[None]:
    """Make `session` the one that tasks find."""
    token = _current.set(session)
    try:
        yield
    finally:
        _current.reset(token)


def current_session() -> Session:
    """The session of the run that called this task.

    Raises:
        RuntimeError: called outside a run.
    """
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError(
            "no run is open; call the stage through a flow, or the library function directly"
        ) from None
