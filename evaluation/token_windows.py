"""Windows of tokens, read from the Megatron shards that the stage `tokenize` wrote.

A window is a sample: the S + 1 tokens from i * S on, in the stream of a split's shards. Every
number about held-out text is taken on windows, so that a model and its baselines predict the same
tokens from the same context.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# N windows, S sequence length


def read_windows(
    tokenized: Path,
    split: str,
    sequence_length: int,
    indices: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Read windows of `split`.

    Args:
        tokenized: folder of the stage `tokenize`.
        split: "train" or "held_out".
        sequence_length: S.
        indices: (N,) which windows; all of the split if absent.

    Returns:
        (N, S + 1) token ids, in the type of the shards.

    Raises:
        ValueError: a shard is damaged, the split is too small, or there is no such window.
    """
    summary = json.loads((tokenized / "shards.json").read_text(encoding="utf-8"))
    dtype = np.dtype(summary["dtype"])
    shards = [_map_shard(tokenized, s, dtype) for s in summary["splits"][split]["shards"]]
    num_tokens = sum(len(tokens) for tokens in shards)
    num_windows = (num_tokens - 1) // sequence_length
    if num_windows < 1:
        raise ValueError(
            f"The {split} split holds {num_tokens} tokens, and one window takes "
            f"{sequence_length + 1}. Shorten training.sequence_length, or bring more text."
        )
    if indices is None:
        indices = np.arange(num_windows)
    elif indices.size and (indices.min() < 0 or indices.max() >= num_windows):
        raise ValueError(
            f"Windows {indices.min()} to {indices.max()} were asked for; the {split} split has "
            f"{num_windows}. Were they drawn from other shards?"
        )
    windows = np.empty((len(indices), sequence_length + 1), dtype)
    positions = indices[:, None] * sequence_length + np.arange(sequence_length + 1)
    start = 0
    for tokens in shards:
        here = (positions >= start) & (positions < start + len(tokens))
        windows[here] = tokens[positions[here] - start]
        start += len(tokens)
    return windows


def _map_shard(tokenized: Path, shard: dict[str, Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    file = tokenized / "shards" / f"{shard['prefix']}.bin"
    expected = shard["num_tokens"] * dtype.itemsize
    if (found := file.stat().st_size) != expected:
        raise ValueError(
            f"{file} has {found} bytes and should have {expected}. Run the stage tokenize again."
        )
    return np.asarray(np.memmap(file, dtype=dtype, mode="r", shape=(shard["num_tokens"],)))
