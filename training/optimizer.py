"""Adam with decoupled weight decay, on weights but not on biases and layer norms."""

from __future__ import annotations

from collections.abc import Mapping

from torch.nn import Parameter
from torch.optim import AdamW

from training.config import OptimizerConfig


def build_optimizer(config: OptimizerConfig, parameters: Mapping[str, Parameter]) -> AdamW:
    """Make the optimizer that DeepSpeed's ZeRO partitions.

    Args:
        config: betas, epsilon and weight decay; the learning rate is set before every step.
        parameters: this rank's parameters by logical name.
    """
    decayed = [p for name, p in parameters.items() if has_weight_decay(name)]
    exempt = [p for name, p in parameters.items() if not has_weight_decay(name)]
    return AdamW(
        [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": exempt, "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=True,
    )


def has_weight_decay(name: str) -> bool:
    """Whether the parameter of this logical name is decayed."""
    return not (name.endswith(".bias") or "layernorm" in name)
