"""One rank of a training job.

Every rank runs `main` with the same job file. The run is a loop over steps whose only state is a
`TrainingState` and the engine's tensors; a killed run is started again with the same job file and
goes on from its last checkpoint to the same numbers.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch.distributed as dist
from pydantic import BaseModel, ConfigDict

from training.batches import ValidationSet, step_positions, training_batches
from training.checkpoint import CheckpointStore, TrainingState
from training.config import TrainingConfig
from training.data_order import SampleOrder, chain
from training.engine import build_engine, set_learning_rate
from training.grid import initialize_grid
from training.peak import device_peak
from training.progress import ProgressReport
from training.records import RunRecords
from training.samples import TokenizedSplit
from training.schedule import LearningRateSchedule
from training.summary import write_summary
from training.weights import write_model

_log = logging.getLogger(__name__)

_MAX_BAD_STEPS = 5


class TrainingJob(BaseModel):
    """What the job file says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: TrainingConfig
    seed: int
    tokenized: Path
    out: Path


class DivergedError(ArithmeticError):
    """The loss stayed infinite or not a number."""


def main(argv: Sequence[str]) -> None:
    """Run one rank.

    Args:
        argv: the path of the job file.
    """
    (job_file,) = argv
    report = ProgressReport.claim_stdout(rank=int(os.environ["RANK"]))
    train(TrainingJob.model_validate_json(Path(job_file).read_bytes()), report)


def train(job: TrainingJob, report: ProgressReport) -> None:
    """Train from the last checkpoint, if any, to the end and write the output.

    Raises:
        ValueError: if the job cannot run on the data or on the ranks that were started, or if a
            checkpoint in the output folder belongs to another job.
        DivergedError: if the loss was not finite for several steps in a row.
    """
    run = _Run(job, report)
    run.steps()
    run.finish()
    dist.destroy_process_group()


