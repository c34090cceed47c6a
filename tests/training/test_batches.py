"""Which samples a rank reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_job import SEQUENCE_LENGTH, tiny_config

from training.batches import NO_LABEL, ValidationSet, rank_slices, training_batches
from training.data_order import SampleOrder
from training.samples import TokenizedSplit


def test_micro_batches_of_two_ranks_interleave() -> None:
    config = tiny_config("1x1x2")  # global batch 8, micro-batch 2
    assert [(s.start, s.stop) for s in rank_slices(config, 0, 2)] == [(0, 2), (4, 6)]
    assert [(s.start, s.stop) for s in rank_slices(config, 1, 2)] == [(2, 4), (6, 8)]


@pytest.mark.parametrize("layout", ["1x1x1", "1x1x2", "1x1x4"])
def test_a_step_reads_its_positions_of_the_order_once(layout: str, tokenized: Path) -> None:
    config = tiny_config(layout)
    split = TokenizedSplit(tokenized, "train", SEQUENCE_LENGTH)
    order = SampleOrder(split.num_samples, 5)
    read = [
        inputs.numpy()
        for rank in range(config.layout.data_parallel)
        for inputs, _ in training_batches(config, split, order, step=3, data_rank=rank)
    ]
    expected = np.stack([split.tokens(order.at(position)) for position in range(24, 32)])
    rows = {row.tobytes() for batch in read for row in batch}
    assert rows == {row.tobytes() for row in expected[:, :-1]}
    assert sum(len(batch) for batch in read) == 8


def test_labels_are_the_inputs_one_further(tokenized: Path) -> None:
    split = TokenizedSplit(tokenized, "train", SEQUENCE_LENGTH)
    order = SampleOrder(split.num_samples, 5)
    inputs, labels = next(training_batches(tiny_config(), split, order, step=0, data_rank=0))
    assert inputs[:, 1:].equal(labels[:, :-1])


@pytest.mark.parametrize(("tokens", "num_samples"), [(112, 7), (113, 8), (10**6, 25)])
def test_validation_rounds_up_to_samples_and_takes_all_if_there_are_fewer(
    tokens: int, num_samples: int, tokenized: Path
) -> None:
    config = tiny_config("1x1x2", validation_tokens=tokens)
    validation = ValidationSet(config, TokenizedSplit(tokenized, "held_out", SEQUENCE_LENGTH))
    assert validation.num_tokens == num_samples * SEQUENCE_LENGTH
    labelled = sum(
        int((labels != NO_LABEL).sum()) for rank in (0, 1) for _, labels in validation.batches(rank)
    )
    assert labelled == validation.num_tokens
