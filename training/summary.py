"""The summary of a finished run, `training.json`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from training.checkpoint import TrainingState
from training.config import TrainingConfig
from training.flops import FORMULA, hardware_flops_per_token, model_flops_per_token
from training.parameters import num_parameters
from training.peak import Peak
from training.records import RunRecords, read_records


def write_summary(
    out: Path,
    config: TrainingConfig,
    records: RunRecords,
    state: TrainingState,
    peak: Peak,
    *,
    vocab_size: int,
) -> None:
    """Write `training.json`; `docs/formats.md` lists the fields.

    Speeds are those of the median step, validation and checkpoints apart. Utilisation is null
    where the peak of the device is unknown.
    """
    steps, validations = read_records(records.metrics_file), read_records(records.validation_file)
    tokens_per_second = median(step["tokens_per_second"] for step in steps)
    model_flops = model_flops_per_token(config, vocab_size)
    hardware_flops = hardware_flops_per_token(config, vocab_size)

    def utilization(flops_per_token: float) -> float | None:
        if peak.flops_per_second is None:
            return None
        return flops_per_token * tokens_per_second / peak.flops_per_second

    summary: dict[str, Any] = {
        "num_parameters": num_parameters(config.model, vocab_size),
        "num_tokens": state.tokens,
        "num_steps": state.step,
        "final_loss": steps[-1]["loss"],
        "final_validation_loss": validations[-1]["loss"],
        "tokens_per_second": tokens_per_second,
        "model_flops_per_token": model_flops,
        "hardware_flops_per_token": hardware_flops,
        "flops_formula": FORMULA,
        "model_flops_per_second": model_flops * tokens_per_second,
        "mfu": utilization(model_flops),
        "hfu": utilization(hardware_flops),
        "peak_flops_per_second": peak.flops_per_second,
        "peak_source": peak.source,
        "layout": config.layout.model_dump(mode="json"),
        "precision": config.precision,
        "skipped_steps": steps[-1]["skipped_steps"],
        "resumed_from": list(state.resumed_from),
    }
    (out / "training.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
