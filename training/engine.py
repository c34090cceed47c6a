"""DeepSpeed's pipeline engine over the model: ZeRO stage 1, clipping, fp32 accumulation.

The pipeline engine also serves a single stage, so that every layout runs the same code.
ZeRO stage 1 is used at data parallel size 1 too: without it DeepSpeed counts tied and replicated
gradients twice when it clips.
"""

from __future__ import annotations

import logging
from typing import Any

from training.config import TrainingConfig
from training.grid import Grid
from training.model import build_model, logical_parameters
from training.optimizer import build_optimizer

# isort: split
import deepspeed
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.utils import logger as deepspeed_logger
from torch.nn import Parameter


def build_engine(
    config: TrainingConfig, grid: Grid, *, vocab_size: int, seed: int
) -> tuple[PipelineEngine, dict[str, Parameter]]:
    """Build the engine of this rank and name its parameters.

    Args:
        config: the training job.
        grid: this rank's place in the layout.
        vocab_size: real vocabulary, before padding.
        seed: seed of the initial weights.

    Returns:
        The engine, and this rank's parameters by logical name.
    """
    deepspeed_logger.setLevel(logging.WARNING)
    module = build_model(
        config.model,
        grid,
        vocab_size=vocab_size,
        seed=seed,
        activation_checkpointing=config.activation_checkpointing,
    )
    parameters = logical_parameters(module, config.model, vocab_size, grid.layout.tensor_parallel)
    optimizer = build_optimizer(config.optimizer, parameters)
    engine, *_ = deepspeed.initialize(
        model=module, optimizer=optimizer, config=_deepspeed_config(config)
    )
    assert isinstance(engine, PipelineEngine)
    return engine, parameters


def set_learning_rate(engine: PipelineEngine, learning_rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in engine.optimizer.param_groups:
        group["lr"] = learning_rate


def _deepspeed_config(config: TrainingConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "train_batch_size": config.global_batch,
        "train_micro_batch_size_per_gpu": config.micro_batch,
        "gradient_accumulation_steps": config.num_micro_batches,
        "gradient_clipping": config.optimizer.clip_grad_norm,
        "zero_optimization": {"stage": 1},
        # The worker reports; the engine's own lines are switched off.
        "steps_per_print": None,
    }
    if config.precision == "bf16":
        settings |= {
            "bf16": {"enabled": True},
            # Without it gradients are accumulated in bf16.
            "data_types": {"grad_accum_dtype": "fp32"},
        }
    if config.activation_checkpointing:
        settings["pipeline"] = {"activation_checkpoint_interval": 1, "use_reentrant": False}
    return settings
