"""Which samples a rank reads for which step: a pure function of the step and the rank's place.

Step i trains on positions [i G, (i + 1) G) of the run's order, G the global batch. Micro-batch m
of data-parallel rank d holds positions i G + (m DP + d) B + j for j < B: the union over ranks is
the same in every layout.

Shape suffixes: B micro-batch, S sequence, N positions or samples.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.config import TrainingConfig
from training.data_order import SampleOrder
from training.samples import TokenizedSplit

NO_LABEL = -1
"""Label of a position that takes no part in the loss."""


def step_positions(config: TrainingConfig, step: int) -> NDArray[np.int64]:
    """Positions of the run that step `step`, counted from 0, trains on, as (N,)."""
    first = step * config.global_batch
    return np.arange(first, first + config.global_batch, dtype=np.int64)


def rank_slices(config: TrainingConfig, data_rank: int, num_micro: int) -> Iterator[slice]:
    """Where the micro-batches of one data-parallel rank lie in a batch of whole micro-batches."""
    size = config.micro_batch
    for micro in range(num_micro):
        first = (micro * config.layout.data_parallel + data_rank) * size
        yield slice(first, first + size)


def training_batches(
    config: TrainingConfig, split: TokenizedSplit, order: SampleOrder, *, step: int, data_rank: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The (inputs, labels) of one rank for one step, each (B, S) int64, a pair a micro-batch."""
    samples_N = order.at_many(step_positions(config, step))
    for part in rank_slices(config, data_rank, config.num_micro_batches):
        yield _inputs_and_labels(split.batch(samples_N[part]))


class ValidationSet:
    """The first held-out samples, always the same ones, cut into whole micro-batches.

    The number of samples is that of `validation_tokens`, rounded up to whole sequences, or all
    that the split has. The last micro-batches are filled up with repeated samples whose labels
    are ignored, so that every layout measures the same tokens.
    """

    def __init__(self, config: TrainingConfig, split: TokenizedSplit) -> None:
        self._config = config
        self._split = split
        wanted = -(-config.validation_tokens // config.sequence_length)
        self.num_samples = min(wanted, split.num_samples)
        per_pass = config.micro_batch * config.layout.data_parallel
        self.num_micro_batches = -(-self.num_samples // per_pass)
        self._num_filled = self.num_micro_batches * per_pass

    @property
    def num_tokens(self) -> int:
        """Tokens predicted in one validation."""
        return self.num_samples * self._config.sequence_length

    @property
    def scale(self) -> float:
        """What a mean over all positions, fillers included, is multiplied with."""
        return self._num_filled / self.num_samples

    def batches(self, data_rank: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The (inputs, labels) of one rank, each (B, S) int64, a pair a micro-batch."""
        for part in rank_slices(self._config, data_rank, self.num_micro_batches):
            samples_B = np.arange(part.start, part.stop, dtype=np.int64)
            is_filler_B = samples_B >= self.num_samples
            inputs_BS, labels_BS = _inputs_and_labels(
                self._split.batch(np.where(is_filler_B, 0, samples_B))
            )
            labels_BS[torch.from_numpy(is_filler_B)] = NO_LABEL
            yield inputs_BS, labels_BS


def _inputs_and_labels(tokens: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Split windows of S + 1 tokens into S inputs and the S tokens that follow them."""
    windows = torch.from_numpy(tokens)
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
