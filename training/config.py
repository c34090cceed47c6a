"""What a user can say about the model, its layout and its training.

Clocks are tokens: warm-up, decay, checkpoints and validation never count steps.
A configuration that cannot run is refused here, with every fault at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

from training.units import Count


class _Config(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class ModelConfig(_Config):
    """A GPT of MT-NLG's shape: pre-LN, learned positions, GELU, 4h MLP, tied embedding."""

    num_layers: PositiveInt = Field(4, le=10_000)
    hidden_size: PositiveInt = Field(192, le=1_000_000)
    num_attention_heads: PositiveInt = Field(4, le=10_000)
    max_positions: PositiveInt = Field(
        128, le=10_000_000, description="Learned positions: longest context."
    )
    initialization_std: PositiveFloat | None = Field(
        None, description="sqrt(1 / (3 hidden_size)) if absent, as in the paper."
    )
    vocab_padding_multiple: PositiveInt = Field(
        128,
        le=1_000_000,
        description="The vocabulary is padded to a multiple of this, in every layout.",
    )


class LayoutConfig(_Config):
    """How many ways the model and the batch are split. ZeRO stage 1 over data parallel ranks."""

    tensor_parallel: PositiveInt = Field(1, le=10_000)
    pipeline_parallel: PositiveInt = Field(1, le=10_000)
    data_parallel: PositiveInt = Field(1, le=100_000)

    @property
    def num_ranks(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


class OptimizerConfig(_Config):
    """Adam with decoupled weight decay, cosine decay and clipping by global norm."""

    learning_rate: PositiveFloat = Field(1e-3, description="At the end of the warm-up.")
    min_learning_rate: NonNegativeFloat = Field(1e-4, description="From `decay_tokens` on.")
    warmup_tokens: Count = Field(50_000, description="Tokens of linear rise from zero.")
    decay_tokens: Count | None = Field(
        None,
        description="Tokens, warm-up included, until the least rate; `train_tokens` if absent.",
    )
    weight_decay: NonNegativeFloat = Field(0.1, description="Of weights; not of biases and norms.")
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    adam_beta2: float = Field(0.95, ge=0, lt=1)
    adam_epsilon: PositiveFloat = 1e-8
    clip_grad_norm: PositiveFloat = Field(1.0, description="Largest global norm of gradients.")


class TrainingConfig(_Config):
    """One training job."""

    model: ModelConfig = ModelConfig()
    layout: LayoutConfig = LayoutConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    sequence_length: PositiveInt = Field(128, le=10_000_000)
    micro_batch: PositiveInt = Field(
        4, le=1_000_000, description="Sequences per rank and forward pass."
    )
    global_batch: PositiveInt = Field(8, le=10_000_000, description="Sequences per optimizer step.")
    train_tokens: Count = Field(1_000_000, description="Rounded up to whole optimizer steps.")
    checkpoint_interval_tokens: Count = 250_000
    validation_interval_tokens: Count = 250_000
    validation_tokens: Count = Field(50_000, description="Held-out tokens per validation.")
    precision: Literal["fp32", "bf16"] = Field(
        "bf16", description="bf16 keeps fp32 master weights and accumulates gradients in fp32."
    )
    activation_checkpointing: bool = Field(
        False, description="Keep only the input of each layer and compute the rest again."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = list(self._faults())
        if faults:
            raise PydanticCustomError(
                "inconsistent",
                "{text}",
                {"text": "\n".join(f"{f}: {m}" for f, m in faults), "faults": faults},
            )
        return self

    def _faults(self) -> Iterator[tuple[str, str]]:
        """Contradictions between fields, as (field, message with both values and the remedy)."""
        model, layout, optimizer = self.model, self.layout, self.optimizer
        tensor, heads = layout.tensor_parallel, model.num_attention_heads
        if model.hidden_size % heads:
            yield (
                "model.hidden_size",
                f"{model.hidden_size} cannot be divided by num_attention_heads = {heads}. "
                f"Use a multiple of {heads}.",
            )
        if heads % tensor:
            yield (
                "layout.tensor_parallel",
                f"{heads} attention heads cannot be divided by tensor_parallel = {tensor}. "
                f"Use {_divisors(heads)}, or change model.num_attention_heads.",
            )
        if model.vocab_padding_multiple % tensor:
            yield (
                "model.vocab_padding_multiple",
                f"{model.vocab_padding_multiple} cannot be divided by tensor_parallel = {tensor}. "
                f"Use a multiple of {tensor}.",
            )
        if model.num_layers % layout.pipeline_parallel:
            yield (
                "layout.pipeline_parallel",
                f"{model.num_layers} layers cannot be divided into pipeline_parallel = "
                f"{layout.pipeline_parallel} stages. Use {_divisors(model.num_layers)}, "
                "or change model.num_layers.",
            )
        per_pass = self.micro_batch * layout.data_parallel
        if self.global_batch % per_pass:
            yield (
                "global_batch",
                f"{self.global_batch} sequences cannot be divided by micro_batch x data_parallel = "
                f"{self.micro_batch} x {layout.data_parallel} = {per_pass}. "
                f"Use a multiple of {per_pass}.",
            )
        if self.sequence_length > model.max_positions:
            yield (
                "sequence_length",
                f"{self.sequence_length} is longer than model.max_positions = "
                f"{model.max_positions}. Shorten it, or raise model.max_positions.",
            )
        if self.train_tokens < self.tokens_per_step:
            yield (
                "train_tokens",
                f"{self.train_tokens} is less than one step of global_batch x sequence_length = "
                f"{self.tokens_per_step} tokens. Raise it.",
            )
        if optimizer.warmup_tokens >= self.decay_tokens:
            yield (
                "optimizer.warmup_tokens",
                f"{optimizer.warmup_tokens} leaves nothing of the {self.decay_tokens} tokens that "
                "the schedule takes (optimizer.decay_tokens, else train_tokens). Shorten it.",
            )
        if optimizer.min_learning_rate > optimizer.learning_rate:
            yield (
                "optimizer.min_learning_rate",
                f"{optimizer.min_learning_rate:g} is above learning_rate = "
                f"{optimizer.learning_rate:g}. Lower it.",
            )

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch * self.sequence_length

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches that each data-parallel rank accumulates for one optimizer step."""
        return self.global_batch // (self.micro_batch * self.layout.data_parallel)

    @property
    def num_steps(self) -> int:
        """Steps until at least `train_tokens` were consumed."""
        return -(-self.train_tokens // self.tokens_per_step)

    @property
    def decay_tokens(self) -> int:
        return self.optimizer.decay_tokens or self.train_tokens


def _divisors(number: int) -> str:
    found = [str(d) for d in range(1, number + 1) if number % d == 0]
    return found[0] if len(found) == 1 else ", ".join(found[:-1]) + " or " + found[-1]
