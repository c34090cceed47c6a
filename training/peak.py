"""The peak that utilisation is measured against: a vendor's figure for a GPU, measured on a CPU."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
import torch.distributed as dist

from training.device import HAS_CUDA, local_device

# Dense tensor-core FLOP/s from NVIDIA's data sheets. fp32 runs on TF32 only if the user allows
# it, so the plain fp32 figure counts.
_DATA_SHEET = {
    "A100": {"bf16": 312e12, "fp32": 19.5e12},
    "H100": {"bf16": 989e12, "fp32": 67e12},
    "H200": {"bf16": 989e12, "fp32": 67e12},
}
_WINDOW_S = 0.5
_SIZE = 1024


class Peak(NamedTuple):
    """Peak of all ranks together, in FLOP/s, if known, and where it comes from."""

    flops_per_second: float | None
    source: str


def device_peak(precision: str) -> Peak:
    """Find the peak of the devices under this job. Every rank must call it.

    Args:
        precision: "bf16" or "fp32", the type of the matrix products.
    """
    if not HAS_CUDA:
        return _measured_on_cpu(torch.bfloat16 if precision == "bf16" else torch.float32)
    name = torch.cuda.get_device_name(local_device())
    for model, peaks in _DATA_SHEET.items():
        # PCIe and NVL variants are slower than the figures above.
        if model in name and "PCIe" not in name and "NVL" not in name:
            total = peaks[precision] * dist.get_world_size()
            return Peak(total, f"data sheet, {name}, dense {precision}")
    return Peak(None, f"unknown for {name}")


def _measured_on_cpu(dtype: torch.dtype) -> Peak:
    """Multiply matrices on all ranks at once, since ranks may share cores."""
    left = torch.ones(_SIZE, _SIZE, dtype=dtype)
    right = torch.ones(_SIZE, _SIZE, dtype=dtype)
    left @ right
    dist.barrier()
    start = time.perf_counter()
    products = 0
    while (elapsed := time.perf_counter() - start) < _WINDOW_S:
        left @ right
        products += 1
    rate = torch.tensor(products * 2 * _SIZE**3 / elapsed, dtype=torch.float64)
    dist.all_reduce(rate)
    return Peak(
        rate.item(),
        f"measured: {_SIZE} x {_SIZE} {str(dtype).removeprefix('torch.')} matrix products "
        f"on all {dist.get_world_size()} ranks at once",
    )
