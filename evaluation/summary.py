"""The run in one flat record, and what may honestly be said about it.

`summarize` is the one place where figures become claims; the HTML report, the terminal and
`mtnlg report --json` show what it says.

A score stands *above* (or *below*) its reference when its whole 95 % interval does; otherwise it
stands *at* it. The reference is the best of chance and the task's baselines, taken as exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.run_records import RunRecords
from evaluation.units import format_percent, join_words

_Z_95 = 1.959963984540054


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a proportion seen in n trials; true also at 0 and 1.

    Source: Wilson 1927, J. Am. Stat. Assoc. 22(158).
    """
    z2 = _Z_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def summarize(records: RunRecords) -> dict[str, Any]:
    """The content of `summary.json`: scalars, and lists of flat rows. See docs/formats.md."""
    training, total = records.training, records.funnel["total"]
    held_out = records.results["held_out"]
    language_models = [_language_model(row, held_out) for row in records.results["language_models"]]
    scores = [_score(row) for row in records.results["scores"]]
    stages = list(records.stages.values())
    return {
        "format": 1,
        "recipe": records.run["recipe_name"],
        "command": records.run["command"],
        "headline": _headline(language_models),
        "verdict": [_loss_sentence(held_out, language_models), *_score_sentences(scores)],
        "held_out_nats_per_token": held_out["nats_per_token"],
        "held_out_bits_per_byte": held_out["bits_per_byte"],
        "held_out_tokens": held_out["num_tokens"],
        "held_out_bytes": held_out["num_bytes"],
        "documents_in": total["in"],
        "documents_dropped": sum(total["dropped"].values()),
        "documents_train": total["train"],
        "documents_held_out": total["held_out"],
        "quarantined": sum(row["quarantined"] for row in records.sources.values()),
        "bytes_in": total["bytes_in"],
        "bytes_kept": total["bytes_kept"],
        "vocab_size": records.shards["vocab_size"],
        "num_parameters": training["num_parameters"],
        "train_tokens": training["num_tokens"],
        "train_steps": training["num_steps"],
        "final_train_nats_per_token": training["final_loss"],
        "final_validation_nats_per_token": training["final_validation_loss"],
        "tokens_per_second": training["tokens_per_second"],
        "model_flops_per_second": training["model_flops_per_second"],
        "mfu": training["mfu"],
        "hfu": training["hfu"],
        "flops_formula": training["flops_formula"],
        "peak_source": training["peak_source"],
        "utilization": utilization(training),
        "precision": training["precision"],
        "resumed_from": training["resumed_from"],
        "harness": records.results["harness"],
        "seconds": sum(stage["seconds"] for stage in stages),
        "cpu_seconds": sum(stage["cpu_seconds"] for stage in stages),
        "peak_memory_bytes": max(stage["peak_memory_bytes"] for stage in stages),
        "language_models": language_models,
        "scores": scores,
        "samples": [
            {"prompt": row["prompt"], "continuation": row["continuation"]}
            for row in records.results["prompts"]
        ],
        "stages": [
            {
                "stage": name,
                "key": stage["key"],
                "digest": stage["digest"],
                "inputs": dict(stage["inputs"]),
                "reused": stage["reused"],
                "seconds": stage["seconds"],
                "cpu_seconds": stage["cpu_seconds"],
                "peak_memory_bytes": stage["peak_memory_bytes"],
            }
            for name, stage in records.stages.items()
        ],
    }


def utilization(training: Mapping[str, Any]) -> str:
    """MFU and HFU side by side, or why there are none."""
    if training["mfu"] is None or training["hfu"] is None:
        return "unknown device peak, so no MFU"
    return f"MFU {format_percent(training['mfu'])}, HFU {format_percent(training['hfu'])}"


def _language_model(row: Mapping[str, Any], held_out: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"],
        "nats_per_token": row["nats_per_token"],
        "bits_per_byte": row["bits_per_byte"],
        "model_minus_this_nats": held_out["nats_per_token"] - row["nats_per_token"],
    }


