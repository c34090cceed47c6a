"""Texts as sets of word shingles, and their MinHash signatures.

A *shingle* is some consecutive words, lower-cased, whatever stands between them. A text of fewer
words is one shingle of all its words. Shingles are known by 64-bit hashes: within a pair of
documents two of them collide less often than once in 10^8 pairs, so a Jaccard similarity of these
sets is taken as exact.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import xxhash
from datasketch import MinHash
from numpy.typing import NDArray

# H shingles of a text, P permutations

MAX_CHARACTERS = 500_000
"""Of longer texts, the beginning counts. A huge text is near to anything, and costs minutes."""

SCHEME = "affine32"
"""datasketch's permutation scheme. Signatures of other schemes do not compare."""

SIGNATURE_SEED = 1
_WORD = re.compile(r"\w+")
_SHINGLES_AT_ONCE = 8192


def shingles(text: str, shingle_words: int) -> NDArray[np.uint64]:
    """Return (H,) sorted hashes of the distinct shingles of `text`; at least one."""
    # A text without a word stands for itself.
    found = _WORD.findall(text[:MAX_CHARACTERS].lower()) or [text]
    words = [word.encode() for word in found]
    count = max(1, len(words) - shingle_words + 1)
    windows = (b" ".join(words[start : start + shingle_words]) for start in range(count))
    return np.unique(np.fromiter(map(xxhash.xxh3_64_intdigest, windows), np.uint64, count))


def signature(hashes: NDArray[np.uint64], num_permutations: int) -> NDArray[np.uint32]:
    """Return the (P,) MinHash signature of the (H,) shingles of a text.

    Source: Broder 1997, On the resemblance and containment of documents.
    """
    sketch = _empty_sketch(num_permutations).copy()
    low_bits = hashes.astype(np.uint32)
    for start in range(0, len(low_bits), _SHINGLES_AT_ONCE):
        sketch.update_batch(low_bits[start : start + _SHINGLES_AT_ONCE].tolist())
    values: NDArray[np.uint32] = sketch.hashvalues
    return values


@lru_cache(maxsize=1)
def _empty_sketch(num_permutations: int) -> MinHash:
    # The shingles are hashes already.
    return MinHash(num_permutations, seed=SIGNATURE_SEED, hashfunc=int, scheme=SCHEME)
