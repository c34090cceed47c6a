"""Gives the items beside this file to lm-evaluation-harness, as they stand, with no cache.

The stage copies this file into its `tasks/`, so that the folder serves any model by itself:
`lm_eval --include_path tasks --tasks cloze,continuation ...`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets


def read_items(*, items: str, few_shot: str, **_metadata: Any) -> dict[str, datasets.Dataset]:
    """Read two files of JSON lines in this file's folder."""
    return {"items": _read(items), "few_shot": _read(few_shot)}


def _read(name: str) -> datasets.Dataset:
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    # Not splitlines(): it also splits at U+2028, which may stand in a text.
    return datasets.Dataset.from_list([json.loads(line) for line in text.split("\n") if line])
