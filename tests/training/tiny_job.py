"""A tokenized corpus and training jobs of a few seconds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from training.config import TrainingConfig

REPOSITORY = Path(__file__).parents[2]
VOCAB_SIZE = 301  # odd: no tensor-parallel size divides it
SEQUENCE_LENGTH = 16
CLIP_GRAD_NORM = 1.5  # clips some steps of the tiny job and leaves others
END_OF_TEXT = "<|endoftext|>"


def write_tokenized(folder: Path, *, num_train: int, num_held_out: int) -> Path:
    """Write a tokenized folder: token streams in which each token hints at the next."""
    tokenizer_folder, shards = folder / "tokenizer", folder / "shards"
    shards.mkdir(parents=True)
    vocabulary = {END_OF_TEXT: 0, **{f"w{i}": i for i in range(1, VOCAB_SIZE)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token=END_OF_TEXT)),
        eos_token=END_OF_TEXT,
    )
    tokenizer.save_pretrained(tokenizer_folder)
    splits = {}
    for seed, (split, num_tokens) in enumerate(
        {"train": num_train, "held_out": num_held_out}.items()
    ):
        # Three out of four tokens follow from the one before, so that there is much to learn.
        random = np.random.default_rng(seed)
        steps = random.choice([1, 1, 1, 7], num_tokens)
        stream = 1 + np.cumsum(steps) % (VOCAB_SIZE - 1)
        documents = [np.append(part, 0) for part in np.array_split(stream, 2)]
        prefix = f"{split}-00000"
        builder = IndexedDatasetBuilder(str(shards / f"{prefix}.bin"), dtype=np.uint16)
        for document in documents:
            builder.add_document(torch.from_numpy(document), [len(document)])
        builder.finalize(str(shards / f"{prefix}.idx"))
        counts = {"num_documents": 2, "num_tokens": num_tokens + 2, "num_bytes": num_tokens}
        splits[split] = {**counts, "shards": [{"prefix": prefix, **counts}]}
    digest = hashlib.sha256((tokenizer_folder / "tokenizer.json").read_bytes()).hexdigest()
    summary = {
        "format": 1,
        "tokenizer_sha256": digest,
        "vocab_size": VOCAB_SIZE,
        "end_of_text": END_OF_TEXT,
        "end_of_text_id": 0,
        "dtype": "uint16",
        "splits": splits,
    }
    (folder / "shards.json").write_text(json.dumps(summary))
    return folder


def tiny_config(layout: str = "1x1x1", **changes: Any) -> TrainingConfig:
    """A job of 20 steps; `layout` is tensor x pipeline x data parallel."""
    tensor, pipeline, data = (int(size) for size in layout.split("x"))
    global_batch = 8
    step = global_batch * SEQUENCE_LENGTH
    settings: dict[str, Any] = {
        "model": {
            "num_layers": 2,
            "hidden_size": 32,
            "num_attention_heads": 4,
            "max_positions": SEQUENCE_LENGTH,
        },
        "layout": {
            "tensor_parallel": tensor,
            "pipeline_parallel": pipeline,
            "data_parallel": data,
        },
        "optimizer": {
            "learning_rate": 1e-2,
            "min_learning_rate": 1e-3,
            "warmup_tokens": 4 * step,
            "clip_grad_norm": CLIP_GRAD_NORM,
        },
        "sequence_length": SEQUENCE_LENGTH,
        "micro_batch": 2,
        "global_batch": global_batch,
        "train_tokens": 20 * step,
        "checkpoint_interval_tokens": 8 * step,
        "validation_interval_tokens": 10 * step,
        "validation_tokens": 7 * SEQUENCE_LENGTH,  # 7 samples: no layout divides them
        "precision": "fp32",
    }
    return TrainingConfig.model_validate(settings | changes)


def start_ranks(
    config: TrainingConfig, tokenized: Path, out: Path, scratch: Path
) -> subprocess.Popen[str]:
    """Start the ranks of a job; the launcher leads a process group of its own."""
    job = {
        "config": config.model_dump(mode="json"),
        "seed": 1,
        "tokenized": str(tokenized),
        "out": str(out),
    }
    out.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "job.json").write_text(json.dumps(job))
    return launch("training.worker", [str(scratch / "job.json")], config, scratch / "logs")


def launch(
    module: str, arguments: Sequence[str], config: TrainingConfig, logs: Path
) -> subprocess.Popen[str]:
    """Start `module` on every rank of a layout."""
    command = [sys.executable, "-m", "infra.launchers.fork"]
    command += ["--num-ranks", str(config.layout.num_ranks), "--log-folder", str(logs)]
    return subprocess.Popen(
        [*command, module, *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_job(
    config: TrainingConfig, tokenized: Path, out: Path, scratch: Path
) -> list[dict[str, Any]]:
    """Run a job to its end and return the events that rank 0 wrote."""
    ranks = start_ranks(config, tokenized, out, scratch)
    events, errors = ranks.communicate(timeout=300)
    assert ranks.returncode == 0, errors + read_logs(scratch)
    return [json.loads(line) for line in events.splitlines()]


def read_logs(scratch: Path) -> str:
    """What the ranks of the last launch wrote to standard error."""
    files = sorted(f for f in (scratch / "logs").rglob("*") if f.is_file())
    return "\n".join(file.read_text() for file in files)


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@dataclass(frozen=True)
class Run:
    """A finished job."""

    config: TrainingConfig
    out: Path
    events: list[dict[str, Any]]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return records(self.out / "metrics.jsonl")

    @property
    def validation(self) -> list[dict[str, Any]]:
        return records(self.out / "validation.jsonl")

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.out / "training.json").read_text())
        return summary
