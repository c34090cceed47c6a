"""Held-out documents in the order in which items are made from them.

- The order is by a digest of seed and id: a shuffle in which a new document moves no other.
- A group is either of the items or of the few-shot examples, by a digest of seed and group. So no
  example is a sibling of an item, and a new group moves no other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds

_DOCUMENTS_AT_ONCE = 4096
_FEW_SHOT_SHARE = 1 / 8


@dataclass(frozen=True)
class Document:
    """One document, as `curate` held it out."""

    id: str
    group: str
    text: str


def rank(seed: int, purpose: str, name: str) -> int:
    """A 64-bit digest by which things are ordered or drawn for a purpose."""
    content = f"{seed}\0{name}".encode()
    person = purpose.encode()[: hashlib.blake2b.PERSON_SIZE]
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, person=person).digest())


class HeldOut:
    """The held-out documents of a curated folder."""

    def __init__(self, curated: Path, seed: int) -> None:
        """Read ids and groups, not yet texts.

        Args:
            curated: folder of the stage `curate`.
            seed: fixes the order, and which groups give few-shot examples.

        Raises:
            ValueError: there is no document, or an id stands twice.
        """
        folder = curated / "held_out"
        files = sorted(str(path) for path in folder.glob("part-*.parquet"))
        if not files:
            raise ValueError(f"{folder} holds no part-*.parquet. Curate again.")
        self._parts = ds.dataset(files, format="parquet")
        rows = self._parts.to_table(columns=["id", "group"]).to_pylist()
        by_id = {row["id"]: row["group"] for row in rows}
        if len(by_id) != len(rows):
            twice = next(name for name, n in Counter(row["id"] for row in rows).items() if n > 1)
            raise ValueError(
                f"{folder}: document {twice} stands there twice, so an item would count twice. "
                "Curate again."
            )
        self.num_documents = len(by_id)
        ordered = sorted(by_id, key=lambda name: rank(seed, "item", name))
        self._ids = {
            few_shot: [name for name in ordered if is_few_shot(by_id[name], seed) == few_shot]
            for few_shot in (False, True)
        }

    def documents(self, *, few_shot: bool) -> Iterator[Document]:
        """The documents of items, or of few-shot examples; read a few thousand at a time."""
        ids = self._ids[few_shot]
        for first in range(0, len(ids), _DOCUMENTS_AT_ONCE):
            wanted = ids[first : first + _DOCUMENTS_AT_ONCE]
            table = self._parts.to_table(
                columns=["id", "group", "text"], filter=pc.field("id").isin(wanted)
            )
            found = {row["id"]: Document(**row) for row in table.to_pylist()}
            yield from (found[name] for name in wanted)


def is_few_shot(group: str, seed: int) -> bool:
    """Say whether a group gives few-shot examples, rather than items."""
    return rank(seed, "few-shot", group) < _FEW_SHOT_SHARE * 2**64
