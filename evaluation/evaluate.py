"""The stage `evaluate`: what a trained model can do, beside what simpler models can.

Every number is about held-out text. The n-gram models are fitted on exactly the samples that the
model was trained on, and answer the same questions from the same tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.baselines import NgramBaseline
from evaluation.config import EvaluationConfig
from evaluation.generation import continue_prompt
from evaluation.harness import HARNESS, run_task
from evaluation.language_model import LanguageModel
from evaluation.ngram import NgramModel
from evaluation.perplexity import measure, token_bytes
from evaluation.scores import Answers, Score, cloze_scores, continuation_scores, read_answers
from evaluation.task_files import TaskFiles, write_tasks
from evaluation.token_windows import read_windows

# N windows, S sequence length, V vocabulary

Progress = Callable[[float, float | None, str], None]

_HELD_OUT_TOKENS = 100_000
"""Held-out tokens are predicted up to here. Documents stand in a shuffled order in the shards."""

_NGRAMS = ("unigram", "bigram", "trigram")
_SCORES = {"cloze": cloze_scores, "continuation": continuation_scores}


def evaluate(
    config: EvaluationConfig,
    model: Path,
    tokenized: Path,
    curated: Path,
    trained: Path,
    out: Path,
    *,
    seed: int,
    progress: Progress,
) -> dict[str, int | float | str]:
    """Score an exported model and write `results.json`, `items/` and `tasks/`.

    Args:
        config: tasks, shots, number of items.
        model: folder of the stage `export`.
        tokenized: folder of the stage `tokenize`.
        curated: folder of the stage `curate`.
        trained: folder of the stage `train`.
        out: where to write.
        seed: of items, few-shot examples and sample continuations.
        progress: called with (done, total, note).

    Returns:
        The held-out loss and the accuracies.

    Raises:
        ValueError: the folders are not of one tokenizer, there is too little held-out text, or
            the model's logits are not finite.
    """
    steps = _Steps(progress, 3 + len(config.tasks) * len(config.num_shots))
    steps.start("reading")
    shards = json.loads((tokenized / "shards.json").read_text(encoding="utf-8"))
    meta = json.loads((trained / "model" / "meta.json").read_text(encoding="utf-8"))
    _check_tokenizer(model, tokenized, trained, shards, meta)
    language_model = LanguageModel.load(model, batch_size=config.batch_size)
    _check_windows(model, language_model, meta["sequence_length"])
    tasks = write_tasks(
        config.tasks,
        curated,
        out / "tasks",
        num_items=config.num_items,
        max_shots=max(config.num_shots),
        seed=seed,
    )

    steps.start("n-gram models")
    sequence_length = meta["sequence_length"]
    ngrams = _fit_ngrams(trained, tokenized, sequence_length, shards["vocab_size"])
    windows_NS = read_windows(tokenized, "held_out", sequence_length)
    windows_NS = windows_NS[: max(1, _HELD_OUT_TOKENS // sequence_length)]
    bytes_of_V = token_bytes(language_model.tokenizer, shards["end_of_text_id"])
    ngram_perplexities = [
        {"name": ngram.name, **asdict(measure(ngram.model, windows_NS, bytes_of_V))}
        for ngram in ngrams
    ]

    steps.start("held-out loss")
    held_out = measure(language_model, windows_NS, bytes_of_V)

    scores: list[Score] = []
    (out / "items").mkdir()
    for name, task in tasks.items():
        for num_shots in config.num_shots:
            steps.start(f"{name}, {num_shots} shots")
            answers = _ask(language_model, task, num_shots, seed)
            scores += _SCORES[name](answers, ngrams)
            _write_items(answers, out / "items" / f"{name}-{num_shots}.jsonl")

    prompts = [_continue(language_model, prompt, seed) for prompt in config.prompts]
    results = {
        "harness": HARNESS,
        "scores": [s.to_json() for s in scores if s.metric != "perplexity"],
        "word_perplexities": [s.to_json() for s in scores if s.metric == "perplexity"],
        "held_out": asdict(held_out),
        "language_models": ngram_perplexities,
        "prompts": prompts,
        "model": {
            "num_parameters": language_model.gpt2.num_parameters(),
            "num_positions": language_model.max_length,
            "vocab_size": shards["vocab_size"],
            "tokenizer_sha256": shards["tokenizer_sha256"],
        },
    }
    _write_json(results, out / "results.json")
    steps.end()
    figures: dict[str, int | float | str] = {
        "nats_per_token": round(held_out.nats_per_token, 4),
        "bits_per_byte": round(held_out.bits_per_byte, 4),
    }
    for score in scores:
        if score.metric == "acc":
            figures[f"{score.task}_{score.num_shots}_shots"] = round(score.value, 4)
    return figures


class _Steps:
    """Progress in whole steps of unlike length."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._started = 0

    def start(self, note: str) -> None:
        self._progress(self._started, self._total, note)
        self._started += 1

    def end(self) -> None:
        assert self._started == self._total
        self._progress(self._total, self._total, "done")


