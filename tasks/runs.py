"""The record of a run: what was asked, what became of each stage, and whether it still goes on.

    root/runs/<run_id>/run.json

A record names artifacts and holds none. It is rewritten in one step whenever a stage starts or
ends, so that a reader, or a kill, meets a whole one at any moment. Only the process that began a
run writes its record. A record says "running" until its run ends; where that process is gone, the
run was interrupted, and `RunRecord.load` says so.
"""

from __future__ import annotations

import os
import secrets
import socket
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import psutil
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from tasks.artifacts import Artifact, Figure
from tasks.durable_files import write_text

RUN_FILE = "run.json"

RunState = Literal["running", "completed", "failed", "interrupted"]
StageState = Literal["running", "built", "reused", "resumed", "failed", "interrupted"]


class StageRecord(BaseModel):
    """What became of one stage. A stage that was not reached has no record.

    `folder` is relative to the root, which may move, or be named from another working directory.
    """

    model_config = ConfigDict(extra="forbid")

    state: StageState
    started: str
    finished: str | None = None
    key: str | None = None
    digest: str | None = None
    folder: str | None = None
    seconds: float | None = None
    figures: dict[str, Figure] = {}
    error: str | None = None


class RecordDamagedError(ValueError):
    """The record of a run cannot be read."""


class RunRecord(BaseModel):
    """One run.

    Attributes:
        recipe: the recipe's name.
        resolved: the whole recipe, defaults and overrides included.
        command: the command line that started the run, and starts it again.
        started: UTC, ISO 8601.
        pid: the process that runs it, on `host`; `pid_started` tells it from a later process of
            the same number.
        stages: by name, in the order in which they started.
    """

    model_config = ConfigDict(extra="forbid")

    run_id: str
    recipe: str
    resolved: dict[str, Any]
    command: str
    started: str
    finished: str | None = None
    state: RunState = "running"
    error: str | None = None
    host: str
    pid: int
    pid_started: float
    stages: dict[str, StageRecord] = {}

    _folder: Path = PrivateAttr()

    @property
    def folder(self) -> Path:
        """Where the record is; logs of the run may stand beside it."""
        return self._folder

    @property
    def _root(self) -> Path:
        return self._folder.parents[1]

    def artifact_folder(self, stage: str) -> Path | None:
        """Where the artifact of a finished stage is, or was; None if the run made none."""
        record = self.stages.get(stage)
        return self._root / record.folder if record and record.folder else None

    @classmethod
    def create(cls, root: Path, recipe: str, resolved: dict[str, Any], command: str) -> RunRecord:
        """Begin a run of this process under a name that no other run has.

        Raises:
            OSError: the folder cannot be written.
        """
        runs = root / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        while True:
            run_id = f"{recipe}-{secrets.token_hex(2)}"
            try:
                (runs / run_id).mkdir()
            except FileExistsError:
                continue
            break
        process = psutil.Process()
        record = cls(
            run_id=run_id,
            recipe=recipe,
            resolved=resolved,
            command=command,
            started=_now(),
            host=socket.gethostname(),
            pid=os.getpid(),
            pid_started=process.create_time(),
        )
        record._folder = runs / run_id
        record.save()
        return record

    @classmethod
    def load(cls, folder: Path) -> RunRecord:
        """Read the record in a run's folder.

        A run that says it is running but whose process is gone comes back as interrupted. The
        process of another host cannot be looked for; its word is taken.

        Raises:
            ValueError: there is no record.
            RecordDamagedError: it cannot be read.
        """
        file = folder / RUN_FILE
        try:
            record = cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            raise ValueError(
                f"{folder} is no run: it has no {RUN_FILE}. A run killed while it began leaves"
                " this; the folder can be deleted."
            ) from None
        except ValidationError as error:
            first = error.errors()[0]
            where = "".join(f"{part}: " for part in first["loc"])
            raise RecordDamagedError(
                f"{file} is no record of a run: {where}{first['msg']}.\n"
                "  Delete the folder; the artifacts of the run are kept elsewhere."
            ) from None
        record._folder = folder
        if record.state == "running" and not record._process_lives():
            record.state = "interrupted"
            for stage in record.stages.values():
                if stage.state == "running":
                    stage.state = "interrupted"
        return record

    def save(self) -> None:
        """Write the record in one step."""
        write_text(self._folder / RUN_FILE, self.model_dump_json(indent=1) + "\n")

    def stage_started(self, stage: str) -> None:
        """Note that `stage` starts now."""
        self.stages[stage] = StageRecord(state="running", started=_now())
        self.save()

    def stage_finished(self, artifact: Artifact, seconds: float) -> None:
        """Note the artifact of a started stage, and the time that this run spent on it."""
        stage = self.stages[artifact.stage]
        stage.state = artifact.origin
        stage.finished = _now()
        stage.key = artifact.key
        stage.digest = artifact.digest
        stage.folder = artifact.folder.relative_to(self._root).as_posix()
        stage.seconds = round(seconds, 3)
        stage.figures = dict(artifact.manifest.figures)
        self.save()

    def stage_failed(
        self, stage: str, message: str, state: Literal["failed", "interrupted"] = "failed"
    ) -> None:
        """Note why a started stage has no artifact."""
        self.stages[stage].state = state
        self.stages[stage].finished = _now()
        self.stages[stage].error = message
        self.save()

    def finish(
        self, state: Literal["completed", "failed", "interrupted"], error: str | None = None
    ) -> None:
        """Note the end of the run, and why, if it is not a good one."""
        self.state = state
        self.error = error
        self.finished = _now()
        self.save()

    def _process_lives(self) -> bool:
        if self.host != socket.gethostname():
            return True
        try:
            process = psutil.Process(self.pid)
            # The time is counted from boot, which the kernel's clock may correct a little.
            return abs(process.create_time() - self.pid_started) < 2 and (
                process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False


def all_runs(root: Path) -> list[RunRecord]:
    """Return all runs under `root`, the latest last."""
    records = [RunRecord.load(file.parent) for file in _run_files(root)]
    return sorted(records, key=lambda record: (record.started, record.run_id))


def _run_files(root: Path) -> list[Path]:
    return sorted((root / "runs").glob(f"*/{RUN_FILE}"))


def latest(root: Path) -> RunRecord:
    """Return the run that started last.

    Raises:
        ValueError: there is none.
    """
    records = all_runs(root)
    if not records:
        raise ValueError(f"there is no run in {root}; `mtnlg run quickstart` makes one")
    return records[-1]


def find(root: Path, name: str) -> RunRecord:
    """Return a run by its id, or the latest run of a recipe by the recipe's name.

    Raises:
        ValueError: there is none; the nearest names are given.
    """
    # The damage of another run is no concern of this one.
    if name in {file.parent.name for file in _run_files(root)}:
        return RunRecord.load(root / "runs" / name)
    records = all_runs(root)
    of_recipe = [record for record in records if record.recipe == name]
    if of_recipe:
        return of_recipe[-1]
    known = [record.run_id for record in records] + [record.recipe for record in records]
    near = get_close_matches(name, dict.fromkeys(known)) or [r.run_id for r in records[-5:]]
    hint = f"the nearest are {', '.join(near)}" if near else "there is none yet"
    raise ValueError(f"no run in {root} is called {name!r}; {hint}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
