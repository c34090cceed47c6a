"""Checkpoints that are whole or are not there, and from which a run goes on bit for bit.

- A checkpoint is written into `step-N.partial` and renamed once its manifest, which names every
  file with size and sha256, lies in it. A killed writer leaves nothing that looks finished.
- It holds what the next step depends on: weights, master weights and optimizer state (DeepSpeed's
  files, one a rank), and in `state.json` the step, the tokens, the hash chain over the samples and
  the job that wrote it. There is no generator state, because nothing draws random numbers once
  the weights are made: the order of samples is a pure function of the position.
- Reading takes the newest checkpoint whose files match its manifest; worse ones are named on
  stderr and removed.
- The last two are kept, the newest alone once the run is complete.

Every rank calls every method; hashing is shared out over the ranks.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch.distributed as dist
from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from deepspeed.runtime.pipe.engine import PipelineEngine

_log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
STATE = "state.json"
LATEST = "latest"
_PARTIAL = ".partial"
_T = TypeVar("_T")


class TrainingState(BaseModel):
    """Where a run stands, apart from its tensors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    """Steps done."""
    tokens: int
    """Tokens trained on."""
    sample_hash: str
    """Hash chain over the indices of all samples trained on."""
    resumed_from: tuple[int, ...] = ()
    """Steps at which the run that led here was taken up from a checkpoint."""

    def resumed(self) -> Self:
        return self.model_copy(update={"resumed_from": (*self.resumed_from, self.step)})


class CheckpointStore:
    """The checkpoints of one run in one folder.

    Args:
        folder: where they lie; made if absent.
        job: what the run's numbers depend on, as JSON; a checkpoint of another job is refused.
        engine: the engine whose tensors are saved and restored.
    """

    def __init__(self, folder: Path, job: dict[str, Any], engine: PipelineEngine) -> None:
        self._folder = folder
        self._job = job
        self._engine = engine

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint, publish it, and keep it and the one before it."""
        name = f"step-{state.step:08d}"
        partial = self._folder / (name + _PARTIAL)
        self._engine.save_checkpoint(str(self._folder), tag=partial.name, save_latest=False)
        if dist.get_rank() == 0:
            content = {"state": state.model_dump(mode="json"), "job": self._job}
            (partial / STATE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            for script in self._folder.glob("zero_to_*.py"):
                script.unlink()  # DeepSpeed's converters, which know no pipeline stages
        dist.barrier()
        files = self._hash_files(partial)
        if dist.get_rank() == 0:
            manifest = {"format": 1, "files": files}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            partial.rename(self._folder / name)
            pointer = self._folder / (LATEST + _PARTIAL)
            pointer.write_text(name + "\n", encoding="utf-8")
            pointer.replace(self._folder / LATEST)
        self.keep(2)

    def keep(self, count: int) -> None:
        """Remove all but the newest `count` checkpoints."""
        dist.barrier()
        if dist.get_rank() == 0:
            for old in self._published()[count:]:
                _remove(old)
        dist.barrier()

    def restore(self) -> TrainingState | None:
        """Load the newest whole checkpoint into the engine.

        Returns:
            Where the run stands, or None if there is no whole checkpoint.

        Raises:
            ValueError: if the checkpoint was written by another job.
        """
        if dist.get_rank() == 0:
            self._folder.mkdir(exist_ok=True)
            for partial in self._folder.glob(f"*{_PARTIAL}"):
                _remove(partial)
        for checkpoint in _broadcast(self._published()):
            damage = self._damage(checkpoint)
            if not damage:
                return self._load(checkpoint)
            if dist.get_rank() == 0:
                for fault in damage:
                    _log.warning("checkpoint %s is damaged: %s", checkpoint.name, fault)
                _remove(checkpoint)
        return None

    def _load(self, checkpoint: Path) -> TrainingState:
        content = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
        differences = list(_differences(content["job"], self._job))
        if differences:
            raise ValueError(
                f"checkpoint {checkpoint} was written by another job:\n"
                + "\n".join(
                    f"  {name}: {was!r} there, {now!r} here." for name, was, now in differences
                )
                + "\nGive the new job a folder of its own, or go on with the old settings."
            )
        path, _ = self._engine.load_checkpoint(str(self._folder), tag=checkpoint.name)
        assert path is not None, f"DeepSpeed found no checkpoint in {checkpoint}"
        return TrainingState.model_validate(content["state"])

    def _published(self) -> list[Path]:
        """Published checkpoints, newest first."""
        return sorted(
            (f for f in self._folder.glob("step-*") if f.suffix != _PARTIAL), reverse=True
        )

    def _damage(self, checkpoint: Path) -> list[str]:
        """What is wrong with a published checkpoint, one line a file."""
        expected = _broadcast(_read_manifest(checkpoint))
        if expected is None:
            return [f"{MANIFEST} cannot be read"]
        actual = self._hash_files(checkpoint)
        return [
            f"{name} is missing"
            if name not in actual
            else f"{name} has {actual[name]}, its manifest says {entry}"
            for name, entry in sorted(expected.items())
            if actual.get(name) != entry
        ]

    def _hash_files(self, checkpoint: Path) -> dict[str, dict[str, Any]]:
        """Size and sha256 of each file but the manifest, by name; ranks share the work."""
        names = _broadcast(
            sorted(
                str(file.relative_to(checkpoint))
                for file in checkpoint.rglob("*")
                if file.is_file() and file.name != MANIFEST
            )
        )
        mine = {}
        for name in names[dist.get_rank() :: dist.get_world_size()]:
            with (checkpoint / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            mine[name] = {"size": (checkpoint / name).stat().st_size, "sha256": digest}
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, mine)
        return {name: entry for part in gathered for name, entry in sorted(part.items())}


def _read_manifest(checkpoint: Path) -> dict[str, dict[str, Any]] | None:
    """Size and sha256 of each file by name, or None if the manifest is damaged itself."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        return dict(manifest["files"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _broadcast(value: _T) -> _T:
    """What rank 0 sees, on every rank: folders may change under a slower one."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _remove(path: Path) -> None:
    """Remove a checkpoint so that a killed removal leaves no half of it under its name."""
    if path.is_dir():
        if path.suffix != _PARTIAL:
            path = path.rename(path.with_name(path.name + _PARTIAL))
        shutil.rmtree(path)
    else:
        path.unlink()


def _differences(was: Any, now: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    """Leaves in which two JSON values differ, as (dotted name, first, second)."""
    if isinstance(was, dict) and isinstance(now, dict):
        return [
            found
            for key in sorted(was.keys() | now.keys())
            for found in _differences(was.get(key), now.get(key), f"{name}.{key}".lstrip("."))
        ]
    return [] if was == now else [(name, was, now)]
