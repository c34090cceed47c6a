"""Documents that share most of their shingles.

Three steps, so that recall and precision are separate: LSH over MinHash signatures proposes pairs,
exact Jaccard similarity decides each, and the connected components of the pairs that hold are the
clusters. The longest document of a cluster stays. A dropped one is always a near-duplicate of some
member of its cluster, though not always of the one that stays.

N documents are known by their numbers, from 0, in the order in which they were added. What is kept
in memory is the LSH index; shingles lie on disk.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from datasketch import LeanMinHash, MinHashLSH
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from data_curation.config import DedupConfig
from data_curation.in_order import map_in_order
from data_curation.shingles import SCHEME, SIGNATURE_SEED

# N documents, H shingles of some documents after one another, P permutations, C candidate pairs

_PAIRS_AT_ONCE = 4096


class NearDuplicate(NamedTuple):
    """Why a document is dropped.

    Attributes:
        representative: number of the document that stays.
        jaccard: similarity to it, or else to `neighbour`.
        neighbour: where `representative` was not found similar itself, the most similar member of
            the cluster.
    """

    representative: int
    jaccard: float
    neighbour: int | None


class Clustering(NamedTuple):
    """The near-duplicates by their numbers, and the pairs that were proposed and that held."""

    dropped: dict[int, NearDuplicate]
    candidate_pairs: int
    verified_pairs: int


def candidate_probability(jaccard: float, num_bands: int, num_rows: int) -> float:
    """Return how likely LSH proposes a pair of this similarity.

    Source: Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, section 3.4.
    """
    return float(1 - (1 - jaccard**num_rows) ** num_bands)


class NearDuplicates:
    """Finds near-duplicates. A context manager, which closes the file of shingles.

    Args:
        config: bands, and the least similarity of near-duplicates.
        shingle_file: scratch file to write.
    """

    def __init__(self, config: DedupConfig, shingle_file: Path) -> None:
        self._config = config
        self._path = shingle_file
        self._file = shingle_file.open("wb")
        self._ends = array("q", [0])
        self._pairs = array("q")
        # Bands are explicit: datasketch's own choice for a threshold misses most pairs near it.
        self._index = MinHashLSH(
            num_perm=config.num_bands * config.num_rows,
            params=(config.num_bands, config.num_rows),
        )

    def __enter__(self) -> NearDuplicates:
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()

    def add(
        self,
        signatures: NDArray[np.uint32],
        hashes: NDArray[np.uint64],
        counts: NDArray[np.int64],
    ) -> None:
        """Add documents.

        Args:
            signatures: (N, P) MinHash signatures.
            hashes: (H,) shingles, sorted within each document.
            counts: (N,) shingles of each document.
        """
        self._file.write(hashes.tobytes())
        for values, count in zip(signatures, counts.tolist(), strict=True):
            number = len(self._ends) - 1
            sketch = LeanMinHash(seed=SIGNATURE_SEED, hashvalues=values, scheme=SCHEME)
            for other in self._index.query(sketch):
                self._pairs.extend((other, number))
            self._index.insert(number, sketch, check_duplication=False)
            self._ends.append(self._ends[-1] + count)

    def cluster(
        self,
        lengths: Sequence[int],
        ids: Sequence[str],
        executor: Executor,
        progress: Callable[[float], None],
    ) -> Clustering:
        """Verify the pairs and choose what stays: the longest of a cluster, then by smallest id.

        Args:
            lengths: (N,) characters of each document.
            ids: (N,) ids.
            executor: verifies pairs.
            progress: told the share of pairs verified.
        """
        self._file.close()
        candidates = np.array(self._pairs, dtype=np.int64).reshape(-1, 2)
        similarity = self._verify(candidates, executor, progress)
        held = similarity >= self._config.jaccard
        pairs, jaccard = candidates[held], similarity[held]
        count = len(ids)
        graph = coo_array((np.ones(len(pairs), dtype=bool), pairs.T), shape=(count, count))
        _, labels = connected_components(graph, directed=False)
        neighbours: dict[int, dict[int, float]] = defaultdict(dict)
        for (one, other), value in zip(pairs.tolist(), jaccard.tolist(), strict=True):
            neighbours[one][other] = neighbours[other][one] = value
        clusters: dict[int, list[int]] = defaultdict(list)
        for number in sorted(neighbours):
            clusters[int(labels[number])].append(number)
        dropped = {}
        for members in clusters.values():
            kept = min(members, key=lambda number: (-lengths[number], ids[number]))
            for number in members:
                if number == kept:
                    continue
                near = neighbours[number]
                if kept in near:
                    dropped[number] = NearDuplicate(kept, near[kept], None)
                else:
                    closest = min(near, key=lambda other: (-near[other], ids[other]))
                    dropped[number] = NearDuplicate(kept, near[closest], closest)
        return Clustering(dropped, len(candidates), len(pairs))

    def _verify(
        self,
        candidates: NDArray[np.int64],
        executor: Executor,
        progress: Callable[[float], None],
    ) -> NDArray[np.float64]:
        ends = np.array(self._ends, dtype=np.int64)
        # For each pair: where the shingles of either begin and end.
        spans = np.stack([ends[candidates], ends[candidates + 1]], axis=2).reshape(-1, 4)
        chunks = [
            PairChunk(self._path, spans[start : start + _PAIRS_AT_ONCE])
            for start in range(0, len(spans), _PAIRS_AT_ONCE)
        ]
        verified = []
        for _, values in map_in_order(executor, jaccard_similarities, chunks):
            verified.append(values)
            progress(len(verified) / len(chunks))
        return np.concatenate([np.empty(0), *verified])


class PairChunk(NamedTuple):
    """Pairs to compare: (C, 4) offsets into a file of shingles, begin and end of either."""

    path: Path
    spans: NDArray[np.int64]


def jaccard_similarities(chunk: PairChunk) -> NDArray[np.float64]:
    """Return the (C,) exact Jaccard similarities of some pairs. Runs in a worker."""
    hashes = np.memmap(chunk.path, dtype=np.uint64, mode="r")
    values = np.empty(len(chunk.spans))
    for number, (start, end, other_start, other_end) in enumerate(chunk.spans.tolist()):
        one, other = hashes[start:end], hashes[other_start:other_end]
        common = np.intersect1d(one, other, assume_unique=True).size
        values[number] = common / (one.size + other.size - common)
    return values