def _score(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = wilson_interval(row["value"], row["n"])
    references = [(b["value"], b["name"]) for b in row["baselines"]]
    if row["chance"] is not None:
        references.append((row["chance"], "chance"))
    reference, name = max(references, default=(None, None))
    if reference is None:
        standing = "alone"
    elif low > reference:
        standing = "above"
    elif high < reference:
        standing = "below"
    else:
        standing = "at"
    return {
        "task": row["task"],
        "task_version": row["task_version"],
        "metric": row["metric"],
        "split": row["split"],
        "num_shots": row["num_shots"],
        "value": row["value"],
        "stderr": row["stderr"],
        "low_95": low,
        "high_95": high,
        "n": row["n"],
        "chance": row["chance"],
        "baselines": row["baselines"],
        "best_reference": name,
        "best_reference_value": reference,
        "standing": standing,
        "truncated_prompts": row["truncated_prompts"],
    }


def _headline(language_models: Sequence[Mapping[str, Any]]) -> str:
    beaten = [row["name"] for row in language_models if row["model_minus_this_nats"] < 0]
    unbeaten = [row["name"] for row in language_models if row["model_minus_this_nats"] >= 0]
    if not unbeaten:
        return f"The model predicts held-out text better than the {_models(beaten)}"
    if not beaten:
        return f"The model predicts held-out text no better than the {_models(unbeaten)}"
    return (
        f"The model predicts held-out text better than the {_models(beaten)}, "
        f"not yet better than the {_models(unbeaten)}"
    )


def _models(names: list[str]) -> str:
    return f"{join_words(names)} model{'s' if len(names) > 1 else ''}"


def _loss_sentence(
    held_out: Mapping[str, Any], language_models: Sequence[Mapping[str, Any]]
) -> str:
    parts = []
    for row in language_models:
        difference = round(row["model_minus_this_nats"], 2)
        if difference == 0:
            parts.append(f"level with the {row['name']}")
        else:
            side = "below" if difference < 0 else "above"
            parts.append(f"{abs(difference):.2f} {side} the {row['name']}")
    return (
        f"The model's held-out loss is {held_out['nats_per_token']:.2f} nats a token "
        f"({held_out['bits_per_byte']:.2f} bits a byte): {join_words(parts)} model, "
        f"all fitted on the same training tokens and scored on the same "
        f"{held_out['num_tokens']:,} held-out tokens."
    )


def _score_sentences(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    if not scores:
        return []
    sentences = []
    for standing in ("above", "below"):
        for row in scores:
            if row["standing"] == standing:
                sentences.append(
                    f"{_capital(_measured(row))} at {shots(row['num_shots'])}: "
                    f"{format_percent(row['value'])} (95 % interval {100 * row['low_95']:.1f} to "
                    f"{100 * row['high_95']:.1f} %, n = {row['n']}) is {standing} "
                    f"{_reference(row)}."
                )
    level: dict[str, list[str]] = {}
    for row in scores:
        if row["standing"] == "at":
            level.setdefault(_measured(row), []).append(str(row["num_shots"]))
    if sum(map(len, level.values())) == len(scores):
        tasks = list(dict.fromkeys(row["task"] for row in scores))
        sentences.append(
            f"{_capital(join_words(tasks))} accuracy sits at its baseline: no score can be "
            "told from the best of chance and n-gram baselines by its 95 % interval. "
            "Accuracy does not show that this model learned."
        )
    elif level:
        named = [
            f"{measured} at {join_words(numbers)} shot{'' if numbers == ['1'] else 's'}"
            for measured, numbers in level.items()
        ]
        sentences.append(
            f"{_capital(join_words(named))} cannot be told from the best of chance and n-gram "
            "baselines by the 95 % interval."
        )
    return sentences


def shots(number: int) -> str:
    """ "0 shots", "1 shot"."""
    return f"{number} shot" if number == 1 else f"{number} shots"


def _reference(row: Mapping[str, Any]) -> str:
    value = format_percent(row["best_reference_value"])
    name = row["best_reference"]
    return f"chance, {value}" if name == "chance" else f"the {name} baseline, {value}"


def _measured(score: Mapping[str, Any]) -> str:
    """What a score measures, in words."""
    metric = {"acc": "accuracy", "acc_norm": "length-normalised accuracy"}
    return f"{score['task']} {metric.get(score['metric'], score['metric'])}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
