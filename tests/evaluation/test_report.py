"""The report, made from a run as docs/formats.md describes it."""

from __future__ import annotations

import json
import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.charts import bucket_means
from evaluation.report import write_report
from evaluation.summary import wilson_interval
from evaluation.units import format_bytes, format_count, format_duration, format_percent

RULES = ["source_cap", "too_short", "too_long", "exact_duplicate", "language", "near_duplicate"]
SCRIPT = "<script>alert('from the corpus')</script>"


def make_run(root: Path) -> dict[str, Any]:
    """The files and records of a small quickstart, by the contract; values like a real run's."""
    folders = {
        name: root / name for name in ("ingest", "curate", "tokenize", "train", "export", "evaluate")
    }
    for folder in folders.values():
        folder.mkdir(parents=True)
    _corpus(folders["ingest"], folders["curate"])
    _tokens(folders["tokenize"])
    _training(folders["train"])
    _results(folders["evaluate"])
    seconds = {
        "ingest": (38.4, 71.0, 0.61e9),
        "curate": (52.1, 98.3, 1.12e9),
        "tokenize": (14.2, 20.9, 0.93e9),
        "train": (184.6, 361.0, 6.42e9),
        "export": (1.3, 1.4, 0.52e9),
        "evaluate": (29.8, 55.2, 1.94e9),
    }
    inputs = {
        "ingest": ["raw"],
        "curate": ["ingest"],
        "tokenize": ["curate"],
        "train": ["tokenize"],
        "export": ["train", "tokenize"],
        "evaluate": ["export", "tokenize", "curate", "train"],
    }
    return {
        "run": {
            "recipe_name": "quickstart",
            "recipe_yaml": "name: quickstart\nseed: 1234\nsources:\n- name: stdlib\n"
            "  reader: installed_documentation\n  packages: [stdlib]\n",
            "command": "mtnlg run quickstart",
            "machine": {
                "cpu": "AMD EPYC 9B14",
                "cores": 2,
                "memory": "24.0 GB",
                "accelerators": "none",
            },
        },
        "stages": {
            name: {
                "key": f"{i:x}" * 64,
                "digest": f"{i + 8:x}" * 64,
                "folder": folders[name],
                "seconds": seconds[name][0],
                "cpu_seconds": seconds[name][1],
                "peak_memory_bytes": int(seconds[name][2]),
                "metrics": {},
                "reused": name == "ingest",
                "inputs": {given: f"{ord(given[0]):x}" * 32 for given in inputs[name]},
                "versions": {"python": "3.11.13", "torch": "2.13.0+cpu", "lm_eval": "0.4.13"},
            }
            for i, name in enumerate(folders)
        },
    }


def edit(path: Path, change: Any) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def _corpus(ingest: Path, curate: Path) -> None:
    counts = {  # source: (dropped by rule, train, held out, bytes in, bytes kept)
        "stdlib": ([0, 5387, 0, 2, 2, 27], 1880, 39, 1_570_000, 1_100_000),
        "numpy": ([0, 2104, 3, 61, 4, 88], 3312, 70, 4_910_000, 4_420_000),
        "torch": ([8120, 5230, 1, 210, 12, 301], 9870, 201, 18_300_000, 9_950_000),
    }
    sources = {
        name: {
            "in": sum(dropped) + train + held_out,
            "dropped": dict(zip(RULES, dropped, strict=True)),
            "train": train,
            "held_out": held_out,
            "bytes_in": bytes_in,
            "bytes_kept": bytes_kept,
        }
        for name, (dropped, train, held_out, bytes_in, bytes_kept) in counts.items()
    }
    total: dict[str, Any] = {
        key: sum(row[key] for row in sources.values())
        for key in ("in", "train", "held_out", "bytes_in", "bytes_kept")
    }
    total["dropped"] = {rule: sum(r["dropped"][rule] for r in sources.values()) for rule in RULES}
    dedup = {
        "num_bands": 14,
        "num_rows": 8,
        "jaccard": 0.8,
        "candidate_pairs": 1903,
        "verified_pairs": 1544,
        "s_curve": {f"{s:g}": 1 - (1 - s**8) ** 14 for s in (0.5, 0.6, 0.7, 0.8, 0.9)},
    }
    (curate / "funnel.json").write_text(
        json.dumps({"rules": RULES, "sources": sources, "total": total, "dedup": dedup})
    )
    (ingest / "sources.json").write_text(
        json.dumps(
            {
                name: {
                    "files": 211,
                    "documents": row["in"],
                    "bytes": row["bytes_in"],
                    "quarantined": 2 if name == "torch" else 0,
                }
                for name, row in sources.items()
            }
        )
    )
    drops = [
        ("too_short", 41.0, 512.0, None, f"Return the size. {SCRIPT}", None),
        ("too_short", 287.0, 512.0, None, "Close the file descriptor fd.", None),
        ("source_cap", 10_000_000.0, 10_000_000.0, None, "Applies a 2D convolution over …", None),
        ("exact_duplicate", 1.0, 1.0, None, "This is an alias of :func:`gmtime`.", "kept-a"),
        ("language", 0.57, 0.5, "fr", "argument: le tableau, axis: l'axe des valeurs", None),
        (
            "near_duplicate",
            0.914,
            0.8,
            None,
            "Return the maximum along a given axis, ignoring NaN. " * 9,
            "kept-b",
        ),
    ]
    rows = [
        {
            "id": f"{i:032x}",
            "source": "torch",
            "locator": f"torch/nn/functional.py:conv{i}",
            "rule": rule,
            "value": value,
            "threshold": threshold,
            "representative": kept,
            "detail": detail,
        }
        for i, (rule, value, threshold, detail, _, kept) in enumerate(drops)
    ]
    schema = pa.schema(
        [(name, pa.string()) for name in ("id", "source", "locator", "rule")]
        + [("value", pa.float64()), ("threshold", pa.float64())]
        + [(name, pa.string()) for name in ("representative", "detail")]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), curate / "decisions.parquet")
    texts = {f"{i:032x}": drop[4] for i, drop in enumerate(drops)}
    texts |= {"kept-a": "This is an alias of :func:`gmtime`.", "kept-b": "Return the maximum."}
    (ingest / "documents").mkdir()
    documents = [
        {"id": key, "source": "torch", "group": "g", "locator": "l", "text": text}
        for key, text in texts.items()
    ]
    for i in range(2):
        pq.write_table(
            pa.Table.from_pylist(documents[i::2]),
            ingest / "documents" / f"part-{i:05}.parquet",
            row_group_size=2,
        )


