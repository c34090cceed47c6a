"""The data order is a permutation an epoch, looks random, and is a function of position alone."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data_order import SampleOrder, chain

SEEDS = st.integers(0, 2**63 - 1)


@given(num_samples=st.integers(1, 3000), seed=SEEDS, epoch=st.integers(0, 10**6))
def test_each_epoch_visits_every_sample_once(num_samples: int, seed: int, epoch: int) -> None:
    positions = epoch * num_samples + np.arange(num_samples)
    samples = SampleOrder(num_samples, seed).at_many(positions)
    assert np.array_equal(np.sort(samples), np.arange(num_samples))


@given(
    num_samples=st.integers(1, 10**12),
    seed=SEEDS,
    positions=st.lists(st.integers(0, 10**15), min_size=1, max_size=40),
)
def test_a_position_alone_and_in_any_batch_name_the_same_sample(
    num_samples: int, seed: int, positions: list[int]
) -> None:
    order = SampleOrder(num_samples, seed)
    samples = order.at_many(np.array(positions))
    assert [order.at(position) for position in positions] == samples.tolist()
    assert samples.min() >= 0 and samples.max() < num_samples


def test_extending_the_budget_changes_nothing_before_and_repeats_nothing() -> None:
    # Megatron draws anew when a run is extended over the border of an epoch: 53 % repeats.
    order = SampleOrder(1000, seed=7)
    short = order.at_many(np.arange(700))
    long = order.at_many(np.arange(1700))
    assert np.array_equal(long[:700], short)
    assert len(set(long[:1000].tolist())) == 1000


def test_the_order_is_fixed_for_good() -> None:
    # A change here breaks the resumption of every run: it needs a new format of checkpoint.
    first = [2, 4, 7, 5, 1, 0, 9, 3, 8, 6]
    second = [4, 0, 9, 2, 6, 7, 3, 1, 8, 5]
    assert SampleOrder(10, seed=1234).at_many(np.arange(20)).tolist() == first + second
    assert chain("", np.array([1, 2, 3])) == "8556b7235bfcfffe8278b658079fb359"


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    n = 1000
    first = SampleOrder(n, seed=1).at_many(np.arange(2 * n))
    other = SampleOrder(n, seed=2).at_many(np.arange(n))
    # Two independent permutations agree in one place on average; 8 has odds of 1 in 100,000.
    assert (first[:n] == first[n:]).sum() < 8
    assert (first[:n] == other).sum() < 8


@pytest.mark.parametrize("num_samples", [1000, 1024, 1025, 65_537])
def test_neighbours_in_the_order_are_no_neighbours_in_the_corpus(num_samples: int) -> None:
    samples = SampleOrder(num_samples, seed=3).at_many(np.arange(num_samples))
    # Two random places are n / 3 apart on average, with a standard deviation of n / sqrt(18).
    distance = np.abs(np.diff(samples)).mean() / num_samples
    assert distance == pytest.approx(1 / 3, abs=5 / np.sqrt(18 * num_samples))
    displacement = np.abs(samples - np.arange(num_samples)).mean() / num_samples
    assert displacement == pytest.approx(1 / 3, abs=5 / np.sqrt(18 * num_samples))
    correlation = np.corrcoef(samples[:-1], samples[1:])[0, 1]
    assert abs(correlation) < 5 / np.sqrt(num_samples)


def test_any_window_of_the_order_draws_evenly_from_the_whole_corpus() -> None:
    num_samples, window, bins = 100_000, 2_000, 20
    samples = SampleOrder(num_samples, seed=11).at_many(np.arange(num_samples))
    for start in range(0, num_samples, window):
        found = np.bincount(samples[start : start + window] * bins // num_samples, minlength=bins)
        chi_square = ((found - window / bins) ** 2 / (window / bins)).sum()
        assert chi_square < 60  # 19 degrees of freedom: exceeded once in 200,000 windows.


def test_all_orders_of_a_few_samples_occur_equally_often() -> None:
    num_samples, epochs = 5, 60_000
    samples = SampleOrder(num_samples, seed=5).at_many(np.arange(num_samples * epochs))
    found = Counter(map(tuple, samples.reshape(epochs, num_samples).tolist()))
    expected = epochs / 120
    chi_square = sum((found[p] - expected) ** 2 / expected for p in permutations(range(5)))
    assert chi_square < 200  # 119 degrees of freedom: exceeded once in 200,000 seeds.


def test_an_order_of_nothing_and_a_negative_position_are_refused() -> None:
    with pytest.raises(ValueError, match="num_samples is 0"):
        SampleOrder(0, seed=1)
    with pytest.raises(ValueError, match="position -1"):
        SampleOrder(5, seed=1).at(-1)


@given(
    indices=st.lists(st.integers(0, 2**40), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_the_chain_does_not_depend_on_how_a_run_is_cut(indices: list[int], cuts: list[int]) -> None:
    samples = np.array(indices, dtype=np.int64)
    digest = ""
    for piece in np.split(samples, sorted(min(cut, len(indices)) for cut in cuts)):
        digest = chain(digest, piece)
    assert digest == chain("", samples)


def test_the_chain_tells_order_and_content_apart() -> None:
    runs = ([], [0], [0, 0], [1, 2, 3], [1, 3, 2], [1, 2], [1, 2, 4])
    digests = [chain("", np.array(run, dtype=np.int64)) for run in runs]
    assert len(set(digests)) == len(runs)
    assert all(len(digest) == 32 for digest in digests[1:])
