"""The task `continuation`: tell how a passage ends, from four choices.

The manner is HellaSwag's (Zellers et al. 2019), without its adversarial filter. The three wrong
choices end passages of other documents, of other groups; they are about as long as the right one,
and differ from it and from each other. Where the right one stands is drawn by the item's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.held_out_documents import Document, rank
from evaluation.passages import Length, passages

LENGTH = Length(min_words=16, max_words=32, max_characters=190)
"""Of context and ending of an item: 25 to 80 tokens."""

SHOT_LENGTH = Length(min_words=5, max_words=12, max_characters=64)

NUM_CHOICES = 4
_ENDING_WORDS = (4, 8)
_SHOT_ENDING_WORDS = (2, 3)
_LENGTH_TOLERANCE = 0.25

TASK: dict[str, Any] = {
    "task": "continuation",
    "output_type": "multiple_choice",
    "doc_to_text": "context",
    "doc_to_choice": "choices",
    "doc_to_target": "answer",
    "target_delimiter": " ",
    "metric_list": [
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
        {"metric": "acc_norm", "aggregation": "mean", "higher_is_better": True},
    ],
    "metadata": {"version": 1.0},
}


@dataclass(frozen=True)
class Cut:
    """A passage cut in two before its last words."""

    document: Document
    context: str
    ending: str


def make_cut(
    document: Document, seed: int, length: Length = LENGTH, words: tuple[int, int] = _ENDING_WORDS
) -> Cut | None:
    """Cut one passage of the document, chosen by its id; None if there is none.

    Args:
        document: where the passage stands.
        seed: with the id, chooses passage and cut.
        length: of the whole passage.
        words: least and most words of the ending.
    """
    draw = rank(seed, "continuation", document.id)
    num_words = words[0] + draw % (words[1] - words[0] + 1)
    found = [
        passage
        for passage in passages(document.text, length)
        if passage.gap(len(passage.spans) - num_words) == " "
    ]
    if not found:
        return None
    passage = found[draw // 16 % len(found)]
    at = len(passage.spans) - num_words
    return Cut(document, passage.words(0, at), passage.words(at, len(passage.spans)))


def make_example(document: Document, seed: int) -> dict[str, Any] | None:
    """A few-shot example: short, and with the right choice alone, which is all that is shown."""
    cut = make_cut(document, seed, SHOT_LENGTH, _SHOT_ENDING_WORDS)
    if cut is None:
        return None
    return {"id": document.id, "context": cut.context, "choices": [cut.ending], "answer": 0}


def make_item(cut: Cut, others: Sequence[Cut], seed: int) -> dict[str, Any] | None:
    """An item with its wrong choices; None if too few `others` have endings of that length.

    Of those that do, the smallest digests of (id, other id) are taken: a new document displaces
    one only if its own digest is smaller.
    """
    wanted = len(cut.ending)
    fitting = [
        other
        for other in others
        if other.document.group != cut.document.group
        and abs(len(other.ending) - wanted) <= _LENGTH_TOLERANCE * wanted
    ]
    fitting.sort(key=lambda other: rank(seed, "wrong", f"{cut.document.id}{other.document.id}"))
    wrong: list[str] = []
    for other in fitting:
        if other.ending != cut.ending and other.ending not in wrong:
            wrong.append(other.ending)
        if len(wrong) == NUM_CHOICES - 1:
            answer = rank(seed, "answer", cut.document.id) % NUM_CHOICES
            choices = [*wrong[:answer], cut.ending, *wrong[answer:]]
            return {
                "id": cut.document.id,
                "context": cut.context,
                "choices": choices,
                "answer": answer,
            }
    return None