def _tokens(folder: Path) -> None:
    split = {"num_documents": 15062, "num_tokens": 4_290_000, "num_bytes": 15_100_000, "shards": []}
    held_out = {"num_documents": 310, "num_tokens": 86_016, "num_bytes": 300_800, "shards": []}
    (folder / "shards.json").write_text(
        json.dumps(
            {
                "format": 1,
                "tokenizer_sha256": "ab" * 32,
                "vocab_size": 8192,
                "end_of_text": "<|endoftext|>",
                "end_of_text_id": 0,
                "dtype": "uint16",
                "splits": {"train": split, "held_out": held_out},
            }
        )
    )


def _training(folder: Path) -> None:
    noise = random.Random(1)
    tokens_a_step, num_steps = 1024, 1068
    steps, validation = [], []
    for step in range(1, num_steps + 1):
        tokens = step * tokens_a_step
        smooth = 4.86 + 4.2 * math.exp(-tokens / 120_000) + 0.9 * math.exp(-tokens / 600_000)
        warm = min(1.0, tokens / 50_000)
        decay = 0.5 * (1 + math.cos(math.pi * tokens / (num_steps * tokens_a_step)))
        steps.append(
            {
                "step": step,
                "tokens": tokens,
                "loss": smooth + noise.gauss(0, 0.16),
                "learning_rate": warm * (1e-4 + 9e-4 * decay),
                "grad_norm": 0.5 + 2.5 * math.exp(-tokens / 80_000) + abs(noise.gauss(0, 0.1)),
                "tokens_per_second": 5930 + noise.gauss(0, 260),
                "sample_hash": f"{step:016x}",
            }
        )
        if step % 119 == 0:
            validation.append(
                {"step": step, "tokens": tokens, "loss": smooth + 0.02, "num_tokens": 49_920}
            )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    (folder / "validation.jsonl").write_text("".join(json.dumps(r) + "\n" for r in validation))
    (folder / "training.json").write_text(
        json.dumps(
            {
                "num_parameters": 3_380_000,
                "num_tokens": num_steps * tokens_a_step,
                "num_steps": num_steps,
                "final_loss": steps[-1]["loss"],
                "final_validation_loss": validation[-1]["loss"],
                "tokens_per_second": 5932.4,
                "model_flops_per_token": 2.1e7,
                "hardware_flops_per_token": 2.1e7,
                "flops_formula": "Narayanan et al. 2021, eq. 3: 72 l h² (1 + s / 6h + V / 12lh)",
                "model_flops_per_second": 1.25e11,
                "mfu": None,
                "hfu": None,
                "peak_source": "no peak known for this CPU",
                "layout": {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2},
                "precision": "bf16",
                "resumed_from": [],
            }
        )
    )


def _results(folder: Path) -> None:
    def score(task: str, shots: int, value: float, baselines: dict[str, float]) -> dict[str, Any]:
        return {
            "task": task,
            "task_version": "1",
            "metric": "acc",
            "num_shots": shots,
            "value": value,
            "stderr": math.sqrt(value * (1 - value) / 299),
            "n": 300,
            "chance": 0.25 if task == "continuation" else 0.0,
            "baselines": [{"name": name, "value": v} for name, v in baselines.items()],
            "truncated_prompts": 12 if shots == 4 else 0,
            "seed": 1234,
            "split": "held_out",
            "data_sha256": "cd" * 32,
        }

    cloze = {"unigram": 0.12, "bigram": 0.167, "trigram": 0.203}
    continuation = {"unigram": 0.26, "bigram": 0.31}
    held_out = {"num_tokens": 86_016, "num_bytes": 300_800}
    (folder / "results.json").write_text(
        json.dumps(
            {
                "harness": "lm_eval 0.4.13",
                "scores": [
                    score("cloze", 0, 0.17, cloze),
                    score("cloze", 1, 0.12, cloze),
                    score("cloze", 4, 0.183, cloze),
                    score("continuation", 0, 0.43, continuation),
                    score("continuation", 1, 0.336, continuation),
                    score("continuation", 4, 0.29, continuation),
                ],
                "held_out": {"nats_per_token": 5.021, "bits_per_byte": 2.071, **held_out},
                "language_models": [
                    {"name": n, "nats_per_token": nats, "bits_per_byte": bits, **held_out}
                    for n, nats, bits in (
                        ("unigram", 6.812, 2.81),
                        ("bigram", 4.921, 2.03),
                        ("trigram", 4.224, 1.743),
                    )
                ],
                "prompts": [
                    {
                        "prompt": "Return the",
                        "continuation": " value of the given axis, or the default if the object"
                        " has no such attribute.\n\nThis method is called by the array",
                    },
                    {"prompt": f"The {SCRIPT}", "continuation": " function is not"},
                ],
                "model": "export",
            }
        )
    )


if __name__ == "__main__":
    import sys

    target = Path(sys.argv[1])
    write_report(make_run(target / "stages"), target)
