"""The stage `curate`: from ingested to curated documents, with a held-out split.

Rules run in the order of `decisions.RULES`. Every document that leaves the corpus is a row of
`decisions.parquet`, and the funnel adds up for each source. Two passes over the documents do the
work in batches on all workers: one cleans and measures, one tells languages and computes
signatures. Nothing that is written depends on the number of workers or the size of a batch.

Duplicates are removed before the split, over all sources, so none straddles it.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_curation.cleaning import clean
from data_curation.config import CurationConfig
from data_curation.decisions import Decision, DecisionWriter
from data_curation.documents import (
    Document,
    DocumentWriter,
    count_documents,
    parts,
    read_documents,
)
from data_curation.exact_duplicates import ExactDuplicates
from data_curation.funnel import Funnel
from data_curation.held_out import is_held_out
from data_curation.in_order import map_in_order
from data_curation.language import Language, detect_language
from data_curation.near_duplicates import Clustering, NearDuplicates, candidate_probability
from data_curation.progress import Progress
from data_curation.shingles import shingles, signature
from data_curation.sorted_parts import SortedParts
from data_curation.source_cap import groups_beyond_cap

BATCH_CHARACTERS = 1 << 18
"""Characters of the documents that one call of a worker takes, about."""

S_CURVE = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""Similarities at which `funnel.json` says how likely a pair is to be compared."""

# The share of all work that is done after each pass: rough, and for the progress shown alone.
_CLEANED, _EXAMINED, _COMPARED, _WRITTEN = 0.15, 0.85, 0.9, 1.0
_REPORT_INTERVAL_S = 0.1


def curate(
    config: CurationConfig,
    documents: Path,
    out: Path,
    *,
    seed: int,
    executor: Executor,
    progress: Progress,
) -> dict[str, Any]:
    """Clean, filter and deduplicate documents, and hold some groups out.

    Args:
        config: the rules.
        documents: folder of the stage `ingest`.
        out: empty folder that receives `train/`, `held_out/`, `decisions.parquet`, `funnel.json`.
        seed: of the groups held out, and of those taken under a cap.
        executor: works on the batches.
        progress: told the documents done, of all documents.

    Returns:
        Key figures: `documents_in`, `train`, `held_out`, `bytes_kept`, and `dropped`.

    Raises:
        ValueError: nothing is left, a split is empty, or a cap leaves nothing of a source.
    """
    curation = _Curation(config, out, seed, executor, progress)
    with (
        TemporaryDirectory(dir=out, prefix="scratch-") as scratch,
        DecisionWriter(out / "decisions.parquet") as decisions,
    ):
        curation.run(parts(documents / "documents"), Path(scratch), decisions)
    total = curation.funnel.total()
    return {
        "documents_in": total.documents_in,
        "train": total.train,
        "held_out": total.held_out,
        "bytes_kept": total.bytes_kept,
        "dropped": sum(total.dropped.values()),
    }


class _Survivors:
    """What is remembered of the documents that reach the last rule, in their order."""

    def __init__(self) -> None:
        self.rows = array("q")  # In the file of cleaned documents.
        self.characters = array("q")
        self.text_bytes = array("q")
        self.held_out = array("b")
        self.ids: list[str] = []

    def add(self, row: int, document: Document, held_out: bool) -> None:
        self.rows.append(row)
        self.characters.append(len(document.text))
        self.text_bytes.append(len(document.text.encode()))
        self.held_out.append(held_out)
        self.ids.append(document.id)


