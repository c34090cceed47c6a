"""The n-gram baselines against numbers worked out by hand and a slow implementation."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from evaluation.ngram import NgramModel


class SlowKneserNey:
    """The formula of Chen and Goodman, word for word, with dictionaries and recursion."""

    def __init__(self, windows: list[list[int]], order: int, vocab_size: int) -> None:
        self.order = order
        self.vocab_size = vocab_size
        self.counts: list[Counter[tuple[int, ...]]] = [Counter()]
        for length in range(1, order + 1):
            counts: Counter[tuple[int, ...]] = Counter()
            if length == order:
                for window in windows:
                    for end in range(max(length, 2), len(window) + 1):
                        counts[tuple(window[end - length : end])] += 1
            else:
                contexts = defaultdict(set)
                for window in windows:
                    for end in range(length + 1, len(window) + 1):
                        contexts[tuple(window[end - length : end])].add(window[end - length - 1])
                counts.update({gram: len(before) for gram, before in contexts.items()})
            self.counts.append(counts)

    def probability(self, context: tuple[int, ...], word: int) -> float:
        length = len(context) + 1
        counts = self.counts[length]
        below = self.probability(context[1:], word) if context else 1 / self.vocab_size
        total = sum(c for gram, c in counts.items() if gram[:-1] == context)
        if not total:
            return below
        types = sum(1 for gram in counts if gram[:-1] == context)
        once, twice = (sum(1 for c in counts.values() if c == n) for n in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.75
        count = counts[(*context, word)]
        return (max(count - discount, 0) + discount * types * below) / total


def _zipf_windows(num: int, length: int, vocab_size: int, seed: int) -> np.ndarray:
    """A Markov chain over a skewed vocabulary, so that n-grams of all orders repeat."""
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, vocab_size + 1)
    rows = np.stack([generator.permutation(weights) ** 2 for _ in range(vocab_size)])
    rows /= rows.sum(axis=1, keepdims=True)
    tokens = [0]
    for _ in range(num * length - 1):
        tokens.append(int(generator.choice(vocab_size, p=rows[tokens[-1]])))
    return np.array(tokens, dtype=np.uint16).reshape(num, length)


V = 12
WINDOWS = _zipf_windows(30, 9, V, seed=1)
HELD_OUT = _zipf_windows(6, 9, V, seed=2)


def test_the_unigram_by_hand() -> None:
    # Predicted tokens: 1 1 1 2 2 3 of a vocabulary of 5; counts 3, 2, 1, so D = 1 / (1 + 2) = 1/3.
    model = NgramModel.fit(np.array([[4, 1, 1, 2], [4, 1, 2, 3]]), order=1, vocab_size=5)
    unseen = (1 / 3) * 3 / 6 / 5
    expected = [unseen, (3 - 1 / 3) / 6 + unseen, (2 - 1 / 3) / 6 + unseen, (2 / 3) / 6 + unseen]
    assert model.distribution([]).tolist() == pytest.approx([*expected, unseen])
    assert model.next_token([]) == 1


def test_the_bigram_by_hand() -> None:
    # Bigrams: 0-1 twice, 0-2 once, 1-0 once, 2-0 once: n1 = 3, n2 = 1, D = 3 / 5.
    # Below: 0 follows two tokens, 1 and 2 follow one each: n1 = 2, n2 = 1, D = 2 / 4.
    model = NgramModel.fit(np.array([[0, 1, 0, 2, 0, 1]]), order=2, vocab_size=4)
    uniform = (1 / 2) * 3 / 4 / 4
    below_1 = (1 - 1 / 2) / 4 + uniform
    after_0 = (2 - 3 / 5) / 3 + (3 / 5) * 2 / 3 * below_1
    assert model.distribution([0])[1] == pytest.approx(after_0)
    # 3 was never a context: the level below speaks alone.
    assert model.distribution([3])[1] == pytest.approx(below_1)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_every_distribution_equals_the_slow_implementation_and_sums_to_one(order: int) -> None:
    model = NgramModel.fit(WINDOWS, order, V)
    contexts = [c for n in range(order) for c in np.ndindex(*[V] * n)][:80]
    for context in contexts:
        slow = SlowKneserNey(WINDOWS.tolist(), len(context) + 1, V)
        expected = [slow.probability(context, word) for word in range(V)]
        found = model.distribution(context)
        assert found.tolist() == pytest.approx(expected)
        assert found.sum() == pytest.approx(1)
        assert found.min() > 0


def test_windows_are_scored_on_every_token_but_the_first_with_context_from_inside() -> None:
    model = NgramModel.fit(WINDOWS, 3, V)
    slow = {n: SlowKneserNey(WINDOWS.tolist(), n, V) for n in (2, 3)}
    expected = [
        [
            -math.log(slow[min(t + 1, 3)].probability(tuple(window[max(0, t - 2) : t]), window[t]))
            for t in range(1, len(window))
        ]
        for window in HELD_OUT.tolist()
    ]
    assert model.token_nats(HELD_OUT) == pytest.approx(np.array(expected))
    assert model.nats_per_token(HELD_OUT) == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("context", [[], [3], [3, 1], [5, 3, 1, 0]])
def test_a_continuation_is_scored_token_by_token(order: int, context: list[int]) -> None:
    model = NgramModel.fit(WINDOWS, order, V)
    text, expected = list(context), 0.0
    for word in (2, 0, 7):
        expected += math.log(model.distribution(text)[word])
        text.append(word)
    assert model.log_probability(context, [2, 0, 7]) == pytest.approx(expected)
    assert model.log_probability(context, []) == 0


def test_the_next_token_is_the_likeliest() -> None:
    model = NgramModel.fit(np.array([[5, 6, 7, 5, 6, 7, 5, 6, 8]]), 3, vocab_size=10)
    assert model.next_token([5, 6]) == 7
    assert model.next_token([9, 9, 9, 5, 6]) == 7
    assert model.next_token([7]) == 5


def test_more_context_predicts_text_with_structure_better() -> None:
    generator = np.random.default_rng(0)
    # Each token is set by the two before it, nine times out of ten.
    table = generator.integers(0, 30, (30, 30))
    tokens = [1, 2]
    for _ in range(60_000):
        noise = generator.random() < 0.1
        tokens.append(int(generator.integers(30) if noise else table[tokens[-2], tokens[-1]]))
    windows = np.array(tokens[: 60_000 // 25 * 25]).reshape(-1, 25)
    nats = [
        NgramModel.fit(windows[:2000], order, 30).nats_per_token(windows[2000:])
        for order in (1, 2, 3)
    ]
    assert nats[0] > nats[1] > nats[2]
    # The chain's own entropy: 0.9 + 0.1 / 30 for the likely token, 0.1 / 30 for each other.
    likely, other = 0.9 + 0.1 / 30, 0.1 / 30
    entropy = -likely * math.log(likely) - 29 * other * math.log(other)
    assert entropy < nats[2] < entropy + 0.5


def test_large_vocabularies_do_not_overflow_the_keys() -> None:
    vocab_size = 200_000
    windows = np.array([[199_999, 199_998, 199_999, 199_998, 199_997]], dtype=np.int32)
    model = NgramModel.fit(windows, 3, vocab_size)
    assert model.distribution([199_999, 199_998]).sum() == pytest.approx(1)
    assert model.next_token([199_998, 199_999]) == 199_998


def test_windows_shorter_than_the_order_are_scored_by_the_shorter_model() -> None:
    windows = WINDOWS.reshape(-1, 2)
    bigram, trigram = (NgramModel.fit(windows, order, V) for order in (2, 3))
    assert trigram.nats_per_token(windows) == pytest.approx(bigram.nats_per_token(windows))


def test_ids_outside_the_vocabulary_and_empty_input_are_refused() -> None:
    with pytest.raises(ValueError, match="Token id 12 is outside the vocabulary of 12"):
        NgramModel.fit(np.array([[1, 12]]), 2, V)
    model = NgramModel.fit(WINDOWS, 3, V)
    with pytest.raises(ValueError, match="Token id 40"):
        model.log_probability([1], [40])
    with pytest.raises(ValueError, match="Token id -1"):
        model.distribution([3, -1])
    with pytest.raises(ValueError, match="hold no token to predict"):
        NgramModel.fit(np.empty((0, 9), dtype=np.int64), 2, V)
