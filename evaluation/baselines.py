"""Answers of models that know nothing but counts, to the very prompts that the model got.

An n-gram model answers as the language model does: by the likeliest tokens, or by the likeliest
choice. Ties go to the first choice, as in lm-eval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.ngram import NgramModel

Tokens = Sequence[int]


@dataclass(frozen=True)
class Question:
    """One item as it was asked.

    Attributes:
        requests: (context, continuation) of each choice, in tokens; one where there is no choice.
        lengths: characters of each choice, by which `acc_norm` divides.
        answer: which choice is right.
    """

    requests: Sequence[tuple[Tokens, Tokens]]
    lengths: Sequence[int]
    answer: int


class NgramBaseline:
    """An n-gram model that is asked the same contexts again and again."""

    def __init__(self, name: str, model: NgramModel) -> None:
        self.name = name
        self.model = model
        self._likeliest: dict[tuple[int, ...], int] = {}

    def says(self, context: Tokens, continuation: Tokens) -> bool:
        """Whether the likeliest tokens after the context are those of the continuation."""
        seen = list(context)
        for token in continuation:
            if self._next(seen) != token:
                return False
            seen.append(token)
        return True

    def log_likelihoods(self, question: Question) -> NDArray[np.float64]:
        """Nats of each choice."""
        return np.array([self.model.log_probability(c, t) for c, t in question.requests])

    def _next(self, context: list[int]) -> int:
        key = tuple(context[max(0, len(context) - self.model.order + 1) :])
        if key not in self._likeliest:
            self._likeliest[key] = self.model.next_token(key)
        return self._likeliest[key]


def share_chosen(questions: Sequence[Question], values: Sequence[NDArray[np.float64]]) -> float:
    """The share of questions whose right choice has the largest value."""
    right = [int(v.argmax()) == q.answer for q, v in zip(questions, values, strict=True)]
    return sum(right) / len(right)
