"""The learning rate by tokens, against values worked out by hand."""

from __future__ import annotations

import pytest
from tiny_job import tiny_config

from training.schedule import LearningRateSchedule

MT_NLG_530B = LearningRateSchedule(
    peak=5e-5, floor=5e-6, warmup_tokens=10**9, decay_tokens=340 * 10**9
)


def test_warm_up_is_linear_from_zero() -> None:
    assert MT_NLG_530B.learning_rate(0) == 0
    assert MT_NLG_530B.learning_rate(250_000_000) == pytest.approx(1.25e-5)
    assert MT_NLG_530B.learning_rate(10**9) == pytest.approx(5e-5)


def test_the_middle_of_the_decay_is_the_mean_of_peak_and_floor() -> None:
    # Half way from 1 B to 340 B tokens.
    assert MT_NLG_530B.learning_rate(170_500_000_000) == pytest.approx(2.75e-5)


def test_the_530b_run_stopped_at_a_rate_of_about_one_millionth_times_nine_and_a_half() -> None:
    # 269 of 339 B tokens of the decay: cos(2.4929) = -0.7970; 5e-6 + 4.5e-5 x 0.1015 = 9.57e-6.
    assert MT_NLG_530B.learning_rate(270 * 10**9) == pytest.approx(9.57e-6, rel=1e-3)


def test_the_floor_holds_after_the_decay() -> None:
    assert MT_NLG_530B.learning_rate(340 * 10**9) == 5e-6
    assert MT_NLG_530B.learning_rate(10**12) == 5e-6


def test_the_decay_ends_with_the_training_unless_said_otherwise() -> None:
    config = tiny_config()
    assert LearningRateSchedule.from_config(config).learning_rate(config.train_tokens) == 1e-3
    assert LearningRateSchedule.from_config(config).learning_rate(config.train_tokens - 1) > 1e-3
