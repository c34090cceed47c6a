"""Documents on disk: Parquet files with the columns `id`, `source`, `group`, `locator`, `text`.

A file's bytes are a function of the sequence of its documents: row groups are cut by the documents
themselves, never by how they were handed in, and nothing of the moment of writing is stored.
Reading and writing hold one row group in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from data_curation.row_groups import RowGroupWriter

SCHEMA = pa.schema([(name, pa.string()) for name in ("id", "source", "group", "locator", "text")])
ROWS_PER_GROUP = 4096
TEXT_BYTES_PER_GROUP = 8 << 20
_ROWS_AT_ONCE = 256


class Document(NamedTuple):
    """One document. `group` is what the held-out split never cuts through: a file, a module."""

    id: str
    source: str
    group: str
    locator: str
    text: str


def document_id(source: str, locator: str, text: bytes) -> str:
    """Return 32 hexadecimal digits that stand for a document; `text` is its UTF-8."""
    digest = hashlib.blake2b(digest_size=16)
    for field in (source.encode(), locator.encode(), text):
        # The length in front keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(field).to_bytes(8, "little"))
        digest.update(field)
    return digest.hexdigest()


def part_name(number: int) -> str:
    """Return the file name of a part."""
    return f"part-{number:05d}.parquet"


def parts(folder: Path) -> list[Path]:
    """Return the parts of a folder in order."""
    return sorted(folder.glob("part-*.parquet"))


def count_documents(files: Iterable[Path]) -> int:
    """Return how many documents the files hold, from their footers."""
    return sum(pq.read_metadata(file).num_rows for file in files)


def read_documents(files: Iterable[Path]) -> Iterator[Document]:
    """Yield the documents of some files in order.

    Raises:
        ValueError: a file has other columns.
    """
    for path in files:
        with pq.ParquetFile(path) as file:
            if not set(SCHEMA.names) <= set(file.schema_arrow.names):
                raise ValueError(
                    f"{path} is not a file of documents: it has the columns "
                    f"{', '.join(file.schema_arrow.names)}, but needs {', '.join(SCHEMA.names)}."
                )
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=SCHEMA.names):
                columns = [batch.column(name).to_pylist() for name in SCHEMA.names]
                for row in zip(*columns, strict=True):
                    yield Document(*row)


class DocumentWriter(RowGroupWriter[Document]):
    """Writes one file of documents."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA, use_dictionary=["source", "group"])
        self._text_bytes = 0

    def add(self, document: Document, text_bytes: int) -> None:
        """Append a document; `text_bytes` is the size of its text in UTF-8."""
        self._rows.append(document)
        self._text_bytes += text_bytes
        if len(self._rows) >= ROWS_PER_GROUP or self._text_bytes >= TEXT_BYTES_PER_GROUP:
            self._write_group()
            self._text_bytes = 0
