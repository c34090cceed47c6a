"""The stage `ingest`: from sources to documents.

Input is cut into batches of units, and each batch becomes one part file, written by the worker
that read it; batches depend on the input files alone. What cannot be used is listed, never lost:
every record is either a document or a line of `quarantine.jsonl`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from data_curation.config import Source
from data_curation.documents import Document, DocumentWriter, document_id, part_name
from data_curation.in_order import map_in_order
from data_curation.progress import Progress
from data_curation.readers import Record, Rejection, Unit, reader

MIN_BATCH_BYTES, MAX_BATCH_BYTES = 1 << 20, 64 << 20
BATCHES = 64
"""A corpus is cut into about so many batches, while they stay within the bounds above."""


@dataclass
class SourceSummary:
    """What `sources.json` says about one source; `bytes` counts the UTF-8 of the texts."""

    files: int = 0
    documents: int = 0
    bytes: int = 0
    quarantined: int = 0


def ingest(
    sources: Sequence[Source], out: Path, *, executor: Executor, progress: Progress
) -> dict[str, Any]:
    """Read the documents of all sources.

    Args:
        sources: where the documents come from; they are written in this order.
        out: empty folder that receives `documents/`, `quarantine.jsonl` and `sources.json`.
        executor: reads the batches.
        progress: told the input bytes read, of those of all sources.

    Returns:
        Key figures: `sources`, `files`, `documents`, `bytes`, `quarantined`.

    Raises:
        ValueError: a source has no input, no usable document, or is not what the recipe says; two
            sources share a name.
    """
    summaries = {source.name: SourceSummary() for source in sources}
    if len(summaries) < len(sources):
        names = ", ".join(source.name for source in sources)
        raise ValueError(f"sources: each needs a name of its own, but they are {names}.")
    planned = [(source, reader(source).units()) for source in sources]
    total = sum(unit.num_bytes for _, units in planned for unit in units)
    documents = out / "documents"
    documents.mkdir()
    for source, units in planned:
        summaries[source.name].files = len({unit.file.path for unit in units})
    progress(0, total, "reading")
    done, num_parts = 0, 0
    reasons: dict[str, str] = {}
    with (out / "quarantine.jsonl").open("wb") as quarantine:
        batches = _batches(planned, documents, total)
        for batch, outcome in map_in_order(executor, read_batch, batches):
            name = batch.source.name
            summary = summaries[name]
            summary.documents += outcome.documents
            summary.bytes += outcome.bytes
            summary.quarantined += outcome.quarantined
            if outcome.quarantined:
                reasons.setdefault(name, outcome.first_reason)
                with batch.rejections.open("rb") as file:
                    shutil.copyfileobj(file, quarantine)
            batch.rejections.unlink()
            if outcome.documents:
                # Parts are numbered without gaps.
                batch.part.rename(documents / part_name(num_parts))
                num_parts += 1
            else:
                batch.part.unlink()
            done += sum(unit.num_bytes for unit in batch.units)
            progress(done, total, f"reading {name}")
    for name, summary in summaries.items():
        if not summary.documents:
            why = (
                f"Quarantined: {summary.quarantined}, the first as: {reasons[name]}."
                if name in reasons
                else "All that could hold some is empty."
            )
            raise ValueError(
                f"source {name}: no document in its {summary.files} files. {why} "
                "Correct the source, or leave it out."
            )
    listed = {name: asdict(summary) for name, summary in summaries.items()}
    (out / "sources.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    figures = ("files", "documents", "bytes", "quarantined")
    totals = {figure: sum(source[figure] for source in listed.values()) for figure in figures}
    return {"sources": len(listed), **totals}


class Batch(NamedTuple):
    """Units that one call reads, and where it writes."""

    source: Source
    units: list[Unit]
    part: Path
    rejections: Path


class Outcome(NamedTuple):
    """What became of a batch."""

    documents: int
    bytes: int
    quarantined: int
    first_reason: str


def read_batch(batch: Batch) -> Outcome:
    """Read the units of a batch into a part file and a file of rejections. Runs in a worker."""
    source = batch.source.name
    opened = reader(batch.source)
    documents, num_bytes, quarantined, first_reason = 0, 0, 0, ""
    with DocumentWriter(batch.part) as writer, batch.rejections.open("wb") as rejections:
        for unit in batch.units:
            for found in opened.read(unit):
                record = _document(source, found, unit)
                if isinstance(record, Rejection):
                    line = {"source": source, **record._asdict()}
                    rejections.write(orjson.dumps(line) + b"\n")
                    first_reason = first_reason or record.reason
                    quarantined += 1
                else:
                    text_bytes = len(record.text.encode())
                    writer.add(record, text_bytes)
                    num_bytes += text_bytes
                    documents += 1
    return Outcome(documents, num_bytes, quarantined, first_reason)


def _document(source: str, found: Record | Rejection, unit: Unit) -> Document | Rejection:
    if isinstance(found, Rejection):
        return found
    try:
        name = document_id(source, found.locator, found.text.encode())
    except UnicodeEncodeError as error:
        locator = found.locator.encode("ascii", "backslashreplace").decode()
        reason = f"{locator} holds a lone surrogate at character {error.start}"
        return Rejection(unit.file.name, 0, reason)
    return Document(name, source, found.group, found.locator, found.text)


def _batches(
    planned: Sequence[tuple[Source, list[Unit]]], folder: Path, total: int
) -> Iterator[Batch]:
    bound = min(max(total // BATCHES, MIN_BATCH_BYTES), MAX_BATCH_BYTES)
    number = 0
    for source, units in planned:
        batch: list[Unit] = []
        size = 0
        for unit in units:
            if batch and size + unit.num_bytes > bound:
                yield _batch(source, batch, folder, number)
                batch, size = [], 0
                number += 1
            batch.append(unit)
            size += unit.num_bytes
        if batch:
            yield _batch(source, batch, folder, number)
            number += 1


def _batch(source: Source, units: list[Unit], folder: Path, number: int) -> Batch:
    name = f"batch-{number:05d}"
    return Batch(source, units, folder / f"{name}.parquet", folder / f"{name}.jsonl")
