"""Which groups are held out of training, and which go first under a cap.

Each is a pure function of the seed and a group's name. A document that is added or removed moves
no other; the two choices are independent of one another.
"""

from __future__ import annotations

import hashlib


def is_held_out(group: str, fraction: float, seed: int) -> bool:
    """Say whether a group is held out; about `fraction` of all groups are."""
    return group_rank(group, seed, "held_out") < fraction * 2**64


def group_rank(group: str, seed: int, purpose: str) -> int:
    """Return a 64-bit digest of a group, by which groups are drawn for a purpose."""
    person = purpose.encode()
    assert len(person) <= hashlib.blake2b.PERSON_SIZE
    content = f"{seed}\0{group}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, person=person).digest(), "big")
