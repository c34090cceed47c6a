"""FLOPs of training, against the published figures of MT-NLG 530B."""

from __future__ import annotations

import pytest
from tiny_job import tiny_config

from training.config import ModelConfig, TrainingConfig
from training.flops import hardware_flops_per_token, model_flops_per_token

MT_NLG_530B = TrainingConfig(
    model=ModelConfig(
        num_layers=105, hidden_size=20480, num_attention_heads=128, max_positions=2048
    ),
    sequence_length=2048,
    micro_batch=1,
    global_batch=1920,
    train_tokens=270 * 10**9,
    activation_checkpointing=True,
)


@pytest.mark.parametrize(
    ("gpus", "seconds", "hardware_tflops"),
    [(2240, 60.1, 126), (2800, 50.2, 121), (3360, 44.4, 113)],
)
def test_hardware_flops_reproduce_the_published_speed(
    gpus: int, seconds: float, hardware_tflops: int
) -> None:
    per_step = hardware_flops_per_token(MT_NLG_530B, 51200) * 1920 * 2048
    assert per_step / seconds / gpus / 1e12 == pytest.approx(hardware_tflops, abs=0.6)


def test_model_flops_reproduce_the_utilisation_that_palm_reports() -> None:
    per_step = model_flops_per_token(MT_NLG_530B, 51200) * 1920 * 2048
    assert per_step / 60.1 / 2240 / 312e12 == pytest.approx(0.302, abs=0.001)


def test_hardware_equals_model_without_recomputation() -> None:
    config = tiny_config()
    # 2 layers, H 32, s 16, padded vocabulary 384: 3 x (2 x (24 x 1024 + 4 x 512) + 2 x 32 x 384).
    assert model_flops_per_token(config, 301) == 3 * (2 * (24576 + 2048) + 24576)
    assert hardware_flops_per_token(config, 301) == model_flops_per_token(config, 301)
