"""Floating-point operations of training, by the formula of the Megatron papers.

Model FLOPs count what the mathematics of a forward and a backward pass needs; hardware FLOPs add
the second forward pass of activation recomputation. Both count the whole attention matrix, not
its causal half, and leave out norms, biases and the optimizer.
"""

from __future__ import annotations

from training.config import TrainingConfig
from training.parameters import padded_vocab_size

FORMULA = (
    "per token, model: 72 l h^2 (1 + s/6h + V/12lh); with recomputed activations, hardware: "
    "96 l h^2 (1 + s/6h + V/16lh); V is the padded vocabulary (Narayanan et al. 2021)"
)


def model_flops_per_token(config: TrainingConfig, vocab_size: int) -> float:
    """FLOPs a token that any implementation needs."""
    return _flops_per_token(config, vocab_size, layer_passes=3)


def hardware_flops_per_token(config: TrainingConfig, vocab_size: int) -> float:
    """FLOPs a token that this job executes: with recomputation, each layer's forward twice."""
    return _flops_per_token(
        config, vocab_size, layer_passes=4 if config.activation_checkpointing else 3
    )


def _flops_per_token(config: TrainingConfig, vocab_size: int, layer_passes: int) -> float:
    model = config.model
    layers, hidden = model.num_layers, model.hidden_size
    vocab_rows = padded_vocab_size(vocab_size, model.vocab_padding_multiple)
    per_layer_forward = 24 * hidden**2 + 4 * config.sequence_length * hidden
    # The output layer is never recomputed: forward once, backward twice that.
    return layer_passes * layers * per_layer_forward + 3 * 2 * hidden * vocab_rows
