"""The stage `tokenize`: from curated documents to a tokenizer and Megatron shards.

Documents keep their order. Each is encoded for itself and ended by end-of-text, so the output is
the same for any number of workers and any size of batch. Memory is bounded by the batches in
flight, not by the corpus.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from data_curation.bpe import load_bpe, save_bpe, train_bpe, training_sample
from data_curation.config import TokenizerConfig
from data_curation.documents import count_documents, parts, read_documents
from data_curation.in_order import map_in_order
from data_curation.progress import Progress
from data_curation.shards import EncodedDocuments, ShardWriter, split_summary, token_dtype

SPLITS = ("train", "held_out")

BATCH_BYTES = 1 << 20
"""UTF-8 bytes of the documents that one call of a worker encodes; about a quarter second."""


def tokenize(
    config: TokenizerConfig,
    curated: Path,
    out: Path,
    *,
    seed: int,
    executor: Executor,
    progress: Progress,
) -> dict[str, Any]:
    """Train or load the tokenizer and write the shards of both splits.

    Args:
        config: the tokenizer, and the bound of a shard.
        curated: folder of the stage `curate`.
        out: empty folder that receives `tokenizer/`, `shards/` and `shards.json`.
        seed: given to every stage; nothing is drawn here, since ids shuffled the documents.
        executor: encodes the batches, and trains the tokenizer.
        progress: told the documents done, of all documents of both splits.

    Returns:
        Key figures: `vocab_size`, `train_tokens`, `held_out_tokens`, `bytes_per_token`, `shards`.

    Raises:
        ValueError: a split is empty, the tokenizer cannot serve, or a document exceeds a shard.
    """
    files = {split: parts(curated / split) for split in SPLITS}
    total = sum(_count_documents(split, files[split]) for split in SPLITS)
    if config.path is None:
        progress(0, total, "training the tokenizer")
        # In a worker, so that its memory and threads end with it.
        trained = executor.submit(_train, config, files["train"]).result()
        tokenizer = Tokenizer.from_str(trained)
    else:
        tokenizer = load_bpe(config)
    save_bpe(tokenizer, config.end_of_text, out / "tokenizer")
    tokenizer_file = out / "tokenizer" / "tokenizer.json"
    digest = hashlib.sha256(tokenizer_file.read_bytes()).hexdigest()
    # Ids of a loaded vocabulary may have gaps: its size is that of an embedding that holds all.
    vocab_size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    end_of_text_id = tokenizer.token_to_id(config.end_of_text)
    assert end_of_text_id is not None
    dtype = token_dtype(vocab_size)
    encoder = Encoder(str(tokenizer_file), digest, end_of_text_id, dtype.name)

    shards = out / "shards"
    shards.mkdir()
    splits = {}
    done = 0
    for split in SPLITS:
        encoded_batches = map_in_order(executor, partial(encode, encoder), _batches(files[split]))
        with ShardWriter(shards, split, dtype, int(config.shard_bytes)) as writer:
            for batch, encoded in encoded_batches:
                writer.add(encoded, batch.ids, batch.sources)
                done += len(batch.ids)
                progress(done, total, f"encoding {split.replace('_', '-')} documents")
        splits[split] = split_summary(writer.shards)
    summary = {
        "format": 1,
        "tokenizer_sha256": digest,
        "vocab_size": vocab_size,
        "end_of_text": config.end_of_text,
        "end_of_text_id": end_of_text_id,
        "dtype": dtype.name,
        "splits": splits,
    }
    (out / "shards.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    train, held_out = splits["train"], splits["held_out"]
    return {
        "vocab_size": vocab_size,
        "train_tokens": train["num_tokens"],
        "held_out_tokens": held_out["num_tokens"],
        "bytes_per_token": round(train["num_bytes"] / train["num_tokens"], 3),
        "shards": len(train["shards"]) + len(held_out["shards"]),
    }


class Encoder(NamedTuple):
    """What a worker needs to know to encode."""

    tokenizer_file: str
    tokenizer_sha256: str
    end_of_text_id: int
    dtype: str


class Batch(NamedTuple):
    """Documents that are encoded in one call."""

    ids: list[str]
    sources: list[str]
    texts: list[str]


def encode(encoder: Encoder, batch: Batch) -> EncodedDocuments:
    """Encode the texts of `batch`, each ended by end-of-text. Runs in a worker.

    Raises:
        ValueError: a text was encoded to the end-of-text id.
    """
    # The workers are the parallelism; threads inside each would only fight over the cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = _tokenizer(encoder.tokenizer_file, encoder.tokenizer_sha256)
    encodings = tokenizer.encode_batch_fast(batch.texts, add_special_tokens=False)
    end = encoder.end_of_text_id
    documents = []
    for name, encoding in zip(batch.ids, encodings, strict=True):
        ids = encoding.ids
        if end in ids:
            raise ValueError(
                f"Document {name}: its text was encoded to the end-of-text id {end}. "
                "Choose a tokenizer.end_of_text that is no ordinary token."
            )
        ids.append(end)
        documents.append(np.array(ids, dtype=encoder.dtype))
    return EncodedDocuments(
        tokens=np.concatenate(documents),
        lengths=np.array([len(d) for d in documents], dtype=np.int64),
        text_bytes=np.array([len(text.encode()) for text in batch.texts], dtype=np.int64),
    )


@lru_cache(maxsize=1)
def _tokenizer(file: str, sha256: str) -> Tokenizer:
    # The digest is part of the cache's key only: a worker may outlive the file of an earlier call.
    del sha256
    tokenizer = Tokenizer.from_file(file)
    tokenizer.encode_special_tokens = True  # Not kept in the file.
    return tokenizer


def _train(config: TokenizerConfig, files: list[Path]) -> str:
    texts = (document.text for document in read_documents(files))
    sample = training_sample(texts, int(config.sample_bytes))
    return str(train_bpe(sample, config).to_str())


def _batches(files: list[Path]) -> Iterator[Batch]:
    """Documents in order, in batches of about `BATCH_BYTES`; a larger document stands alone."""
    batch, size = Batch([], [], []), 0
    for document in read_documents(files):
        text_bytes = len(document.text.encode())
        if batch.ids and size + text_bytes > BATCH_BYTES:
            yield batch
            batch, size = Batch([], [], []), 0
        batch.ids.append(document.id)
        batch.sources.append(document.source)
        batch.texts.append(document.text)
        size += text_bytes
    if batch.ids:
        yield batch


def _count_documents(split: str, files: list[Path]) -> int:
    count = count_documents(files)
    if count == 0:
        raise ValueError(
            f"The {split} split holds no document. Bring more text, or change "
            "curation.held_out_fraction."
        )
    return count