class _Curation:
    """One call of `curate`: what its passes share."""

    def __init__(
        self,
        config: CurationConfig,
        out: Path,
        seed: int,
        executor: Executor,
        progress: Progress,
    ) -> None:
        self._config = config
        self._out = out
        self._seed = seed
        self._executor = executor
        self._progress = progress
        self._reported = 0.0
        self._total = 0
        self.funnel = Funnel()

    def run(self, files: list[Path], scratch: Path, decisions: DecisionWriter) -> None:
        cleaned = scratch / "cleaned.parquet"
        self._total = count_documents(files)
        duplicates = self._clean(files, cleaned, decisions)
        survivors = _Survivors()
        with NearDuplicates(self._config.dedup, scratch / "shingles") as near:
            self._examine(cleaned, duplicates, decisions, survivors, near)
            self._require_documents(len(survivors.rows))
            clustering = near.cluster(
                survivors.characters,
                survivors.ids,
                self._executor,
                lambda share: self._report(
                    _EXAMINED, _COMPARED, share, "comparing near-duplicates"
                ),
            )
        self._require_splits(survivors, clustering)
        self._write(cleaned, survivors, clustering, decisions, scratch)
        self._write_funnel(clustering)

    def _clean(
        self, files: list[Path], cleaned: Path, decisions: DecisionWriter
    ) -> ExactDuplicates:
        """Apply the cap, clean, and apply the rules of length; the rest goes to `cleaned`."""
        config = self._config
        cap = None if config.max_source_bytes is None else int(config.max_source_bytes)
        beyond_cap = groups_beyond_cap(files, cap, self._seed)

        if beyond_cap:
            # A pass of its own, so that rows stand in an order that no size of a batch can change.
            for document in read_documents(files):
                if size := beyond_cap.get((document.source, document.group)):
                    self._drop(decisions, document, "source_cap", size, cap, detail=document.group)

        duplicates = ExactDuplicates()
        kept, done = 0, 0
        with DocumentWriter(cleaned) as writer:
            batches = _batches(self._within_cap(files, beyond_cap))
            for batch, texts in map_in_order(self._executor, clean_batch, batches):
                for document, text in zip(batch, texts, strict=True):
                    document = document._replace(text=text)
                    length = len(text)
                    shortest, longest = config.length.min_characters, config.length.max_characters
                    if length < shortest:
                        self._drop(decisions, document, "too_short", length, shortest)
                    elif longest is not None and length > longest:
                        self._drop(decisions, document, "too_long", length, longest)
                    else:
                        writer.add(document, len(text.encode()))
                        duplicates.add(document)
                        kept += 1
                done += len(batch)
                self._report(0.0, _CLEANED, done / self._total, "cleaning")
        self._require_documents(kept)
        return duplicates

    def _examine(
        self,
        cleaned: Path,
        duplicates: ExactDuplicates,
        decisions: DecisionWriter,
        survivors: _Survivors,
        near: NearDuplicates,
    ) -> None:
        """Drop exact duplicates and other languages; collect signatures of the rest."""
        config = self._config
        representatives = duplicates.representatives()
        total = len(representatives)
        first_row = 0
        batches = _examinations(config, read_documents([cleaned]), representatives)
        for batch, found in map_in_order(self._executor, examine_batch, batches):
            languages = iter(found.languages)
            for row, document in enumerate(batch.documents, start=first_row):
                representative = int(representatives[row])
                if representative != row:
                    kept = duplicates.id_of(representative)
                    detail = "the same record, read twice" if kept == document.id else None
                    self._drop(
                        decisions, document, "exact_duplicate", representative=kept, detail=detail
                    )
                    continue
                language = next(languages)
                if language.code in config.language.keep:
                    fraction = config.held_out_fraction
                    survivors.add(row, document, is_held_out(document.group, fraction, self._seed))
                else:
                    self._drop(
                        decisions,
                        document,
                        "language",
                        language.probability,
                        detail=language.code,
                    )
            near.add(found.signatures, found.hashes, found.counts)
            first_row += len(batch.documents)
            self._report(
                _CLEANED, _EXAMINED, first_row / total, "telling languages and near-duplicates"
            )

    def _write(
        self,
        cleaned: Path,
        survivors: _Survivors,
        clustering: Clustering,
        decisions: DecisionWriter,
        scratch: Path,
    ) -> None:
        """Drop near-duplicates and write both splits."""
        dropped = clustering.dropped
        kept_bytes = [0, 0]
        for number, size in enumerate(survivors.text_bytes):
            if number not in dropped:
                kept_bytes[survivors.held_out[number]] += size
        splits = [
            SortedParts(self._out / name, scratch / name, size)
            for name, size in zip(("train", "held_out"), kept_bytes, strict=True)
        ]
        number, total = 0, len(survivors.rows)
        for row, document in enumerate(read_documents([cleaned])):
            if number == total or row != survivors.rows[number]:
                continue
            if near := dropped.get(number):
                via = None if near.neighbour is None else survivors.ids[near.neighbour]
                self._drop(
                    decisions,
                    document,
                    "near_duplicate",
                    near.jaccard,
                    self._config.dedup.jaccard,
                    representative=survivors.ids[near.representative],
                    detail=None if via is None else f"similarity to {via}, of the same cluster",
                )
            else:
                counts, held_out = self.funnel[document.source], survivors.held_out[number]
                counts.held_out += held_out
                counts.train += 1 - held_out
                counts.bytes_kept += survivors.text_bytes[number]
                splits[held_out].add(document, survivors.text_bytes[number])
            number += 1
            self._report(_COMPARED, _WRITTEN, number / total, "writing")
        for split in splits:
            split.finish()

    def _write_funnel(self, clustering: Clustering) -> None:
        dedup = self._config.dedup
        bands, rows = dedup.num_bands, dedup.num_rows
        points = sorted({*S_CURVE, dedup.jaccard})
        curve = {str(j): round(candidate_probability(j, bands, rows), 6) for j in points}
        content = {
            **self.funnel.to_json(),
            "dedup": {
                "num_bands": bands,
                "num_rows": rows,
                "jaccard": dedup.jaccard,
                "candidate_pairs": clustering.candidate_pairs,
                "verified_pairs": clustering.verified_pairs,
                "s_curve": curve,
            },
        }
        text = json.dumps(content, indent=2) + "\n"
        (self._out / "funnel.json").write_text(text, encoding="utf-8")

    def _within_cap(
        self, files: list[Path], beyond_cap: dict[tuple[str, str], int]
    ) -> Iterator[Document]:
        for document in read_documents(files):
            counts = self.funnel[document.source]
            counts.documents_in += 1
            counts.bytes_in += len(document.text.encode())
            if (document.source, document.group) not in beyond_cap:
                yield document

    def _drop(
        self,
        decisions: DecisionWriter,
        document: Document,
        rule: str,
        value: float | None = None,
        threshold: float | None = None,
        *,
        representative: str | None = None,
        detail: str | None = None,
    ) -> None:
        self.funnel[document.source].dropped[rule] += 1
        name, source, _, locator, _ = document
        decisions.add(
            Decision(name, source, locator, rule, value, threshold, representative, detail)
        )

    def _require_documents(self, count: int) -> None:
        if count == 0:
            raise ValueError(
                "curation: no document is left. Loosen the rule that drops the most, or bring "
                f"other text.\n{self.funnel.table()}"
            )

    def _require_splits(self, survivors: _Survivors, clustering: Clustering) -> None:
        kept = len(survivors.rows) - len(clustering.dropped)
        flags = enumerate(survivors.held_out)
        held_out = sum(flag for number, flag in flags if number not in clustering.dropped)
        if 0 < held_out < kept:
            return
        empty, change = ("held-out", "Raise") if held_out == 0 else ("training", "Lower")
        raise ValueError(
            f"curation.held_out_fraction = {self._config.held_out_fraction}: of {kept} documents "
            f"left, {held_out} are held out and {kept - held_out} are for training, so the "
            f"{empty} split is empty. {change} it, bring more documents, or change the seed; "
            "documents of one group (file, module) stay together."
        )

    def _report(self, start: float, end: float, share: float, note: str) -> None:
        """Tell that `share` is done of a pass which takes the work from `start` to `end`."""
        now = time.monotonic()
        if now - self._reported > _REPORT_INTERVAL_S:
            self._reported = now
            done = start + (end - start) * share
            self._progress(round(done * self._total), self._total, note)


