"""JSON lines, plain or compressed by gzip (also of several members) or zstandard.

Lines end at `\\n` alone: other characters that Unicode takes for line ends may stand inside a
record. A line that cannot be used is rejected by its number (from 1) and the next one read; where
a compressed file is broken, everything before the break is kept. Blank lines are no records.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import zstandard

from data_curation.config import JsonLinesSource
from data_curation.faults import faults_of
from data_curation.readers.paths import find_files
from data_curation.readers.units import InputFile, Record, Rejection, Unit, whole_files

# A plain .json is more often the description of a data set than its lines.
SUFFIXES = (
    *(".jsonl", ".jsonl.gz", ".jsonl.zst"),
    *(".ndjson", ".ndjson.gz", ".ndjson.zst"),
    *(".json.gz", ".json.zst"),
)
_CHUNK_BYTES = 1 << 18
_BROKEN_STREAM = (EOFError, OSError, zlib.error, zstandard.ZstdError)


class JsonLinesReader:
    """Reads one text field; each record is a group of its own."""

    def __init__(self, source: JsonLinesSource) -> None:
        self._source = source

    def files(self) -> list[InputFile]:
        return find_files(self._source.path, SUFFIXES)

    def faults(self) -> list[str]:
        return faults_of(self.files)

    def units(self) -> list[Unit]:
        return whole_files(self.files())

    def read(self, unit: Unit) -> Iterator[Record | Rejection]:
        name = unit.file.name
        number = 0
        try:
            for line in _lines(_chunks(unit.file.path)):
                number += 1
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if line.strip():
                    yield self._parse(name, number, line)
        except _BROKEN_STREAM as error:
            yield Rejection(name, number + 1, f"unreadable from here on: {error}")

    def _parse(self, name: str, number: int, line: bytes) -> Record | Rejection:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return Rejection(name, number, _syntax_fault(line, error))
        if not isinstance(record, dict):
            return Rejection(name, number, f"not a JSON object but {_kind(record)}")
        text_field, id_field = self._source.text_field, self._source.id_field
        for field in (text_field, id_field):
            if field is not None and field not in record:
                known = ", ".join(list(record)[:20])
                return Rejection(name, number, f"no field {field!r} (fields: {known})")
        text = record[text_field]
        if not isinstance(text, str):
            return Rejection(name, number, f"field {text_field!r} is no string but {_kind(text)}")
        locator = f"{name}:{number}"
        if id_field is not None:
            value = record[id_field]
            if not isinstance(value, (str, int)) or isinstance(value, bool):
                reason = f"field {id_field!r} is no string or integer but {_kind(value)}"
                return Rejection(name, number, reason)
            locator = str(value)
        return Record(locator, locator, text)


def _syntax_fault(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as fault:
        return f"not UTF-8: {fault.reason} at byte {fault.start} of the line"
    return f"not JSON: {error}"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Split at newlines; the last line need not be ended by one."""
    pending: list[bytes] = []
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        pending.append(first)
        if rest:
            yield b"".join(pending)
            yield from rest[:-1]
            pending = [rest[-1]]
    yield b"".join(pending)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        if path.suffix == ".zst":
            yield from _unpack_zstandard(iter(lambda: raw.read(1 << 14), b""))
            return
        stream = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        # read1 hands out what there is: a break further on cannot take it along.
        while chunk := stream.read1(_CHUNK_BYTES):
            yield chunk


def _unpack_zstandard(packed: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack frames one after another. zstandard's own stream takes a cut frame for a whole one.

    Raises:
        EOFError: the last frame is cut.
    """
    frame = None
    for chunk in packed:
        while chunk:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(chunk)
            chunk = b""
            if frame.eof:
                chunk, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("the last zstandard frame is cut off")