class _Run:
    """The parts of a run, tied together."""

    def __init__(self, job: TrainingJob, report: ProgressReport) -> None:
        self._config, self._out, self._report = job.config, job.out, report
        config = job.config
        self._split = TokenizedSplit(job.tokenized, "train", config.sequence_length)
        held_out = TokenizedSplit(job.tokenized, "held_out", config.sequence_length)
        self._validation = ValidationSet(config, held_out)
        self._order = SampleOrder(self._split.num_samples, job.seed)
        self._schedule = LearningRateSchedule.from_config(config)
        self._grid = initialize_grid(config.layout)
        self._engine, self._parameters = build_engine(
            config, self._grid, vocab_size=self._split.vocab_size, seed=job.seed
        )
        self._checkpoints = CheckpointStore(
            self._out / "checkpoint",
            {
                "training": config.model_dump(mode="json"),
                "seed": job.seed,
                "tokenizer_sha256": self._split.tokenizer_sha256,
                "num_samples": self._split.num_samples,
            },
            self._engine,
        )
        restored = self._checkpoints.restore()
        if restored is None:
            self._state = TrainingState(step=0, tokens=0, sample_hash="")
        else:
            self._state = restored.resumed()
            report.event("resumed", step=restored.step)
        self._records: RunRecords | None = None
        if self._grid.rank == 0:
            self._records = RunRecords(self._out, step=self._state.step, tokens=self._state.tokens)
        self._validation_loss: float | None = None
        self._num_bad_steps = 0

    def steps(self) -> None:
        """Train up to the last step, with validations and checkpoints where they are due."""
        config, total = self._config, self._config.num_steps
        if self._state.step == 0:
            self._validate()
        first, start = self._state.step, time.perf_counter()
        for step in range(first, total):
            before = self._state.tokens
            loss, tokens_per_second = self._step(step)
            after, is_last = self._state.tokens, self._state.step == total
            if is_last or _is_due(config.validation_interval_tokens, before, after):
                self._validate()
            seconds_a_step = (time.perf_counter() - start) / (self._state.step - first)
            if math.isfinite(loss):
                self._report.progress(
                    is_last=is_last,
                    step=self._state.step,
                    num_steps=total,
                    tokens=after,
                    total_tokens=total * config.tokens_per_step,
                    loss=loss,
                    validation_loss=self._validation_loss,
                    tokens_per_second=tokens_per_second,
                    seconds_left=seconds_a_step * (total - self._state.step),
                )
            if is_last or _is_due(config.checkpoint_interval_tokens, before, after):
                self._checkpoints.save(self._state)
                self._report.event("checkpoint", step=self._state.step)

    def finish(self) -> None:
        """Write the output that follows the last step."""
        write_model(
            self._out / "model",
            self._config,
            self._grid,
            self._parameters,
            vocab_size=self._split.vocab_size,
            tokenizer_sha256=self._split.tokenizer_sha256,
        )
        self._checkpoints.keep(1)
        peak = device_peak(self._config.precision)
        if self._records is not None:
            self._records.close()
            num_positions = self._state.step * self._config.global_batch
            seen = self._order.at_many(np.arange(num_positions, dtype=np.int64))
            np.save(self._out / "seen_samples.npy", seen)
            write_summary(
                self._out,
                self._config,
                self._records,
                self._state,
                peak,
                vocab_size=self._split.vocab_size,
            )
        self._report.event("done")

    def _step(self, step: int) -> tuple[float, float]:
        """Do one optimizer step; returns the loss in nats a token and the tokens a second."""
        config, engine = self._config, self._engine
        start = time.perf_counter()
        tokens = self._state.tokens + config.tokens_per_step
        learning_rate = self._schedule.learning_rate(tokens)
        set_learning_rate(engine, learning_rate)
        batches = training_batches(
            config, self._split, self._order, step=step, data_rank=self._grid.data_rank
        )
        loss = engine.train_batch(batches).item()
        seconds = time.perf_counter() - start
        samples = self._order.at_many(step_positions(config, step))
        self._state = self._state.model_copy(
            update={
                "step": step + 1,
                "tokens": tokens,
                "sample_hash": chain(self._state.sample_hash, samples),
            }
        )
        tokens_per_second = config.tokens_per_step / seconds
        if self._records is not None:
            self._records.add_step(
                {
                    "step": self._state.step,
                    "tokens": tokens,
                    "loss": loss,
                    "learning_rate": learning_rate,
                    "grad_norm": float(engine.get_global_grad_norm()),
                    "tokens_per_second": tokens_per_second,
                    "skipped_steps": int(engine.skipped_steps),
                    "sample_hash": self._state.sample_hash,
                }
            )
        self._watch(loss)
        return loss, tokens_per_second

    def _watch(self, loss: float) -> None:
        """Stop a run whose loss does not come back; DeepSpeed skips single bad steps."""
        self._num_bad_steps = 0 if math.isfinite(loss) else self._num_bad_steps + 1
        if self._num_bad_steps == _MAX_BAD_STEPS:
            raise DivergedError(
                f"training: the loss was {loss} for {_MAX_BAD_STEPS} steps in a row, up to step "
                f"{self._state.step} ({self._state.tokens} tokens). Lower optimizer.learning_rate "
                f"= {self._config.optimizer.learning_rate:g}, or lengthen optimizer.warmup_tokens "
                f"= {self._config.optimizer.warmup_tokens}."
            )
        if self._num_bad_steps and self._grid.rank == 0:
            _log.warning("step %d skipped: loss %s", self._state.step, loss)

    def _validate(self) -> None:
        validation = self._validation
        mean = self._engine.eval_batch(
            validation.batches(self._grid.data_rank),
            num_micro_batches=validation.num_micro_batches,
        )
        self._validation_loss = mean.item() * validation.scale
        if self._records is not None:
            self._records.add_validation(
                {
                    "step": self._state.step,
                    "tokens": self._state.tokens,
                    "loss": self._validation_loss,
                    "num_tokens": validation.num_tokens,
                }
            )


def _is_due(interval: int, before: int, after: int) -> bool:
    """Whether a multiple of `interval` tokens was reached between two token counts."""
    return before // interval < after // interval


if __name__ == "__main__":
    main(sys.argv[1:])