def _check_tokenizer(
    model: Path, tokenized: Path, trained: Path, shards: dict[str, Any], meta: dict[str, Any]
) -> None:
    expected = shards["tokenizer_sha256"]
    found = hashlib.sha256((model / "tokenizer.json").read_bytes()).hexdigest()
    for where, digest in ((model / "tokenizer.json", found), (trained, meta["tokenizer_sha256"])):
        if digest != expected:
            raise ValueError(
                f"{where} is of the tokenizer {digest}, but {tokenized} was made by {expected}. "
                "The model would be asked in tokens that it does not know. Evaluate with the "
                "shards that it was trained on."
            )


def _check_windows(folder: Path, model: LanguageModel, sequence_length: int) -> None:
    if sequence_length > model.max_length:
        raise ValueError(
            f"{folder} has {model.max_length} positions, but the samples of training have "
            f"{sequence_length} tokens. They are not of one run; export again."
        )


def _fit_ngrams(
    trained: Path, tokenized: Path, sequence_length: int, vocab_size: int
) -> list[NgramBaseline]:
    # A second epoch tells counts nothing.
    seen = np.unique(np.load(trained / "seen_samples.npy"))
    windows_NS: NDArray[Any] = read_windows(tokenized, "train", sequence_length, seen)
    return [
        NgramBaseline(name, NgramModel.fit(windows_NS, order, vocab_size))
        for order, name in enumerate(_NGRAMS, start=1)
    ]


def _ask(model: LanguageModel, task: TaskFiles, num_shots: int, seed: int) -> Answers:
    samples = run_task(model, task.folder, task.name, num_shots=num_shots, seed=seed)
    return read_answers(model, task, samples, num_shots=num_shots, seed=seed)


def _continue(model: LanguageModel, prompt: str, seed: int) -> dict[str, str]:
    continuation = continue_prompt(
        model, prompt, max_new_tokens=40, temperature=0.8, top_k=40, top_p=1.0, seed=seed
    )
    return {
        "prompt": prompt,
        "continuation": continuation.text,
        "stopped_by": continuation.stopped_by,
    }


def _write_items(answers: Answers, path: Path) -> None:
    lines = []
    for sample, question in zip(answers.samples, answers.questions, strict=True):
        item: dict[str, Any] = {
            "id": sample["doc"]["id"],
            "prompt": sample["arguments"][0][0],
            "choices": [continuation for _, continuation in sample["arguments"]],
            "log_likelihoods": [nats for nats, _ in sample["filtered_resps"]],
            "answer": question.answer,
        }
        for metric in ("acc", "acc_norm"):
            if metric in sample:
                item[metric] = int(sample[metric])
        lines.append(json.dumps(item, ensure_ascii=False, allow_nan=False) + "\n")
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def _write_json(results: dict[str, Any], path: Path) -> None:
    text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")
