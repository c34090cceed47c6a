"""How well a model predicts held-out tokens, in nats a token and in bits a byte.

Bits a byte allow models of different tokenizers to be compared. The bytes are those of exactly
the predicted tokens; end-of-text is predicted like any token and has no byte.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

# N windows, T tokens of a window, V vocabulary


class PredictsTokens(Protocol):
    """A trained model or an n-gram model."""

    def token_nats(self, windows_NT: NDArray[Any]) -> NDArray[np.float64]:
        """(N, T - 1) negative log-probabilities of the tokens after the first of each window."""


@dataclass(frozen=True)
class Perplexity:
    """The means over `num_tokens` predicted tokens, which spell `num_bytes` bytes of text."""

    nats_per_token: float
    bits_per_byte: float
    num_tokens: int
    num_bytes: int


def measure(
    model: PredictsTokens, windows_NT: NDArray[Any], bytes_of_V: NDArray[np.int64]
) -> Perplexity:
    """Predict every token after the first of each window.

    Args:
        model: what predicts.
        windows_NT: token ids.
        bytes_of_V: bytes of each token; see `token_bytes`.
    """
    nats = model.token_nats(windows_NT)
    num_bytes = int(bytes_of_V[windows_NT[:, 1:]].sum())
    return Perplexity(
        nats_per_token=float(nats.mean()),
        bits_per_byte=float(nats.sum()) / math.log(2) / num_bytes,
        num_tokens=nats.size,
        num_bytes=num_bytes,
    )


def token_bytes(tokenizer: Tokenizer, end_of_text_id: int) -> NDArray[np.int64]:
    """The number of bytes of text that each token of a byte-level tokenizer spells.

    Such a tokenizer writes each byte as one character of its alphabet. Tokens added to it are
    written as they are; end-of-text spells nothing.
    """
    added = tokenizer.get_added_tokens_decoder()
    sizes = np.zeros(tokenizer.get_vocab_size(), dtype=np.int64)
    for token, number in tokenizer.get_vocab().items():
        sizes[number] = len(token.encode()) if number in added else len(token)
    sizes[end_of_text_id] = 0
    return sizes
