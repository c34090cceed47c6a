from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from evaluation.language_model import LanguageModel
from evaluation.perplexity import measure, token_bytes
from evaluation.token_windows import read_windows


def test_token_bytes_add_up_to_the_bytes_of_any_text(tokenizer: Tokenizer) -> None:
    sizes = token_bytes(tokenizer, end_of_text_id=0)
    for text in ("plain words", "é ß 你好 👩‍🔬\r\n\x00", " <|endoftext|> "):
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        assert sizes[tokens].sum() == len(text.encode())
    assert sizes[0] == 0


def test_the_bytes_of_all_held_out_tokens_are_those_that_the_shards_state(
    tokenized: Path, tokenizer: Tokenizer
) -> None:
    shards = json.loads((tokenized / "shards.json").read_text())
    tokens = np.fromfile(tokenized / "shards" / "held_out-00000.bin", dtype=np.uint16)
    sizes = token_bytes(tokenizer, end_of_text_id=0)
    assert sizes[tokens].sum() == shards["splits"]["held_out"]["num_bytes"]


def test_a_model_that_knows_nothing_takes_the_logarithm_of_the_vocabulary(
    export_gpt2, tokenized: Path, tokenizer: Tokenizer
) -> None:
    folder = export_gpt2(lambda gpt2: gpt2.transformer.wte.weight.zero_())
    windows = read_windows(tokenized, "held_out", 64)[:10]
    sizes = token_bytes(tokenizer, end_of_text_id=0)
    found = measure(LanguageModel.load(folder, batch_size=3), windows, sizes)
    vocab_size = tokenizer.get_vocab_size()
    assert found.num_tokens == 10 * 64
    # Of exactly the predicted tokens: the first of each window is none.
    text = [tokenizer.decode([token]) for token in windows[:, 1:].ravel().tolist() if token]
    assert found.num_bytes == sum(len(piece.encode()) for piece in text)
    assert found.nats_per_token == pytest.approx(math.log(vocab_size), rel=1e-6)
    assert found.bits_per_byte == pytest.approx(640 * math.log2(vocab_size) / found.num_bytes)


def test_the_loss_of_a_window_is_that_of_transformers(random_gpt2: Path, tokenized: Path) -> None:
    model = LanguageModel.load(random_gpt2, batch_size=4)
    windows = read_windows(tokenized, "held_out", 64)[:6]
    found = model.token_nats(windows)
    assert found.shape == (6, 64)
    for window, nats in zip(windows, found, strict=True):
        tokens = torch.from_numpy(window.astype(np.int64))[None]
        with torch.inference_mode():
            loss = model.gpt2(tokens, labels=tokens).loss
        assert nats.mean() == pytest.approx(float(loss), abs=1e-5)
