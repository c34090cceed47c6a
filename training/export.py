"""The trained model as a Hugging Face GPT-2 folder.

Merges the shards of all pipeline stages and tensor-parallel ranks, drops the padding rows of the
vocabulary and the positions that were never trained, and rewrites the weights in GPT-2's terms:
linear weights as (in, out), and q, k and v as three blocks rather than per head. The exported
model computes the same function as the trainer.

Shape suffixes: H hidden, A heads, D head size, X any.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils.logging import disable_progress_bar

from training.config import LayoutConfig, ModelConfig
from training.model_files import META, shard_name
from training.parameters import (
    FINAL_LAYERNORM,
    LAYERNORM_EPSILON,
    POSITION_EMBEDDINGS,
    WORD_EMBEDDINGS,
    num_parameters,
    parameter_specs,
)

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")

# GPT-2's name of each part of a layer.
_LAYER_PARTS = {
    "input_layernorm": "ln_1",
    "attention.query_key_value": "attn.c_attn",
    "attention.dense": "attn.c_proj",
    "post_attention_layernorm": "ln_2",
    "mlp.dense_h_to_4h": "mlp.c_fc",
    "mlp.dense_4h_to_h": "mlp.c_proj",
}


def export(trained: Path, tokenized: Path, out: Path) -> dict[str, int | float | str]:
    """Write the Hugging Face folder.

    Args:
        trained: output folder of `train`.
        tokenized: output folder of `tokenize` that the model was trained on.
        out: where to write.

    Returns:
        `num_parameters`, `vocab_size` and `num_positions`.

    Raises:
        ValueError: if a shard is missing, unreadable or does not fit the others, or if the
            tokenizer is not the one that the model was trained with.
    """
    meta = json.loads((trained / "model" / META).read_text(encoding="utf-8"))
    shards = json.loads((tokenized / "shards.json").read_text(encoding="utf-8"))
    for field in ("tokenizer_sha256", "vocab_size"):
        if meta[field] != shards[field]:
            raise ValueError(
                f"{trained}: trained with {field} = {meta[field]}, but {tokenized} has "
                f"{shards[field]}. Export with the tokenizer that the model was trained with."
            )
    model = ModelConfig.model_validate(meta["model"])
    weights = merge_shards(trained / "model")
    config = GPT2Config(
        vocab_size=meta["vocab_size"],
        n_positions=meta["sequence_length"],
        n_embd=model.hidden_size,
        n_layer=model.num_layers,
        n_head=model.num_attention_heads,
        activation_function="gelu_new",
        layer_norm_epsilon=LAYERNORM_EPSILON,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=shards["end_of_text_id"],
        eos_token_id=shards["end_of_text_id"],
        tie_word_embeddings=True,
    )
    gpt2 = GPT2LMHeadModel(config)
    renamed = gpt2_weights(weights, model, config.vocab_size, config.n_positions)
    renamed["lm_head.weight"] = renamed["transformer.wte.weight"]
    gpt2.load_state_dict(renamed)
    disable_progress_bar()  # One file is written at once, and standard error is not ours.
    gpt2.save_pretrained(out)
    for name in _TOKENIZER_FILES:
        shutil.copyfile(tokenized / "tokenizer" / name, out / name)
    return {
        "num_parameters": num_parameters(model, config.vocab_size),
        "vocab_size": config.vocab_size,
        "num_positions": config.n_positions,
    }


def merge_shards(folder: Path) -> dict[str, Tensor]:
    """Put the parameters of a trained model together from the files of its layout.

    Args:
        folder: `model/` of a training output.

    Returns:
        Every parameter whole, fp32, by logical name.

    Raises:
        ValueError: naming the file or the parameter that is missing or does not fit.
    """
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    layout = LayoutConfig.model_validate(meta["layout"])
    model = ModelConfig.model_validate(meta["model"])
    specs = parameter_specs(model, meta["padded_vocab_size"])
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for stage in range(layout.pipeline_parallel):
        for shard in range(layout.tensor_parallel):
            file = folder / shard_name(stage, shard)
            for name, tensor in _load(file, layout).items():
                if name not in specs:
                    raise ValueError(f"{file}: holds {name}, which {META} does not list.")
                expected = specs[name].local_shape(layout.tensor_parallel)
                if tuple(tensor.shape) != expected:
                    raise ValueError(
                        f"{file}: {name} has shape {tuple(tensor.shape)}, but {META} says "
                        f"{expected}. The files are of different runs."
                    )
                parts[name].append(tensor)
    merged = {}
    for name, spec in specs.items():
        found = parts[name]
        if len(found) != layout.tensor_parallel:
            raise ValueError(
                f"{folder}: {name} lies in {len(found)} shards, but tensor_parallel is "
                f"{layout.tensor_parallel}. Train again, or fetch the missing files."
            )
        if spec.partition_dimension is None:
            if any(not torch.equal(found[0], other) for other in found[1:]):
                raise ValueError(
                    f"{folder}: {name} differs between tensor-parallel shards, which must hold "
                    "equal copies. The files are of different runs."
                )
            merged[name] = found[0]
        else:
            merged[name] = torch.cat(found, dim=spec.partition_dimension)
    return merged


def gpt2_weights(
    weights: dict[str, Tensor], model: ModelConfig, vocab_size: int, num_positions: int
) -> dict[str, Tensor]:
    """Rewrite parameters by logical name into GPT-2's names and layout."""
    result = {
        "transformer.wte.weight": weights[f"{WORD_EMBEDDINGS}.weight"][:vocab_size],
        "transformer.wpe.weight": weights[f"{POSITION_EMBEDDINGS}.weight"][:num_positions],
        "transformer.ln_f.weight": weights[f"{FINAL_LAYERNORM}.weight"],
        "transformer.ln_f.bias": weights[f"{FINAL_LAYERNORM}.bias"],
    }
    for layer in range(model.num_layers):
        for ours, theirs in _LAYER_PARTS.items():
            for kind in ("weight", "bias"):
                value = weights[f"layers.{layer}.{ours}.{kind}"]
                if ours.endswith("query_key_value"):
                    value = _per_head_to_blocks(value, model.num_attention_heads)
                if value.dim() == 2:
                    value = value.T
                result[f"transformer.h.{layer}.{theirs}.{kind}"] = value
    return {name: value.contiguous() for name, value in result.items()}


def _per_head_to_blocks(rows: Tensor, num_heads: int) -> Tensor:
    """Reorder the 3 H first-dimension rows from (A, 3, D) to (3, A, D)."""
    rows_A3DX = rows.view(num_heads, 3, -1, *rows.shape[1:])
    return rows_A3DX.transpose(0, 1).reshape(rows.shape)


def _load(file: Path, layout: LayoutConfig) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(
            f"{file} is missing: pipeline_parallel = {layout.pipeline_parallel} and "
            f"tensor_parallel = {layout.tensor_parallel} make "
            f"{layout.pipeline_parallel * layout.tensor_parallel} shards. Fetch it, or train again."
        )
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file} cannot be read ({error}). Fetch it again, or train again."
        ) from error
