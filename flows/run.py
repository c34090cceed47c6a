"""Run a recipe on this machine: server, record, session and flow, and everything put away after.

However a run ends, its Prefect server, workers and ranks end with it. What Prefect and the
libraries log goes to one file beside the run's record; the terminal shows the run's own view.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from flows.errors import RunFailedError
from flows.recipe import Recipe
from flows.result import print_result
from flows.run_log import words_to_file
from flows.run_view import RunView
from flows.stages import STAGES
from infra.prefect_server import PrefectServer
from tasks.artifacts import Artifact
from tasks.runs import RunRecord
from tasks.session import Session, open_session
from tasks.store import ArtifactStore

DRAIN_S = 5.0
"""How long to wait for Prefect to deliver the run's last log lines and events."""


def run_recipe(
    recipe: Recipe,
    *,
    command: str,
    root: Path,
    forced_stages: Collection[str] = (),
    verbose: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run all stages of a recipe; reuse those that stand.

    Args:
        recipe: what to do.
        command: the command line that does it again.
        root: folder of artifacts, runs and Prefect's database.
        forced_stages: stages to build even if they stand.
        verbose: show Prefect's log, and progress as plain lines between its own.
        quiet: print no results at the end; they are returned.

    Returns:
        The run's name and folder, the report's path, and the report's summary.

    Raises:
        RunFailedError: with what went wrong and where the log is.
    """
    try:
        record = RunRecord.create(root, recipe.name, recipe.model_dump(mode="json"), command)
    except OSError as error:
        raise RunFailedError(
            f"nothing can be written to {root}: {error.strerror}.\n"
            "  Free space on its disk, or name another folder with --root."
        ) from error
    received: list[int] = []
    try:
        with _ended_in_order(received), _terminal(record, verbose, quiet) as console:
            artifacts = _run_stages(recipe, record, console, frozenset(forced_stages))
            record.finish("completed")
            return _results(record, artifacts, None if quiet else console)
    except KeyboardInterrupt:
        record.finish("interrupted")
        raise
    except SystemExit:
        record.finish("interrupted", "ended by SIGTERM")
        raise
    except Exception as error:
        if received:
            # Ctrl-C can strike inside compiled code that takes it for an error of its own.
            record.finish("interrupted")
            raise KeyboardInterrupt from error
        # On a disk that is full this may fail as well; what is told is why the run failed.
        with suppress(OSError):
            record.finish("failed", str(error))
        log = "" if verbose else f"The log is {_log_file(record)}. "
        raise RunFailedError(f"{error}\n  {log}Run again with: {command}") from error


def _log_file(record: RunRecord) -> Path:
    return record.folder / "run.log"


def _terminal(record: RunRecord, verbose: bool, quiet: bool) -> AbstractContextManager[Console]:
    """A console for the run's view; all other words go to the log, or stay if asked for."""
    if verbose:
        # Beside other lines a table that is redrawn in place would be torn.
        return nullcontext(Console(stderr=quiet, force_terminal=False))
    return words_to_file(_log_file(record), quiet=quiet)


def _run_stages(
    recipe: Recipe, record: RunRecord, console: Console, forced_stages: frozenset[str]
) -> dict[str, Artifact]:
    root = record.folder.parents[1]
    server = PrefectServer(root.resolve() / "prefect")
    title = f"{recipe.name} · {record.run_id}"
    with server, RunView(list(STAGES), title, console) as view:
        os.environ.update(server.settings())
        session = Session(
            store=ArtifactStore(root),
            record=record,
            view=view,
            num_workers=recipe.run.num_workers,
            launcher=recipe.run.launcher,
            forced_stages=forced_stages,
            log_folder=record.folder,
        )
        try:
            with open_session(session):
                return _run_flow(recipe, record.command, root, server)
        except Exception:
            traceback.print_exc()
            raise


def _run_flow(
    recipe: Recipe, command: str, root: Path, server: PrefectServer
) -> dict[str, Artifact]:
    # Prefect reads its settings when it is imported, so only now that they are set.
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.pretrain import pretrain

    server.wait_ready()  # It started while all this was imported.
    try:
        # A heartbeat thread costs each flow up to a second, and nobody listens to it here.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            return pretrain(recipe, command, root)
    finally:
        # Otherwise they are delivered at exit, to a server that has gone.
        for worker in (APILogWorker, EventsWorker):
            worker.drain_all(timeout=DRAIN_S)


def _results(
    record: RunRecord, artifacts: dict[str, Artifact], console: Console | None
) -> dict[str, Any]:
    report = record.folder / "report.html"
    shutil.copyfile(artifacts["report"].folder / "report.html", report)
    summary = json.loads((artifacts["report"].folder / "summary.json").read_text(encoding="utf-8"))
    if console is not None:
        print_result(summary, console, report)
    stages = {name: {"key": a.key, "origin": a.origin} for name, a in artifacts.items()}
    return {
        "run": record.run_id,
        "folder": str(record.folder),
        "report": str(report),
        "stages": stages,
        "summary": summary,
    }


@contextmanager
def _ended_in_order(received: list[int]) -> Iterator[None]:
    """Let SIGTERM end the run in order, as Ctrl-C does; list the signals that came."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    def terminate(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        sys.exit(128 + number)

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, terminate)}
    # In a shell's background it may be ignored, and should stay so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
