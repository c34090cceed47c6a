"""The records of a run: a line a step in `metrics.jsonl`, a line a validation, and TensorBoard.

Records of steps after the checkpoint that a run goes on from are cut off first, so a resumed run
leaves the same records as an unbroken one (speeds apart). A number that is not finite is null.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class RunRecords:
    """Records of one run in its output folder; only rank 0 makes one.

    Args:
        out: the run's output folder.
        step: steps done; later records are cut off.
        tokens: tokens trained on in those steps.
    """

    def __init__(self, out: Path, *, step: int, tokens: int) -> None:
        self.metrics_file = out / "metrics.jsonl"
        self.validation_file = out / "validation.jsonl"
        for file in (self.metrics_file, self.validation_file):
            _cut(file, step)
        self._metrics = self.metrics_file.open("a", encoding="utf-8")
        self._validation = self.validation_file.open("a", encoding="utf-8")
        self._board = SummaryWriter(out / "tensorboard", purge_step=tokens + 1)

    def add_step(self, record: dict[str, Any]) -> None:
        """Record one step; `docs/formats.md` lists the fields."""
        self._metrics.write(_line(record))
        self._metrics.flush()
        for name in ("loss", "learning_rate", "grad_norm", "tokens_per_second"):
            self._board.add_scalar(f"training/{name}", record[name], record["tokens"])

    def add_validation(self, record: dict[str, Any]) -> None:
        """Record one validation; `docs/formats.md` lists the fields."""
        self._validation.write(_line(record))
        self._validation.flush()
        self._board.add_scalar("validation/loss", record["loss"], record["tokens"])

    def close(self) -> None:
        """Write out what TensorBoard still holds back."""
        self._metrics.close()
        self._validation.close()
        self._board.close()


def read_records(file: Path) -> list[dict[str, Any]]:
    """Read a file of records."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _line(record: dict[str, Any]) -> str:
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }
    return json.dumps(finite) + "\n"


def _cut(file: Path, step: int) -> None:
    """Keep the records up to `step`. A killed writer may have left half a line after them."""
    if not file.exists():
        return
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n") or json.loads(line)["step"] > step:
            break
        kept.append(line)
    partial = file.with_suffix(".partial")
    partial.write_text("".join(kept), encoding="utf-8")
    partial.replace(file)
