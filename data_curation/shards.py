"""Megatron shards: a `.bin` file of token ids and an `.idx` file that says where documents end.

One document is one sequence. Shards are cut between documents only, none is empty, and their bytes
depend on the documents and the bound alone, never on how the documents were handed in. Beside each
shard a Parquet file names the document that starts at each token.

The layout is megatron-core's `IndexedDataset`, format 1. Its builder is not used, because it brings
torch along (4 s, 370 MB) for a header and three arrays; a test holds the bytes equal to it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

_DTYPE_CODES = {"int32": 4, "uint16": 8}
_ROWS_PER_GROUP = 1 << 16
_DOCUMENTS_SCHEMA = pa.schema(
    [("first_token", pa.int64()), ("id", pa.string()), ("source", pa.string())]
)


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The narrowest type that Megatron reads and that holds every id of the vocabulary."""
    return np.dtype(np.uint16 if vocab_size < 65536 else np.int32)


@dataclass(frozen=True)
class Shard:
    """One finished shard, as `shards.json` lists it."""

    prefix: str
    num_documents: int
    num_tokens: int
    num_bytes: int


@dataclass(frozen=True)
class EncodedDocuments:
    """Some documents after one another; D documents, T tokens in all.

    Attributes:
        tokens: (T,) ids, each document ended by end-of-text.
        lengths: (D,) tokens of each document, end-of-text included.
        text_bytes: (D,) UTF-8 bytes of each document's text.
    """

    tokens: NDArray[Any]
    lengths: NDArray[np.int64]
    text_bytes: NDArray[np.int64]


class ShardWriter:
    """Writes one split into `folder`, as `<split>-00000.bin` and so on.

    Used as a context manager: the last shard is finished on leaving it.
    """

    def __init__(self, folder: Path, split: str, dtype: np.dtype[Any], shard_bytes: int) -> None:
        self._folder = folder
        self._split = split
        self._dtype = dtype
        self._max_tokens = shard_bytes // dtype.itemsize
        self._shard_bytes = shard_bytes
        self._open_shard: _OpenShard | None = None
        self.shards: list[Shard] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        failure: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if failure is None:
            self._finish_shard()
        elif self._open_shard is not None:
            self._open_shard.close()

    def add(self, batch: EncodedDocuments, ids: Sequence[str], sources: Sequence[str]) -> None:
        """Append the documents of `batch`; `ids` and `sources` name them.

        Raises:
            ValueError: a document is larger than a shard may be.
        """
        ends = np.cumsum(batch.lengths)
        first, offset = 0, 0
        while first < len(ids):
            shard = self._open_shard or self._start_shard()
            room = self._max_tokens - shard.num_tokens
            last = int(np.searchsorted(ends, offset + room, side="right"))
            if last > first:
                end = int(ends[last - 1])
                shard.append(
                    EncodedDocuments(
                        batch.tokens[offset:end],
                        batch.lengths[first:last],
                        batch.text_bytes[first:last],
                    ),
                    ids[first:last],
                    sources[first:last],
                )
                first, offset = last, end
            elif shard.num_tokens:
                self._finish_shard()
            else:
                raise ValueError(
                    f"Document {ids[first]} of source {sources[first]} takes "
                    f"{int(batch.lengths[first]) * self._dtype.itemsize} bytes as tokens, more "
                    f"than tokenizer.shard_bytes = {self._shard_bytes}. Raise it, or bound the "
                    "documents by curation.length.max_characters."
                )

    def _start_shard(self) -> _OpenShard:
        prefix = f"{self._split}-{len(self.shards):05d}"
        self._open_shard = _OpenShard(self._folder, prefix, self._dtype)
        return self._open_shard

    def _finish_shard(self) -> None:
        if self._open_shard is not None:
            self.shards.append(self._open_shard.finish())
            self._open_shard = None


class _OpenShard:
    """The shard being written. Tokens go straight to disk; only lengths stay in memory."""

    def __init__(self, folder: Path, prefix: str, dtype: np.dtype[Any]) -> None:
        self._path = folder / prefix
        self._dtype = dtype
        self._lengths = array("i")
        self._bytes = 0
        self._rows: list[tuple[int, str, str]] = []
        self._bin = Path(f"{self._path}.bin").open("wb")  # noqa: SIM115 - closed by close()
        self._documents = pq.ParquetWriter(f"{self._path}.documents.parquet", _DOCUMENTS_SCHEMA)
        self.num_tokens = 0

    def append(self, batch: EncodedDocuments, ids: Sequence[str], sources: Sequence[str]) -> None:
        assert batch.tokens.dtype == self._dtype
        self._bin.write(batch.tokens.tobytes())
        starts = self.num_tokens + np.cumsum(batch.lengths) - batch.lengths
        self._rows.extend(zip(starts.tolist(), ids, sources, strict=True))
        # Row groups of a fixed size, so that the bytes do not depend on the size of a batch.
        while len(self._rows) >= _ROWS_PER_GROUP:
            self._write_rows(_ROWS_PER_GROUP)
        self._lengths.extend(batch.lengths.tolist())
        self._bytes += int(batch.text_bytes.sum())
        self.num_tokens += len(batch.tokens)

    def finish(self) -> Shard:
        if self._rows:
            self._write_rows(len(self._rows))
        self.close()
        lengths = np.frombuffer(self._lengths, dtype=np.int32)
        write_index(Path(f"{self._path}.idx"), lengths, self._dtype)
        return Shard(self._path.name, len(lengths), self.num_tokens, self._bytes)

    def close(self) -> None:
        self._documents.close()
        self._bin.close()

    def _write_rows(self, count: int) -> None:
        columns = list(zip(*self._rows[:count], strict=True))
        self._documents.write_table(pa.table(columns, schema=_DOCUMENTS_SCHEMA))
        del self._rows[:count]


def write_index(path: Path, lengths: NDArray[np.int32], dtype: np.dtype[Any]) -> None:
    """Write an `.idx` file for documents of one sequence each.

    Args:
        path: the file to write.
        lengths: tokens of each document, in order.
        dtype: type of the ids in the `.bin` file.

    Source: megatron/core/datasets/indexed_dataset.py, `_IndexWriter`.
    """
    count = len(lengths)
    ends = np.cumsum(lengths, dtype=np.int64) * dtype.itemsize
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    with path.open("wb") as file:
        file.write(b"MMIDIDX\x00\x00")
        # Version, type of the ids, sequences, document boundaries.
        file.write(struct.pack("<QBQQ", 1, _DTYPE_CODES[dtype.name], count, count + 1))
        file.write(lengths.astype("<i4").tobytes())
        file.write(starts.astype("<i8").tobytes())
        file.write(np.arange(count + 1, dtype="<i8").tobytes())


def split_summary(shards: Sequence[Shard]) -> dict[str, Any]:
    """What `shards.json` says about one split."""
    return {
        "num_documents": sum(shard.num_documents for shard in shards),
        "num_tokens": sum(shard.num_tokens for shard in shards),
        "num_bytes": sum(shard.num_bytes for shard in shards),
        "shards": [asdict(shard) for shard in shards],
    }
