"""What a reader is: it names its input files, cuts them into units, and reads one unit.

A *unit* is what one worker reads in one go: a row group of a Parquet file, any other file as a
whole. Reading a unit yields records in the order of the file, and a rejection for each that cannot
be used; it never raises for the content of a file, so one broken file costs no more than itself.

Names of files in records are relative to what the source names, so that a corpus which moves to
another folder keeps the ids of its documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol


class InputFile(NamedTuple):
    """A file of a source, and the name that records give it."""

    path: Path
    name: str


class Unit(NamedTuple):
    """A piece of one file. `row_group` and `first_row` are of Parquet; 0 for all other files."""

    file: InputFile
    num_bytes: int
    row_group: int = 0
    first_row: int = 0


class Record(NamedTuple):
    """A document as its source has it."""

    group: str
    locator: str
    text: str


class Rejection(NamedTuple):
    """A record that cannot be used. `offset` is its line, row or byte, as the reader counts."""

    file: str
    offset: int
    reason: str


class Reader(Protocol):
    """Reads one source. All methods list in a fixed order."""

    def files(self) -> list[InputFile]:
        """All input files.

        Raises:
            ValueError: nothing is found; the message names what was looked for.
        """
        ...

    def faults(self) -> list[str]:
        """What can be seen to be wrong with the source in moments; empty if nothing."""
        ...

    def units(self) -> list[Unit]:
        """The units of all files.

        Raises:
            ValueError: as `files`, or the files are not what the source says.
        """
        ...

    def read(self, unit: Unit) -> Iterator[Record | Rejection]:
        """Read the records of one unit."""
        ...


def whole_files(files: list[InputFile]) -> list[Unit]:
    """One unit a file."""
    return [Unit(file, file.path.stat().st_size) for file in files]
