"""What this machine is, so that a number can be read beside what it was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil


def machine_facts() -> dict[str, str | int]:
    """Processor, cores that this process may use, memory in bytes, accelerators, system, Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "cores": cores or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "accelerators": _accelerators(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _accelerators() -> str:
    """Names of NVIDIA GPUs as the driver lists them, without importing torch."""
    names = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Model:"):
                names.append(line.removeprefix("Model:").strip())
    return ", ".join(names) or "none"
