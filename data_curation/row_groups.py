"""Parquet files written one row group at a time, which is all that memory holds of them."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

Row = TypeVar("Row", bound=tuple[Any, ...])


class RowGroupWriter(Generic[Row]):
    """Collects rows; a subclass says when they are enough for a group.

    As a context manager, it finishes the file on leaving; where the body failed, the rows that
    are not yet written are left out.
    """

    def __init__(self, path: Path, schema: pa.Schema, **options: Any) -> None:
        """Open the file.

        Args:
            path: what to write.
            schema: one field for each member of a row.
            options: of `pyarrow.parquet.ParquetWriter`.
        """
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", **options)
        self._rows: list[Row] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        failure: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if failure is None:
            self.close()
        else:
            self._writer.close()

    def close(self) -> None:
        """Finish the file."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._rows:
            columns = list(zip(*self._rows, strict=True))
            self._writer.write_table(pa.table(columns, schema=self._schema))
        self._rows = []
