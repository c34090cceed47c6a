"""Parquet files, one unit a row group. Rows are counted from 0 over the whole file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_curation.config import ParquetSource
from data_curation.faults import faults_of
from data_curation.readers.paths import find_files
from data_curation.readers.units import InputFile, Record, Rejection, Unit

SUFFIXES = (".parquet",)
_ROWS_AT_ONCE = 256


class ParquetReader:
    """Reads one text column; each row is a group of its own.

    Unlike a broken record, a broken file is refused as a whole and before any work: its footer
    says where everything else is.
    """

    def __init__(self, source: ParquetSource) -> None:
        self._source = source

    def files(self) -> list[InputFile]:
        return find_files(self._source.path, SUFFIXES)

    def faults(self) -> list[str]:
        return faults_of(lambda: self._metadata(self.files()[0]))

    def units(self) -> list[Unit]:
        units = []
        for file in self.files():
            first_row = 0
            metadata = self._metadata(file)
            for number in range(metadata.num_row_groups):
                row_group = metadata.row_group(number)
                units.append(Unit(file, row_group.total_byte_size, number, first_row))
                first_row += row_group.num_rows
        return units

    def read(self, unit: Unit) -> Iterator[Record | Rejection]:
        name, row = unit.file.name, unit.first_row
        try:
            with pq.ParquetFile(unit.file.path) as file:
                batches = file.iter_batches(_ROWS_AT_ONCE, [unit.row_group], self._columns())
                for batch in batches:
                    for values in zip(*self._values(batch), strict=True):
                        yield self._record(name, row, values)
                        row += 1
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = f"unreadable from here to the end of row group {unit.row_group}: {error}"
            yield Rejection(name, row, reason)

    def _columns(self) -> list[str]:
        id_field = self._source.id_field
        return [self._source.text_field] + ([id_field] if id_field is not None else [])

    def _values(self, batch: pa.RecordBatch) -> list[list[Any]]:
        # By name: a file's columns come in the order of the file. Text comes as bytes, so that one
        # text that is not UTF-8 does not take the rest of the batch along.
        text, *others = (batch.column(column) for column in self._columns())
        return [
            text.cast(pa.large_binary()).to_pylist(),
            *(column.to_pylist() for column in others),
        ]

    def _record(self, name: str, row: int, values: tuple[Any, ...]) -> Record | Rejection:
        for column, value in zip(self._columns(), values, strict=True):
            if value is None:
                return Rejection(name, row, f"column {column!r} is null")
        try:
            text = values[0].decode()
        except UnicodeDecodeError as error:
            return Rejection(name, row, f"not UTF-8: {error.reason} at byte {error.start}")
        locator = str(values[1]) if len(values) > 1 else f"{name}:{row}"
        return Record(locator, locator, text)

    def _metadata(self, file: InputFile) -> pq.FileMetaData:
        try:
            with pq.ParquetFile(file.path) as opened:
                metadata, schema = opened.metadata, opened.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{file.path} is not a readable Parquet file: {error}. Replace it, or leave it out."
            ) from error
        for column in self._columns():
            if column not in schema.names:
                raise ValueError(
                    f"{file.path} has no column {column!r}. It has: {', '.join(schema.names)}."
                )
            if schema.names.count(column) > 1:
                raise ValueError(f"{file.path} has several columns {column!r}. Rename all but one.")
        kind = schema.field(self._source.text_field).type
        value_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not any(is_kind(value_kind) for is_kind in _STRING_KINDS):
            raise ValueError(
                f"{file.path}: column {self._source.text_field!r} holds {kind}, no strings. "
                f"Name another column as text_field. It has: {', '.join(schema.names)}."
            )
        return metadata


_STRING_KINDS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
