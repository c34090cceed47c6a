"""A GPT of MT-NLG's shape as a list of pipeline layers over tensor-parallel parts.

Pre-LN blocks, learned positions, tanh-GELU, a 4 H MLP, biases everywhere and an output layer tied
to the word embedding (Smith et al. 2022; Shoeybi et al. 2019 for the tensor-parallel split).

- Activations between layers are (B, S, H) and equal on all tensor-parallel ranks.
- Logits stay split by vocabulary. Padding rows of the vocabulary get logit -inf: the softmax is
  over the real vocabulary, so an exported model without them gives the same probabilities.
- A label below zero takes no part in the loss.

Shape suffixes: B micro-batch, S sequence, H hidden, A heads on this rank, D head size,
F 4 H on this rank, V padded vocabulary on this rank.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import Parameter, functional

from training.config import ModelConfig
from training.grid import Grid
from training.initialization import base_std, normal, output_std
from training.parameters import (
    FINAL_LAYERNORM,
    LAYERNORM_EPSILON,
    POSITION_EMBEDDINGS,
    WORD_EMBEDDINGS,
    padded_vocab_size,
    parameter_specs,
)

# isort: split
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from megatron.core import ModelParallelConfig
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
    vocab_parallel_cross_entropy,
)
from megatron.core.tensor_parallel.layers import linear_with_grad_accumulation_and_async_allreduce


def _parallel_config(tensor_parallel: int) -> ModelParallelConfig:
    # Initialization on the CPU draws each weight whole and slices it: the same weights in every
    # layout, and the only way that works without CUDA.
    return ModelParallelConfig(
        tensor_model_parallel_size=tensor_parallel, use_cpu_initialization=True
    )


class PositionEmbedding(nn.Module):
    """Adds the learned position embedding."""

    def __init__(self, model: ModelConfig, seed: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(model.max_positions, model.hidden_size))
        normal(base_std(model), seed=seed, name=f"{POSITION_EMBEDDINGS}.weight")(self.weight)

    def forward(self, x_BSH: Tensor) -> Tensor:
        return x_BSH + self.weight[: x_BSH.shape[1]]


class Attention(nn.Module):
    """Causal self-attention, heads split over the tensor-parallel ranks."""

    def __init__(self, model: ModelConfig, seed: int, name: str, tensor_parallel: int) -> None:
        super().__init__()
        parallel, hidden = _parallel_config(tensor_parallel), model.hidden_size
        self.head_size = hidden // model.num_attention_heads
        self.query_key_value = ColumnParallelLinear(
            hidden,
            3 * hidden,
            config=parallel,
            init_method=normal(base_std(model), seed=seed, name=f"{name}.query_key_value.weight"),
        )
        self.dense = RowParallelLinear(
            hidden,
            hidden,
            config=parallel,
            init_method=normal(output_std(model), seed=seed, name=f"{name}.dense.weight"),
            bias=True,
            input_is_parallel=True,
            skip_bias_add=False,
        )

    def forward(self, x_BSH: Tensor) -> Tensor:
        """Attend to this and earlier positions.

        Args:
            x_BSH: activations, equal on all tensor-parallel ranks.

        Returns:
            Activations of the same shape, summed over the tensor-parallel ranks.
        """
        qkv_BSX, _ = self.query_key_value(x_BSH)
        B, S, _ = qkv_BSX.shape
        qkv_BAS3D = qkv_BSX.view(B, S, -1, 3 * self.head_size).transpose(1, 2)
        q_BASD, k_BASD, v_BASD = qkv_BAS3D.split(self.head_size, dim=-1)
        y_BASD = functional.scaled_dot_product_attention(q_BASD, k_BASD, v_BASD, is_causal=True)
        y_BSX = y_BASD.transpose(1, 2).reshape(B, S, -1)
        out_BSH, _ = self.dense(y_BSX)
        return out_BSH


class Mlp(nn.Module):
    """H to 4 H, tanh-GELU, back to H; the 4 H are split over the tensor-parallel ranks."""

    def __init__(self, model: ModelConfig, seed: int, name: str, tensor_parallel: int) -> None:
        super().__init__()
        parallel, hidden = _parallel_config(tensor_parallel), model.hidden_size
        self.dense_h_to_4h = ColumnParallelLinear(
            hidden,
            4 * hidden,
            config=parallel,
            init_method=normal(base_std(model), seed=seed, name=f"{name}.dense_h_to_4h.weight"),
        )
        self.dense_4h_to_h = RowParallelLinear(
            4 * hidden,
            hidden,
            config=parallel,
            init_method=normal(output_std(model), seed=seed, name=f"{name}.dense_4h_to_h.weight"),
            bias=True,
            input_is_parallel=True,
            skip_bias_add=False,
        )

    def forward(self, x_BSH: Tensor) -> Tensor:
        x_BSF, _ = self.dense_h_to_4h(x_BSH)
        out_BSH, _ = self.dense_4h_to_h(functional.gelu(x_BSF, approximate="tanh"))
        return out_BSH


class Block(nn.Module):
    """One pre-LN transformer layer."""

    def __init__(self, model: ModelConfig, seed: int, layer: int, tensor_parallel: int) -> None:
        super().__init__()
        name = f"layers.{layer}"
        self.input_layernorm = nn.LayerNorm(model.hidden_size, eps=LAYERNORM_EPSILON)
        self.attention = Attention(model, seed, f"{name}.attention", tensor_parallel)
        self.post_attention_layernorm = nn.LayerNorm(model.hidden_size, eps=LAYERNORM_EPSILON)
        self.mlp = Mlp(model, seed, f"{name}.mlp", tensor_parallel)

    def forward(self, x_BSH: Tensor) -> Tensor:
        x_BSH = x_BSH + self.attention(self.input_layernorm(x_BSH))
        return x_BSH + self.mlp(self.post_attention_layernorm(x_BSH))


def tied_logits(
    embedding: VocabParallelEmbedding, x_BSH: Tensor, *, vocab_size: int, tensor_parallel: int
) -> Tensor:
    """Logits of this rank's part of the vocabulary, (B, S, V); -inf for padding rows."""
    logits_BSV = linear_with_grad_accumulation_and_async_allreduce(
        x_BSH,
        embedding.weight,
        bias=None,
        gradient_accumulation_fusion=False,
        allreduce_dgrad=tensor_parallel > 1,
        sequence_parallel=False,
    )
    num_real = max(0, vocab_size - embedding.vocab_start_index)
    if num_real < logits_BSV.shape[-1]:
        logits_BSV[..., num_real:] = float("-inf")
    return logits_BSV


