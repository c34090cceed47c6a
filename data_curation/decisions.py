"""Why documents left the corpus: one row for each, in the order of the decisions."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from data_curation.row_groups import RowGroupWriter

RULES = ("source_cap", "too_short", "too_long", "exact_duplicate", "language", "near_duplicate")
"""In the order in which they are applied."""

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("locator", pa.string()),
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        ("representative", pa.string()),
        ("detail", pa.string()),
    ]
)
_ROWS_PER_GROUP = 1 << 16


class Decision(NamedTuple):
    """One document dropped: what was measured, against what.

    `value` and `threshold` are bytes of the source so far (source_cap), characters (too_short,
    too_long), the probability of the language in `detail` (language) or a Jaccard similarity
    (near_duplicate). `representative` is the document kept in its place.
    """

    id: str
    source: str
    locator: str
    rule: str
    value: float | None = None
    threshold: float | None = None
    representative: str | None = None
    detail: str | None = None


class DecisionWriter(RowGroupWriter[Decision]):
    """Writes `decisions.parquet`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA)

    def add(self, decision: Decision) -> None:
        """Append a row."""
        assert decision.rule in RULES
        self._rows.append(decision)
        if len(self._rows) == _ROWS_PER_GROUP:
            self._write_group()
