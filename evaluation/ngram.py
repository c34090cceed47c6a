"""Interpolated Kneser-Ney n-gram language models over token ids: what a trained model must beat.

An order n model predicts a token from the n - 1 before it. Each level of its recursion subtracts a
discount D from every count c and gives the mass to the level below, down to the uniform
distribution:

    P_k(w | u) = max(c_k(u w) - D_k, 0) / c_k(u) + D_k types_k(u) / c_k(u) * P_{k-1}(w | u')

where u' is u without its first token and types_k(u) counts the distinct w after u. The top level
counts occurrences; each level below counts in how many distinct contexts an n-gram stood. A context
never seen leaves the level below as it is. So every distribution sums to 1, and no token of the
vocabulary has probability 0.

The models see what the trained model sees: the context ends at the start of a window. Where a
window or a prompt offers fewer than n - 1 tokens, the model of that shorter order predicts.

Source: Chen and Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling",
section 3; D = n1 / (n1 + 2 n2) of Ney, Essen and Kneser 1994.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

# N windows, T tokens of a window, G n-grams, V vocabulary

_DISCOUNT_IF_UNKNOWN = 0.75
"""Where no count is 1 or none is 2, as in toy corpora, the estimate does not exist."""

_ROWS_AT_A_TIME = 4096


class NgramModel:
    """An n-gram model of one order, with those of the shorter orders for short contexts."""

    def __init__(self, levels: Sequence[_Level], vocab_size: int, shorter: Self | None) -> None:
        """Use `fit` instead."""
        self.order = len(levels)
        self.vocab_size = vocab_size
        self._levels = levels
        self._shorter = shorter

    @classmethod
    def fit(cls, windows_NT: NDArray[Any], order: int, vocab_size: int) -> Self:
        """Count the n-grams inside each window.

        Args:
            windows_NT: token ids, at least two a window. The first token of a window is context
                only. A window that stands twice counts twice, and counts that are all even break
                the estimate of the discounts: give each once.
            order: n, from 1 to 3.
            vocab_size: number of ids, seen or not.

        Raises:
            ValueError: there is no window, or an id is outside the vocabulary.
        """
        assert 1 <= order <= 3
        if windows_NT.size == 0 or windows_NT.shape[1] < 2:
            raise ValueError(f"windows of shape {windows_NT.shape} hold no token to predict")
        _check_ids(windows_NT, vocab_size)
        shorter = cls.fit(windows_NT, order - 1, vocab_size) if order > 1 else None
        # In a window too short for the order, only the shorter models ever speak.
        order = min(order, windows_NT.shape[1])
        grams_G, counts_G = _count(_ngrams(windows_NT, order, vocab_size))
        levels = [_Level.of(grams_G, counts_G, vocab_size)]
        for length in range(order - 1, 0, -1):
            types_G, _ = _count(_ngrams(windows_NT, length + 1, vocab_size))
            levels.append(_Level.of(*_count(types_G % vocab_size**length), vocab_size))
        return cls(levels[::-1], vocab_size, shorter)

    def token_nats(self, windows_NT: NDArray[Any]) -> NDArray[np.float64]:
        """Negative log-probability of every token after the first of its window.

        Returns:
            (N, T - 1) nats.
        """
        _check_ids(windows_NT, self.vocab_size)
        rows = range(0, len(windows_NT), _ROWS_AT_A_TIME)
        return np.concatenate(
            [-self._log_probabilities(windows_NT[r : r + _ROWS_AT_A_TIME], 1) for r in rows]
        )

    def nats_per_token(self, windows_NT: NDArray[Any]) -> float:
        """Mean of `token_nats`: the cross-entropy on these windows."""
        return float(self.token_nats(windows_NT).mean())

    def log_probability(self, context: Sequence[int], continuation: Sequence[int]) -> float:
        """Natural log-probability of `continuation` right after `context`, which may be empty."""
        if not continuation:
            return 0.0
        used = self._used(context)
        tokens = np.array([[*used, *continuation]], dtype=np.int64)
        _check_ids(tokens, self.vocab_size)
        return float(self._log_probabilities(tokens, len(used)).sum())

    def distribution(self, context: Sequence[int]) -> NDArray[np.float64]:
        """(V,) probabilities of the token after `context`, which may be empty."""
        used = self._used(context)
        if len(used) < self.order - 1:
            assert self._shorter is not None
            return self._shorter.distribution(used)
        context_ids = np.array(used, dtype=np.int64)
        _check_ids(context_ids, self.vocab_size)
        words_V = np.arange(self.vocab_size)
        grams_VK = np.column_stack([np.tile(context_ids, (self.vocab_size, 1)), words_V])
        return self._probabilities(grams_VK)

    def next_token(self, context: Sequence[int]) -> int:
        """The likeliest token after `context`; the lowest id of equally likely ones."""
        return int(self.distribution(context).argmax())

    def _used(self, context: Sequence[int]) -> list[int]:
        return list(context)[max(0, len(context) - self.order + 1) :]

    def _log_probabilities(self, tokens_NT: NDArray[Any], first: int) -> NDArray[np.float64]:
        """Of the tokens from column `first` on, each given those before it in its row."""
        columns = []
        full = max(first, self.order - 1)
        if first < full:
            assert self._shorter is not None
            columns.append(self._shorter._log_probabilities(tokens_NT[:, :full], first))
        if full < tokens_NT.shape[1]:
            grams = np.lib.stride_tricks.sliding_window_view(
                tokens_NT[:, full - self.order + 1 :], self.order, axis=1
            )
            probabilities = self._probabilities(grams.reshape(-1, self.order))
            columns.append(np.log(probabilities).reshape(len(tokens_NT), -1))
        return np.concatenate(columns, axis=1)

    def _probabilities(self, grams_GK: NDArray[Any]) -> NDArray[np.float64]:
        """Of the last token of each n-gram, given the others."""
        probabilities_G = np.full(len(grams_GK), 1.0 / self.vocab_size)
        keys_G = np.zeros(len(grams_GK), dtype=np.int64)
        scale = 1
        for length, level in enumerate(self._levels, start=1):
            keys_G = keys_G + grams_GK[:, -length].astype(np.int64) * scale
            scale *= self.vocab_size
            probabilities_G = level.interpolate(keys_G, probabilities_G)
        return probabilities_G


@dataclass(frozen=True)
class _Level:
    """Counts of the n-grams of one length, as sorted keys.

    The key of an n-gram reads its ids as digits to base V, so its context is the key // V.
    """

    vocab_size: int
    discount: float
    grams: NDArray[np.int64]
    counts: NDArray[np.int64]
    contexts: NDArray[np.int64]
    totals: NDArray[np.int64]
    types: NDArray[np.int64]

    @classmethod
    def of(cls, grams_G: NDArray[np.int64], counts_G: NDArray[np.int64], vocab_size: int) -> Self:
        contexts, starts = np.unique(grams_G // vocab_size, return_index=True)
        once, twice = int((counts_G == 1).sum()), int((counts_G == 2).sum())
        return cls(
            vocab_size=vocab_size,
            discount=once / (once + 2 * twice) if once and twice else _DISCOUNT_IF_UNKNOWN,
            grams=grams_G,
            counts=counts_G,
            contexts=contexts,
            totals=np.add.reduceat(counts_G, starts),
            types=np.diff(np.append(starts, len(grams_G))),
        )

    def interpolate(
        self, keys_G: NDArray[np.int64], below_G: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Mix this level's estimates for n-grams with those of the level below."""
        counts = _look_up(self.grams, self.counts, keys_G)
        context_keys = keys_G // self.vocab_size
        totals = _look_up(self.contexts, self.totals, context_keys)
        types = _look_up(self.contexts, self.types, context_keys)
        mixed = np.maximum(counts - self.discount, 0) + self.discount * types * below_G
        return np.where(totals > 0, mixed / np.maximum(totals, 1), below_G)


def _ngrams(windows_NT: NDArray[Any], length: int, vocab_size: int) -> NDArray[np.int64]:
    """Keys of all n-grams inside the windows that end on a predicted token."""
    assert vocab_size**length < 2**63
    first = max(length - 1, 1)
    last = windows_NT.shape[1]
    keys = np.zeros((len(windows_NT), last - first), dtype=np.int64)
    for back in range(length - 1, -1, -1):
        keys = keys * vocab_size + windows_NT[:, first - back : last - back]
    return keys.ravel()


def _count(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    grams, counts = np.unique(keys, return_counts=True)
    return grams, counts.astype(np.int64)


def _look_up(
    keys: NDArray[np.int64], values: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The value of each wanted key; 0 where there is none."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)


def _check_ids(ids: NDArray[Any], vocab_size: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise ValueError(
            f"Token id {wrong} is outside the vocabulary of {vocab_size}. "
            "Do the tokens come from another tokenizer?"
        )
