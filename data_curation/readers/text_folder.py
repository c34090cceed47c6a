"""Plain text files: one document a file, which is also its group."""

from __future__ import annotations

from collections.abc import Iterator

from data_curation.config import TextFolderSource
from data_curation.faults import faults_of
from data_curation.readers.paths import find_files
from data_curation.readers.units import InputFile, Record, Rejection, Unit, whole_files


class TextFolderReader:
    """Reads UTF-8 files; a byte-order mark is left out."""

    def __init__(self, source: TextFolderSource) -> None:
        self._source = source

    def files(self) -> list[InputFile]:
        suffixes = tuple(suffix.lower() for suffix in self._source.suffixes)
        return find_files(self._source.path, suffixes)

    def faults(self) -> list[str]:
        return faults_of(self.files)

    def units(self) -> list[Unit]:
        return whole_files(self.files())

    def read(self, unit: Unit) -> Iterator[Record | Rejection]:
        yield read_text_file(unit.file)


def read_text_file(file: InputFile) -> Record | Rejection:
    """Read one file as one document, unless it is not text."""
    content = file.path.read_bytes()
    nul = content.find(b"\0")
    if nul >= 0:
        return Rejection(file.name, nul, "holds a NUL byte, so it is not text")
    try:
        return Record(file.name, file.name, content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return Rejection(file.name, error.start, f"not UTF-8: {error.reason}")
