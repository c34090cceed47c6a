"""The parameters of the model by logical name, as files and other layouts know them.

A logical name says what a parameter is (`layers.3.mlp.dense_h_to_4h.weight`), never where it
lives. Its global shape and the dimension that tensor parallelism splits follow from the model's
configuration alone. Weights of linear layers are (out, in); the rows of `query_key_value` are
ordered per head: q, k, v of the first head, then of the second, so that a contiguous split by
rows gives each rank whole heads in every layout.
"""

from __future__ import annotations

from typing import NamedTuple

from training.config import ModelConfig

WORD_EMBEDDINGS = "word_embeddings"
POSITION_EMBEDDINGS = "position_embeddings"
FINAL_LAYERNORM = "final_layernorm"
LAYERNORM_EPSILON = 1e-5


class ParameterSpec(NamedTuple):
    """Global shape of a parameter and the dimension that tensor parallelism splits, if any."""

    shape: tuple[int, ...]
    partition_dimension: int | None

    def local_shape(self, tensor_parallel: int) -> tuple[int, ...]:
        """Shape of the part that one of `tensor_parallel` ranks holds."""
        return tuple(
            size // tensor_parallel if dimension == self.partition_dimension else size
            for dimension, size in enumerate(self.shape)
        )


def padded_vocab_size(vocab_size: int, multiple: int) -> int:
    """The vocabulary rounded up to a multiple, so that every tensor-parallel size divides it."""
    return -(-vocab_size // multiple) * multiple


def parameter_specs(model: ModelConfig, vocab_rows: int) -> dict[str, ParameterSpec]:
    """Every parameter of the model, in order of the forward pass.

    Args:
        model: the model's configuration.
        vocab_rows: rows of the word embedding (padded, as trained, or not, as exported).
    """
    hidden = model.hidden_size
    specs = {
        f"{WORD_EMBEDDINGS}.weight": ParameterSpec((vocab_rows, hidden), 0),
        f"{POSITION_EMBEDDINGS}.weight": ParameterSpec((model.max_positions, hidden), None),
    }
    for layer in range(model.num_layers):
        block = {
            "input_layernorm.weight": ParameterSpec((hidden,), None),
            "input_layernorm.bias": ParameterSpec((hidden,), None),
            "attention.query_key_value.weight": ParameterSpec((3 * hidden, hidden), 0),
            "attention.query_key_value.bias": ParameterSpec((3 * hidden,), 0),
            "attention.dense.weight": ParameterSpec((hidden, hidden), 1),
            "attention.dense.bias": ParameterSpec((hidden,), None),
            "post_attention_layernorm.weight": ParameterSpec((hidden,), None),
            "post_attention_layernorm.bias": ParameterSpec((hidden,), None),
            "mlp.dense_h_to_4h.weight": ParameterSpec((4 * hidden, hidden), 0),
            "mlp.dense_h_to_4h.bias": ParameterSpec((4 * hidden,), 0),
            "mlp.dense_4h_to_h.weight": ParameterSpec((hidden, 4 * hidden), 1),
            "mlp.dense_4h_to_h.bias": ParameterSpec((hidden,), None),
        }
        specs |= {f"layers.{layer}.{name}": spec for name, spec in block.items()}
    specs |= {
        f"{FINAL_LAYERNORM}.weight": ParameterSpec((hidden,), None),
        f"{FINAL_LAYERNORM}.bias": ParameterSpec((hidden,), None),
    }
    return specs


def num_parameters(model: ModelConfig, vocab_size: int) -> int:
    """Trainable numbers of the model with its real vocabulary, the tied embedding counted once."""
    total = 0
    for shape, _ in parameter_specs(model, vocab_size).values():
        size = 1
        for length in shape:
            size *= length
        total += size
    return total
