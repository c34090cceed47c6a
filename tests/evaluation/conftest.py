"""A small world: documents of made-up sentences, a tokenizer trained on them, tiny GPT-2s."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

END_OF_TEXT = "<|endoftext|>"
NUM_POSITIONS = 128
SEQUENCE_LENGTH = 64


def make_documents(first: int, count: int) -> list[dict[str, str]]:
    """Documents numbered from `first`; two after one another share a group."""
    vocabulary = random.Random(0)
    letters = "abcdefghijklmnoprstuvw"
    words = ["".join(vocabulary.choices(letters, k=vocabulary.randint(2, 8))) for _ in range(300)]
    documents = []
    for number in range(first, first + count):
        draw = random.Random(number)
        paragraphs = []
        for _ in range(2):
            sentences = [
                " ".join(draw.choices(words, k=draw.randint(5, 11))).capitalize() + "."
                for _ in range(4)
            ]
            paragraphs.append(" ".join(sentences))
        text = "\n\n".join(paragraphs)
        documents.append(
            {
                "id": hashlib.blake2b(f"{number}".encode(), digest_size=16).hexdigest(),
                "source": "made-up",
                "group": f"file-{number // 2}",
                "locator": f"{number}",
                "text": text,
            }
        )
    return documents


def write_curated(
    folder: Path, train: list[dict[str, str]], held_out: list[dict[str, str]]
) -> Path:
    for split, documents in (("train", train), ("held_out", held_out)):
        (folder / split).mkdir(parents=True)
        rows = sorted(documents, key=lambda document: document["id"])
        half = len(rows) // 2
        for part, some in enumerate((rows[:half], rows[half:])):
            pq.write_table(pa.Table.from_pylist(some), folder / split / f"part-{part:05d}.parquet")
    return folder


@pytest.fixture(scope="session")
def train_documents() -> list[dict[str, str]]:
    return make_documents(10_000, 60)


@pytest.fixture(scope="session")
def held_out_documents() -> list[dict[str, str]]:
    return make_documents(0, 120)


@pytest.fixture(scope="session")
def curated(
    tmp_path_factory: pytest.TempPathFactory,
    train_documents: list[dict[str, str]],
    held_out_documents: list[dict[str, str]],
) -> Path:
    folder = tmp_path_factory.mktemp("curated")
    return write_curated(folder, train_documents, held_out_documents)


@pytest.fixture(scope="session")
def tokenizer(train_documents: list[dict[str, str]]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((document["text"] for document in train_documents), trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.fixture(scope="session")
def tokenized(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: Tokenizer,
    train_documents: list[dict[str, str]],
    held_out_documents: list[dict[str, str]],
) -> Path:
    folder = tmp_path_factory.mktemp("tokenized")
    (folder / "tokenizer").mkdir()
    (folder / "shards").mkdir()
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    splits = {}
    for split, documents in (("train", train_documents), ("held_out", held_out_documents)):
        tokens: list[int] = []
        for document in sorted(documents, key=lambda document: document["id"]):
            tokens += [*tokenizer.encode(document["text"]).ids, 0]
        np.array(tokens, dtype=np.uint16).tofile(folder / "shards" / f"{split}-00000.bin")
        size = {
            "num_documents": len(documents),
            "num_tokens": len(tokens),
            "num_bytes": sum(len(document["text"].encode()) for document in documents),
        }
        splits[split] = {**size, "shards": [{"prefix": f"{split}-00000", **size}]}
    digest = hashlib.sha256((folder / "tokenizer" / "tokenizer.json").read_bytes()).hexdigest()
    shards = {
        "format": 1,
        "tokenizer_sha256": digest,
        "vocab_size": tokenizer.get_vocab_size(),
        "end_of_text": END_OF_TEXT,
        "end_of_text_id": 0,
        "dtype": "uint16",
        "splits": splits,
    }
    (folder / "shards.json").write_text(json.dumps(shards))
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tokenized: Path) -> Path:
    """What evaluation reads of the stage `train`: sizes, and which samples were seen."""
    folder = tmp_path_factory.mktemp("trained")
    shards = json.loads((tokenized / "shards.json").read_text())
    (folder / "model").mkdir()
    meta = {
        "sequence_length": SEQUENCE_LENGTH,
        "tokenizer_sha256": shards["tokenizer_sha256"],
        "vocab_size": shards["vocab_size"],
    }
    (folder / "model" / "meta.json").write_text(json.dumps(meta))
    num_samples = (shards["splits"]["train"]["num_tokens"] - 1) // SEQUENCE_LENGTH
    np.save(folder / "seen_samples.npy", np.arange(num_samples)[::-2])
    return folder


ExportGpt2 = Callable[..., Path]


@pytest.fixture(scope="session")
def export_gpt2(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, tokenized: Path
) -> ExportGpt2:
    """Writes a folder as the stage `export` does; `change` may plant weights first."""

    def export(change: Callable[[GPT2LMHeadModel], Any] | None = None) -> Path:
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=tokenizer.get_vocab_size(),
            n_positions=NUM_POSITIONS,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
            # Large enough for predictions that differ from place to place.
            initializer_range=0.3,
        )
        gpt2 = GPT2LMHeadModel(config).eval()
        if change is not None:
            with torch.no_grad():
                change(gpt2)
        folder = tmp_path_factory.mktemp("exported")
        gpt2.save_pretrained(folder)
        text = (tokenized / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8")
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        settings = {
            "bos_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
            "eos_token": END_OF_TEXT,
            "split_special_tokens": True,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": END_OF_TEXT,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return folder

    return export


@pytest.fixture(scope="session")
def random_gpt2(export_gpt2: ExportGpt2) -> Path:
    return export_gpt2()
