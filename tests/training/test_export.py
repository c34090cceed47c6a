"""The exported Hugging Face model is the trained model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_job import SEQUENCE_LENGTH, VOCAB_SIZE, Run, launch, read_logs
from transformers import AutoTokenizer, GPT2LMHeadModel

from training.export import export


@pytest.mark.parametrize("layout", ["1x1x1", "2x2x2"])
def test_logits_equal_the_trainers_own(
    layout: str, run: Callable[..., Run], tokenized: Path, tmp_path: Path
) -> None:
    trained = run(layout)
    figures = export(trained.out, tokenized, tmp_path / "exported")
    tokens = np.random.default_rng(3).integers(0, VOCAB_SIZE, (2, SEQUENCE_LENGTH))
    np.save(tmp_path / "tokens.npy", tokens)
    arguments = [str(trained.out.parent / "job.json")]
    arguments += [str(tmp_path / name) for name in ("tokens.npy", "logits.npy")]
    ranks = launch("trainer_logits", arguments, trained.config, tmp_path / "logs")
    _, errors = ranks.communicate(timeout=60)
    assert ranks.returncode == 0, errors + read_logs(tmp_path)
    logits = np.load(tmp_path / "logits.npy")

    gpt2 = GPT2LMHeadModel.from_pretrained(tmp_path / "exported")
    with torch.no_grad():
        exported = gpt2(torch.from_numpy(tokens)).logits.numpy()
    assert exported.shape == (2, SEQUENCE_LENGTH, VOCAB_SIZE)
    assert np.abs(exported - logits[..., :VOCAB_SIZE]).max() < 1e-4
    assert (logits[..., VOCAB_SIZE:] == -np.inf).all()  # padding has no probability
    assert figures["num_parameters"] == sum(p.numel() for p in gpt2.parameters())


def test_the_exported_folder_loads_without_this_project(
    run: Callable[..., Run], tokenized: Path, tmp_path: Path
) -> None:
    export(run("2x2x2").out, tokenized, tmp_path)
    names = {f.name for f in tmp_path.iterdir()}
    assert names >= {"config.json", "generation_config.json", "model.safetensors"}
    assert names >= {"tokenizer.json", "tokenizer_config.json"}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = GPT2LMHeadModel.from_pretrained(tmp_path)
    assert model.dtype == torch.float32
    assert model.config.eos_token_id == tokenizer.eos_token_id == 0
    inputs = tokenizer("w5 w6 w7", return_tensors="pt")
    written = model.generate(inputs["input_ids"], max_new_tokens=4, do_sample=False)
    assert written.shape[1] <= 7


def test_exporting_twice_gives_the_same_bytes(
    run: Callable[..., Run], tokenized: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        export(run("2x2x2").out, tokenized, tmp_path / name)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


@pytest.fixture
def trained_copy(run: Callable[..., Run], tmp_path: Path) -> Path:
    shutil.copytree(run("2x2x2").out / "model", tmp_path / "trained" / "model")
    return tmp_path / "trained"


SHARD = "stage-01-shard-01.safetensors"


def test_a_missing_shard_is_refused_by_name(
    trained_copy: Path, tokenized: Path, tmp_path: Path
) -> None:
    (trained_copy / "model" / SHARD).unlink()
    with pytest.raises(ValueError, match=rf"{SHARD} is missing"):
        export(trained_copy, tokenized, tmp_path / "out")


def test_a_truncated_shard_is_refused_by_name(
    trained_copy: Path, tokenized: Path, tmp_path: Path
) -> None:
    shard = trained_copy / "model" / SHARD
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(ValueError, match=rf"{SHARD} cannot be read"):
        export(trained_copy, tokenized, tmp_path / "out")


def test_shards_that_do_not_fit_are_refused_by_name(
    trained_copy: Path, tokenized: Path, tmp_path: Path
) -> None:
    shard = trained_copy / "model" / SHARD
    weights = load_file(shard)

    save_file({**weights, "layers.1.mlp.dense_4h_to_h.weight": torch.zeros(32, 32)}, shard)
    with pytest.raises(ValueError, match=r"dense_4h_to_h.weight has shape \(32, 32\).*\(32, 64\)"):
        export(trained_copy, tokenized, tmp_path / "out")

    save_file({**weights, "layers.1.mlp.dense_4h_to_h.bias": torch.ones(32)}, shard)
    with pytest.raises(ValueError, match=r"dense_4h_to_h.bias differs between"):
        export(trained_copy, tokenized, tmp_path / "out")

    del weights["final_layernorm.bias"]
    save_file(weights, shard)
    with pytest.raises(ValueError, match=r"final_layernorm.bias lies in 1 shards.*is 2"):
        export(trained_copy, tokenized, tmp_path / "out")


def test_another_tokenizer_is_refused(trained_copy: Path, tokenized: Path, tmp_path: Path) -> None:
    other = tmp_path / "tokenized"
    shutil.copytree(tokenized, other)
    shards = json.loads((other / "shards.json").read_text())
    (other / "shards.json").write_text(json.dumps(shards | {"tokenizer_sha256": "0" * 64}))
    with pytest.raises(ValueError, match=r"tokenizer_sha256 = .* has 0000"):
        export(trained_copy, other, tmp_path / "out")
