"""Documents whose cleaned text is the same to the character."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from data_curation.documents import Document


class ExactDuplicates:
    """Collects digests of texts, 36 bytes a document, then says which are repetitions.

    Of equal texts, the first by (order of sources, id) is the representative.
    """

    def __init__(self) -> None:
        self._sources: dict[str, int] = {}
        self._source_numbers: list[int] = []
        self._ids: list[bytes] = []
        self._digests: list[bytes] = []

    def add(self, document: Document) -> None:
        """Take note of the next document."""
        number = self._sources.setdefault(document.source, len(self._sources))
        self._source_numbers.append(number)
        self._ids.append(bytes.fromhex(document.id))
        self._digests.append(hashlib.blake2b(document.text.encode(), digest_size=16).digest())

    def id_of(self, number: int) -> str:
        """Return the id of a document by its number, in the order of adding."""
        return self._ids[number].hex()

    def representatives(self) -> NDArray[np.int64]:
        """Return (N,) for each document the number of its representative: itself, if kept."""
        count = len(self._ids)
        sources = np.array(self._source_numbers, dtype=np.int32)
        ids = _as_integers(self._ids)
        digests = _as_integers(self._digests)
        # The last key counts most; equal ids are one record read twice, the first of them leads.
        order = np.lexsort((ids[:, 1], ids[:, 0], sources, digests[:, 1], digests[:, 0]))
        sorted_digests = digests[order]
        leads = np.ones(count, dtype=bool)
        leads[1:] = (sorted_digests[1:] != sorted_digests[:-1]).any(axis=1)
        representatives = np.empty(count, dtype=np.int64)
        representatives[order] = order[leads][np.cumsum(leads) - 1]
        return representatives


def _as_integers(digests: list[bytes]) -> NDArray[np.uint64]:
    """(N, 2) integers that sort as the (N,) digests of 16 bytes do."""
    return np.frombuffer(b"".join(digests), dtype=">u8").reshape(-1, 2).astype(np.uint64)
