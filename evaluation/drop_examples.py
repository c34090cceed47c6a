"""A few of the documents that each rule dropped, so that a reader can judge the rule.

The choice is by the smallest ids, which are digests: a sample that looks at nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_CHARACTERS = 280


@dataclass(frozen=True)
class Drop:
    """One dropped document.

    Attributes:
        excerpt: the beginning of its text.
        value: what the rule measured; compared with `threshold`.
        kept_instead: beginning of the text of the document kept in its place, if there is one.
    """

    source: str
    locator: str
    excerpt: str
    value: float | None
    threshold: float | None
    detail: str | None
    kept_instead: str | None


def examples_by_rule(decisions: Path, documents: Path, *, each: int = 3) -> dict[str, list[Drop]]:
    """Examples by rule, for the rules that dropped something.

    Args:
        decisions: `decisions.parquet` of curate.
        documents: `documents/` of ingest.
        each: at most so many for one rule.
    """
    table = pq.read_table(decisions)
    chosen: list[dict[str, object]] = []
    for rule in pc.unique(table["rule"]).to_pylist():
        rows = table.filter(pc.equal(table["rule"], rule)).sort_by("id").slice(0, each)
        chosen += rows.to_pylist()
    wanted = {str(row["id"]) for row in chosen}
    wanted |= {str(row["representative"]) for row in chosen if row["representative"]}
    texts = _texts(documents, wanted)
    found: dict[str, list[Drop]] = {}
    for row in chosen:
        kept = row["representative"]
        found.setdefault(str(row["rule"]), []).append(
            Drop(
                source=str(row["source"]),
                locator=str(row["locator"]),
                excerpt=_excerpt(texts.get(str(row["id"]), "")),
                value=row["value"],  # type: ignore[arg-type]
                threshold=row["threshold"],  # type: ignore[arg-type]
                detail=row["detail"],  # type: ignore[arg-type]
                kept_instead=_excerpt(texts[str(kept)]) if str(kept) in texts else None,
            )
        )
    return found


def _texts(documents: Path, wanted: Collection[str]) -> dict[str, str]:
    """The text of the wanted documents; reads the text only of row groups that hold one."""
    found: dict[str, str] = {}
    ids = pa.array(sorted(wanted), pa.string())
    for path in sorted(documents.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                if len(found) == len(wanted):
                    return found
                hits = pc.is_in(file.read_row_group(group, columns=["id"])["id"], value_set=ids)
                if pc.any(hits).as_py():
                    rows = file.read_row_group(group, columns=["id", "text"]).filter(hits)
                    found |= {row["id"]: row["text"] for row in rows.to_pylist()}
    return found


def _excerpt(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS].rstrip() + " …"
