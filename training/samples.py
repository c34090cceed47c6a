"""Training samples, read from Megatron shards by memory map.

The token stream of a split is its shards one after another. With sequence length S, sample i is the
S + 1 tokens from i * S on: S inputs and, one further, S labels. Samples do not heed the borders of
documents or shards; the last incomplete window is left out.

Sizes are checked on opening: a file that is shorter or longer than `shards.json` and its own index
say is refused by name.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# S sequence length, B batch

_INDEX_HEADER = struct.Struct("<9sQBQQ")
_DTYPES = {4: np.dtype(np.int32), 8: np.dtype(np.uint16)}


class TokenizedSplit:
    """One split of a tokenized corpus, cut into samples.

    Attributes:
        num_tokens: length of the token stream.
        num_samples: complete samples in it.
        sequence_length: S.
        vocab_size: size of the tokenizer's vocabulary, not padded.
        tokenizer_sha256: digest of the tokenizer's file.
    """

    def __init__(self, tokenized: Path, split: str, sequence_length: int) -> None:
        """Open `split` ("train" or "held_out") of the folder that the stage `tokenize` wrote.

        Raises:
            ValueError: a file is damaged, or the split is too small for one sample.
        """
        summary = json.loads((tokenized / "shards.json").read_text(encoding="utf-8"))
        self.sequence_length = sequence_length
        self.vocab_size: int = summary["vocab_size"]
        self.tokenizer_sha256: str = summary["tokenizer_sha256"]
        self.num_tokens: int = summary["splits"][split]["num_tokens"]
        self.num_samples = (self.num_tokens - 1) // sequence_length
        if self.num_samples < 1:
            raise ValueError(
                f"The {split} split holds {self.num_tokens} tokens, and one sample takes "
                f"sequence_length + 1 = {sequence_length + 1}. Shorten training.sequence_length, "
                "or bring more text."
            )
        dtype = np.dtype(summary["dtype"])
        shards = summary["splits"][split]["shards"]
        self._shards = [_open_shard(tokenized / "shards", shard, dtype) for shard in shards]
        # Where each shard starts in the stream, and the end of the last.
        self._starts = np.cumsum([0] + [len(tokens) for tokens in self._shards])

    def tokens(self, sample_index: int) -> NDArray[np.int64]:
        """The (S + 1,) tokens of one sample.

        Raises:
            IndexError: there is no such sample.
        """
        if not 0 <= sample_index < self.num_samples:
            raise IndexError(f"sample {sample_index} of {self.num_samples}")
        position = sample_index * self.sequence_length
        end = position + self.sequence_length + 1
        pieces = []
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        while position < end:
            start = int(self._starts[number])
            piece = self._shards[number][position - start : end - start]
            pieces.append(piece)
            position += len(piece)
            number += 1
        return np.concatenate(pieces).astype(np.int64)

    def batch(self, sample_indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The (B, S + 1) tokens of the samples with these (B,) indices."""
        return np.stack([self.tokens(index) for index in np.asarray(sample_indices).tolist()])


def _open_shard(folder: Path, shard: dict[str, Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Map the tokens of one shard after checking its two files against each other."""
    index, tokens = folder / f"{shard['prefix']}.idx", folder / f"{shard['prefix']}.bin"
    num_documents, num_tokens = shard["num_documents"], shard["num_tokens"]
    # Per document an int32 length and an int64 start; int64 borders, one more than documents.
    _check_size(index, _INDEX_HEADER.size + num_documents * 12 + (num_documents + 1) * 8)
    _check_size(tokens, num_tokens * dtype.itemsize)
    with index.open("rb") as file:
        magic, version, code, sequences, _ = _INDEX_HEADER.unpack(file.read(_INDEX_HEADER.size))
        lengths = np.fromfile(file, dtype="<i4", count=num_documents)
    if magic != b"MMIDIDX\x00\x00" or version != 1 or _DTYPES.get(code) != dtype:
        raise ValueError(
            f"{index} is no Megatron index, format 1, of {dtype.name}: it begins with {magic!r}, "
            f"format {version}, type code {code}. Run the stage tokenize again."
        )
    if sequences != num_documents or int(lengths.sum(dtype=np.int64)) != num_tokens:
        raise ValueError(
            f"{index} lists {sequences} documents of {lengths.sum(dtype=np.int64)} tokens, and "
            f"shards.json {num_documents} of {num_tokens}. Run the stage tokenize again."
        )
    return np.asarray(np.memmap(tokens, dtype=dtype, mode="r", shape=(num_tokens,)))


def _check_size(file: Path, expected: int) -> None:
    if not file.is_file():
        raise ValueError(f"{file} is missing. Run the stage tokenize again.")
    if (found := file.stat().st_size) != expected:
        raise ValueError(
            f"{file} has {found} bytes and should have {expected}. Run the stage tokenize again."
        )