def cross_entropy(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Mean over all B x S positions of the loss in nats, zero where the label is below zero.

    The divisor counts every position, so that means of equal micro-batches can be averaged.
    """
    loss_BS = vocab_parallel_cross_entropy(logits_BSV, labels_BS)
    return (loss_BS * (labels_BS >= 0)).sum() / labels_BS.numel()


def build_model(
    model: ModelConfig,
    grid: Grid,
    *,
    vocab_size: int,
    seed: int,
    activation_checkpointing: bool,
) -> PipelineModule:
    """Build this rank's part of the model, with its initial weights.

    Args:
        model: the model's configuration.
        grid: this rank's place in the layout.
        vocab_size: real vocabulary, before padding.
        seed: seed of the initial weights.
        activation_checkpointing: keep only each layer's input and recompute the rest.
    """
    tensor_parallel = grid.layout.tensor_parallel
    num_rows = padded_vocab_size(vocab_size, model.vocab_padding_multiple)
    embedding: Callable[..., TiedLayerSpec] = partial(
        TiedLayerSpec,
        WORD_EMBEDDINGS,
        VocabParallelEmbedding,
        num_rows,
        model.hidden_size,
        init_method=normal(base_std(model), seed=seed, name=f"{WORD_EMBEDDINGS}.weight"),
        config=_parallel_config(tensor_parallel),
    )
    # The tied layer holds the word embedding alone: were the positions in it, the last stage
    # would carry a dead copy of them.
    layers = [
        embedding(),
        LayerSpec(PositionEmbedding, model, seed),
        *(
            LayerSpec(Block, model, seed, layer, tensor_parallel)
            for layer in range(model.num_layers)
        ),
        LayerSpec(nn.LayerNorm, model.hidden_size, eps=LAYERNORM_EPSILON),
        embedding(
            forward_fn=partial(tied_logits, vocab_size=vocab_size, tensor_parallel=tensor_parallel)
        ),
    ]
    return PipelineModule(
        layers,
        topology=grid.topology,
        loss_fn=cross_entropy,
        partition_method=f"type:^{Block.__name__}$",
        activation_checkpoint_interval=1 if activation_checkpointing else 0,
        checkpointable_layers=[Block.__name__],
    )


def logical_parameters(
    module: PipelineModule, model: ModelConfig, vocab_size: int, tensor_parallel: int
) -> dict[str, Parameter]:
    """This rank's parameters by logical name, checked against the model's specification."""
    prefixes = {
        "1": POSITION_EMBEDDINGS,
        **{str(layer + 2): f"layers.{layer}" for layer in range(model.num_layers)},
        str(model.num_layers + 2): FINAL_LAYERNORM,
    }
    num_rows = padded_vocab_size(vocab_size, model.vocab_padding_multiple)
    specs = parameter_specs(model, num_rows)
    found = {}
    for path, parameter in module.named_parameters():
        head, _, tail = path.partition(".")
        name = tail if head == "tied_modules" else f"{prefixes[head]}.{tail}"
        expected = specs[name].local_shape(tensor_parallel)
        assert tuple(parameter.shape) == expected, f"{name}: {parameter.shape}, not {expected}"
        found[name] = parameter
    return found
