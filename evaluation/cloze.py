"""The task `cloze`: say the last word of a passage.

The manner is LAMBADA's (Paperno et al. 2016). The answer is right when the model, taking the
likeliest token each time, says all tokens of the word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from evaluation.held_out_documents import Document, rank
from evaluation.passages import Length, Passage, passages

LENGTH = Length(min_words=16, max_words=41, max_characters=260)
"""Of an item, target included: 30 to 80 tokens."""

SHOT_LENGTH = Length(min_words=5, max_words=12, max_characters=64)
"""Of a few-shot example: 10 to 20 tokens, so that four and an item fit into 128 positions."""

_TARGET = re.compile(r"([a-z]{3,})[.!?]")

TASK: dict[str, Any] = {
    "task": "cloze",
    "output_type": "loglikelihood",
    "doc_to_text": "context",
    "doc_to_target": "target",
    "target_delimiter": "",
    "metric_list": [
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
        {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
    ],
    "metadata": {"version": 1.0},
}


def make_item(document: Document, length: Length, seed: int) -> dict[str, Any] | None:
    """One item of the document, chosen by its id; None if there is none.

    Returns:
        `id`, `context` and `target`, which starts with the space before the word.
    """
    found = [p for p in passages(document.text, length) if _target(p)]
    if not found:
        return None
    passage = found[rank(seed, "cloze", document.id) % len(found)]
    return {
        "id": document.id,
        "context": passage.words(0, len(passage.spans) - 1),
        "target": f" {_target(passage)}",
    }


def most_common_target(items: Sequence[dict[str, Any]]) -> float:
    """The share of items that always saying the most common word would get right."""
    targets = [item["target"] for item in items]
    return max(targets.count(target) for target in targets) / len(targets)


def _target(passage: Passage) -> str | None:
    """The last word, if it is a plain one after a single space."""
    last = len(passage.spans) - 1
    match = _TARGET.fullmatch(passage.words(last, last + 1))
    return match[1] if match and passage.gap(last) == " " else None
