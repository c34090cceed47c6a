"""A tokenized corpus and training jobs of a few seconds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from training.config import TrainingConfig

REPOSITORY = Path(__file__).parents[2]
VOCAB_SIZE = 301  # odd: no tensor-parallel size divides it
SEQUENCE_LENGTH = 16
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
        random = np.random.default_rng(seed)
        steps = random.integers(1, 4, num_tokens)
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
        # Gradient norms of this model run from 0.5 to 2, so that some steps are clipped.
        "optimizer": {"learning_rate": 3e-3, "warmup_tokens": 4 * step, "clip_grad_norm": 0.7},
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
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
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
    assert ranks.returncode == 0, errors + _logs(scratch)
    return [json.loads(line) for line in events.splitlines()]


def _logs(scratch: Path) -> str:
    return "\n".join(file.read_text() for file in sorted((scratch / "logs").rglob("*.log")))


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def tokenized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenized")
    return write_tokenized(folder, num_train=6000, num_held_out=400)
