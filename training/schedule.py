"""The learning rate by tokens: linear warm-up, then a cosine down to the floor, then the floor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from training.config import TrainingConfig


@dataclass(frozen=True)
class LearningRateSchedule:
    """A learning rate for every number of tokens; no step, batch size or layout enters it.

    Attributes:
        peak: learning rate at the end of the warm-up.
        floor: learning rate from `decay_tokens` on.
        warmup_tokens: tokens of linear rise from zero.
        decay_tokens: tokens, warm-up included, after which the floor is reached.

    Source: Smith et al. 2022, section 3; the formula is Megatron-LM's.
    """

    peak: float
    floor: float
    warmup_tokens: int
    decay_tokens: int

    @classmethod
    def from_config(cls, config: TrainingConfig) -> LearningRateSchedule:
        optimizer = config.optimizer
        return cls(
            peak=optimizer.learning_rate,
            floor=optimizer.min_learning_rate,
            warmup_tokens=optimizer.warmup_tokens,
            decay_tokens=config.decay_tokens,
        )

    def learning_rate(self, tokens: int) -> float:
        """Learning rate of the step that brings the run to `tokens` consumed tokens.

        The step's own tokens count: with those before it, the first step would be wasted on a
        learning rate of zero.
        """
        if tokens < self.warmup_tokens:
            return self.peak * tokens / self.warmup_tokens
        if tokens >= self.decay_tokens:
            return self.floor
        share = (tokens - self.warmup_tokens) / (self.decay_tokens - self.warmup_tokens)
        return self.floor + (self.peak - self.floor) * (1 + math.cos(math.pi * share)) / 2
