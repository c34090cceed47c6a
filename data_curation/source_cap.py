"""The cap of a source, so that one which is far larger than the rest does not drown them.

Groups of a source are taken whole, in the order of a seeded digest, until the next would exceed
the cap. A larger cap therefore only adds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_curation.held_out import group_rank


def groups_beyond_cap(
    files: Iterable[Path], max_source_bytes: int | None, seed: int
) -> dict[tuple[str, str], int]:
    """Return the groups that a cap leaves out.

    Args:
        files: files of documents; their texts are measured, not decoded.
        max_source_bytes: UTF-8 bytes that a source may hold; None for any number.
        seed: of the order of groups.

    Returns:
        For each (source, group) left out, the bytes that the source would have come to with it.

    Raises:
        ValueError: the first group of a source alone exceeds the cap.
    """
    if max_source_bytes is None:
        return {}
    beyond: dict[tuple[str, str], int] = {}
    for source, groups in _group_bytes(files).items():
        ranked = sorted(groups, key=lambda group: (group_rank(group, seed, "source_cap"), group))
        total = 0
        for number, group in enumerate(ranked):
            total += groups[group]
            if total > max_source_bytes:
                if number == 0:
                    raise ValueError(
                        f"curation.max_source_bytes = {max_source_bytes} leaves nothing of source "
                        f"{source}: {group}, which comes first, holds {total} bytes, and groups "
                        "stay whole. Raise it, or cut the input into smaller files."
                    )
                beyond[source, group] = total
    return beyond


def _group_bytes(files: Iterable[Path]) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["source", "group", "text"]):
                lengths = pc.binary_length(batch.column("text")).to_pylist()
                names = (batch.column(name).to_pylist() for name in ("source", "group"))
                for source, group, length in zip(*names, lengths, strict=True):
                    total[source][group] += length
    return total
