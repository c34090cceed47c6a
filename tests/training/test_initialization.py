"""Initial weights depend on the seed and the logical name alone."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_job import tiny_config

from training.config import ModelConfig
from training.initialization import base_std, normal, output_std
from training.optimizer import has_weight_decay
from training.parameters import num_parameters, padded_vocab_size, parameter_specs


def draw(name: str, seed: int = 1) -> torch.Tensor:
    return normal(0.02, seed=seed, name=name)(torch.empty(400, 300))


def test_a_weight_does_not_depend_on_what_was_drawn_before() -> None:
    first = draw("layers.0.attention.dense.weight")
    torch.rand(7)
    assert torch.equal(draw("layers.0.attention.dense.weight"), first)


def test_names_and_seeds_give_unrelated_weights() -> None:
    first = draw("layers.0.attention.dense.weight").flatten()
    for other in (
        draw("layers.1.attention.dense.weight"),
        draw("layers.0.attention.dense.weight", 2),
    ):
        correlation = torch.corrcoef(torch.stack([first, other.flatten()]))[0, 1].item()
        assert abs(correlation) < 0.02


def test_weights_are_normal_with_the_asked_deviation() -> None:
    weight = draw("word_embeddings.weight")
    assert weight.mean().item() == pytest.approx(0, abs=3e-4)
    assert weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_deviations_of_the_530b_model() -> None:
    model = ModelConfig(num_layers=105, hidden_size=20480, num_attention_heads=128)
    assert base_std(model) == pytest.approx(4.03e-3, rel=2e-3)
    assert output_std(model) == pytest.approx(4.03e-3 / math.sqrt(210), rel=2e-3)
    assert base_std(model.model_copy(update={"initialization_std": 0.004})) == 0.004


def test_the_530b_model_has_530_billion_parameters() -> None:
    model = ModelConfig(
        num_layers=105, hidden_size=20480, num_attention_heads=128, max_positions=2048
    )
    assert num_parameters(model, 51200) == pytest.approx(529.6e9, rel=1e-3)


def test_the_vocabulary_is_padded_up() -> None:
    assert padded_vocab_size(50257, 1024) == 51200
    assert padded_vocab_size(256, 128) == 256


def test_biases_and_layer_norms_are_not_decayed() -> None:
    specs = parameter_specs(tiny_config().model, 384)
    exempt = {name for name in specs if not has_weight_decay(name)}
    assert exempt == {name for name, spec in specs.items() if len(spec.shape) == 1}
