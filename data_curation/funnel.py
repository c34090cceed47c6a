"""How many documents each rule let through. For every source: in = dropped + train + held out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from data_curation.decisions import RULES


@dataclass
class Counts:
    """Documents of one source, and UTF-8 bytes of their texts: as ingested, and as kept."""

    documents_in: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    train: int = 0
    held_out: int = 0
    bytes_in: int = 0
    bytes_kept: int = 0

    @property
    def kept(self) -> int:
        """Documents that no rule dropped."""
        return self.train + self.held_out

    def to_json(self) -> dict[str, Any]:
        """Return the counts under the names of `funnel.json`."""
        assert self.documents_in == sum(self.dropped.values()) + self.kept
        values = asdict(self)
        return {"in": values.pop("documents_in"), **values}


class Funnel:
    """Counts by source, in the order in which sources are first seen."""

    def __init__(self) -> None:
        self._sources: dict[str, Counts] = {}

    def __getitem__(self, source: str) -> Counts:
        return self._sources.setdefault(source, Counts())

    def total(self) -> Counts:
        """Return the counts of all sources together."""
        return _sum(self._sources.values())

    def to_json(self) -> dict[str, Any]:
        """Return the first three entries of `funnel.json`."""
        return {
            "rules": list(RULES),
            "sources": {name: counts.to_json() for name, counts in self._sources.items()},
            "total": self.total().to_json(),
        }

    def table(self) -> str:
        """Return the funnel for a person to read: a row a source, a column a rule."""
        header = ["source", "in", *RULES, "kept"]
        rows = [
            [name, *map(str, (counts.documents_in, *counts.dropped.values(), counts.kept))]
            for name, counts in [*self._sources.items(), ("total", self.total())]
        ]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in [header, *rows]
        )


def _sum(all_counts: Iterable[Counts]) -> Counts:
    total = Counts()
    for counts in all_counts:
        total.documents_in += counts.documents_in
        total.train += counts.train
        total.held_out += counts.held_out
        total.bytes_in += counts.bytes_in
        total.bytes_kept += counts.bytes_kept
        for rule, count in counts.dropped.items():
            total.dropped[rule] += count
    return total
