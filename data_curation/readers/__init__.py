"""Where documents come from: one reader for each kind of source, all behind one protocol."""

from __future__ import annotations

from pathlib import Path

from data_curation.config import (
    InstalledDocumentationSource,
    JsonLinesSource,
    ParquetSource,
    Source,
    TextFolderSource,
)
from data_curation.readers.installed_documentation import InstalledDocumentationReader
from data_curation.readers.jsonl import JsonLinesReader
from data_curation.readers.parquet import ParquetReader
from data_curation.readers.text_folder import TextFolderReader
from data_curation.readers.units import InputFile, Reader, Record, Rejection, Unit

__all__ = ["InputFile", "Reader", "Record", "Rejection", "Unit", "faults", "input_files", "reader"]


def reader(source: Source) -> Reader:
    """Return the reader of a source."""
    match source:
        case InstalledDocumentationSource():
            return InstalledDocumentationReader(source)
        case JsonLinesSource():
            return JsonLinesReader(source)
        case ParquetSource():
            return ParquetReader(source)
        case TextFolderSource():
            return TextFolderReader(source)


def input_files(source: Source) -> list[Path]:
    """Return every file that ingesting the source would read, sorted.

    Raises:
        ValueError: nothing is found, or a package is not installed.
    """
    return sorted({file.path for file in reader(source).files()})


def faults(source: Source) -> list[str]:
    """Say what is wrong with a source before any work: missing paths, packages, columns."""
    return reader(source).faults()
