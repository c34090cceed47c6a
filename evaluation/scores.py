"""From answers to scores: each a value with its standard error, chance and baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines import NgramBaseline, Question, share_chosen
from evaluation.cloze import most_common_target
from evaluation.continuation import NUM_CHOICES
from evaluation.language_model import LanguageModel
from evaluation.task_files import TaskFiles


@dataclass(frozen=True)
class Baseline:
    """What a simpler way of answering gets."""

    name: str
    value: float


@dataclass(frozen=True)
class Score:
    """One number about one task.

    Attributes:
        chance: what answering without reading gets; None where there is no such thing.
        truncated_prompts: items of which a prompt lost its beginning.
        seed: of the items and of the few-shot examples.
        data_sha256: of the file of items.
    """

    task: str
    task_version: float
    metric: str
    num_shots: int
    value: float
    stderr: float
    n: int
    chance: float | None
    baselines: Sequence[Baseline]
    truncated_prompts: int
    seed: int
    split: str
    data_sha256: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Answers:
    """What a model answered to a task at a number of shots; lm-eval's samples, in order."""

    task: TaskFiles
    num_shots: int
    seed: int
    samples: Sequence[dict[str, Any]]
    questions: Sequence[Question]
    truncated_prompts: int


def read_answers(
    model: LanguageModel,
    task: TaskFiles,
    samples: Sequence[dict[str, Any]],
    *,
    num_shots: int,
    seed: int,
) -> Answers:
    """Turn lm-eval's samples into questions in the model's tokens."""
    questions = []
    truncated = 0
    for sample in samples:
        requests = [model.encode_pair(*pair) for pair in sample["arguments"]]
        truncated += any(model.is_truncated(*request) for request in requests)
        choices = sample["doc"].get("choices", [sample["doc"].get("target")])
        lengths = [len(choice) for choice in choices]
        questions.append(Question(requests, lengths, sample["doc"].get("answer", 0)))
    return Answers(task, num_shots, seed, samples, questions, truncated)


def cloze_scores(answers: Answers, ngrams: Sequence[NgramBaseline]) -> tuple[Score, Score]:
    """Accuracy, and the perplexity of the word that is asked for."""
    targets = [question.requests[0] for question in answers.questions]
    accuracy = [
        Baseline(b.name, sum(b.says(*target) for target in targets) / len(targets)) for b in ngrams
    ]
    log_likelihoods = [
        np.concatenate([b.log_likelihoods(question) for question in answers.questions])
        for b in ngrams
    ]
    words = [
        Baseline(b.name, perplexity(values)[0])
        for b, values in zip(ngrams, log_likelihoods, strict=True)
    ]
    chance = most_common_target(answers.task.items)
    return (
        _score(answers, "acc", mean(_values(answers, "acc")), chance, accuracy),
        _score(answers, "perplexity", perplexity(_values(answers, "perplexity")), None, words),
    )


def continuation_scores(answers: Answers, ngrams: Sequence[NgramBaseline]) -> tuple[Score, Score]:
    """Accuracy by log-likelihood, and by log-likelihood a character."""
    questions = answers.questions
    lengths = [np.array(question.lengths, dtype=np.float64) for question in questions]
    longest = Baseline("longest", share_chosen(questions, lengths))
    plain, normalized = [], []
    for ngram in ngrams:
        nats = [ngram.log_likelihoods(question) for question in questions]
        per_character = [n / length for n, length in zip(nats, lengths, strict=True)]
        plain.append(Baseline(ngram.name, share_chosen(questions, nats)))
        normalized.append(Baseline(ngram.name, share_chosen(questions, per_character)))
    chance = 1 / NUM_CHOICES
    return (
        _score(answers, "acc", mean(_values(answers, "acc")), chance, [*plain, longest]),
        _score(
            answers, "acc_norm", mean(_values(answers, "acc_norm")), chance, [*normalized, longest]
        ),
    )


def mean(values: NDArray[np.float64]) -> tuple[float, float]:
    """The mean and its standard error, s / sqrt(n) with n - 1 in s.

    For shares this is sqrt(p (1 - p) / (n - 1)).
    """
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))


def perplexity(log_likelihoods: NDArray[np.float64]) -> tuple[float, float]:
    """exp(-mean) and its standard error by the delta method: the value times that of the mean."""
    value, stderr = mean(log_likelihoods)
    return math.exp(-value), math.exp(-value) * stderr


def _values(answers: Answers, metric: str) -> NDArray[np.float64]:
    return np.array([sample[metric] for sample in answers.samples], dtype=np.float64)


def _score(
    answers: Answers,
    metric: str,
    measured: tuple[float, float],
    chance: float | None,
    baselines: Sequence[Baseline],
) -> Score:
    value, stderr = measured
    return Score(
        task=answers.task.name,
        task_version=answers.task.version,
        metric=metric,
        num_shots=answers.num_shots,
        value=value,
        stderr=stderr,
        n=len(answers.samples),
        chance=chance,
        baselines=baselines,
        truncated_prompts=answers.truncated_prompts,
        seed=answers.seed,
        split="held_out",
        data_sha256=answers.task.data_sha256,
    )
