"""Initial weights: a pure function of the seed and the logical name of a parameter.

Each weight is drawn whole from a generator of its own and sliced afterwards (megatron-core does
the slicing), so that no layout changes a single initial number.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Tensor

from training.config import ModelConfig


def base_std(model: ModelConfig) -> float:
    """Standard deviation of most weights: sqrt(1 / (3 H)) unless the configuration says.

    Source: Smith et al. 2022, section 3.
    """
    return model.initialization_std or math.sqrt(1 / (3 * model.hidden_size))


def output_std(model: ModelConfig) -> float:
    """Standard deviation of the two weights of a layer that write to the residual stream."""
    return base_std(model) / math.sqrt(2 * model.num_layers)


def normal(std: float, *, seed: int, name: str) -> Callable[[Tensor], Tensor]:
    """Make a function that fills a whole weight from N(0, std), the same wherever it runs.

    Args:
        std: standard deviation.
        seed: the run's seed.
        name: logical name of the parameter.

    Returns:
        A function that fills its argument, a CPU tensor of the global shape, in place.
    """

    def fill(weight: Tensor) -> Tensor:
        digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        with torch.no_grad():
            return weight.normal_(0.0, std, generator=generator)

    return fill