class ExaminationBatch(NamedTuple):
    """Documents to examine; those that `is_repetition` flags are passed over."""

    config: CurationConfig
    documents: list[Document]
    is_repetition: list[bool]


class Examination(NamedTuple):
    """What was found of the documents of a batch that are no repetitions.

    Attributes:
        languages: of each of them.
        signatures: (N, P) of the N among them in a language to keep.
        hashes: (H,) their shingles after one another.
        counts: (N,) shingles of each.
    """

    languages: list[Language]
    signatures: NDArray[np.uint32]
    hashes: NDArray[np.uint64]
    counts: NDArray[np.int64]


def clean_batch(documents: list[Document]) -> list[str]:
    """Return the cleaned texts. Runs in a worker."""
    return [clean(document.text) for document in documents]


def examine_batch(batch: ExaminationBatch) -> Examination:
    """Tell languages, and compute shingles and signatures. Runs in a worker."""
    config, dedup = batch.config, batch.config.dedup
    num_permutations = dedup.num_bands * dedup.num_rows
    languages, signatures, hashes = [], [], []
    for document, is_repetition in zip(batch.documents, batch.is_repetition, strict=True):
        if is_repetition:
            continue
        language = detect_language(document.text, config.language.prefix_characters)
        languages.append(language)
        if language.code in config.language.keep:
            hashes.append(shingles(document.text, dedup.shingle_words))
            signatures.append(signature(hashes[-1], num_permutations))
    return Examination(
        languages,
        np.stack(signatures) if signatures else np.empty((0, num_permutations), np.uint32),
        np.concatenate([np.empty(0, np.uint64), *hashes]),
        np.array([len(h) for h in hashes], dtype=np.int64),
    )


def _examinations(
    config: CurationConfig, documents: Iterable[Document], representatives: NDArray[np.int64]
) -> Iterator[ExaminationBatch]:
    first_row = 0
    for batch in _batches(documents):
        rows = range(first_row, first_row + len(batch))
        yield ExaminationBatch(config, batch, [bool(representatives[r] != r) for r in rows])
        first_row += len(batch)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Documents in order, about `BATCH_CHARACTERS` at a time."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
