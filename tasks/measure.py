"""What a piece of work cost: wall time, CPU time and peak memory of this process and all below it.

CPU time is exact for children that still live at the end and for those that were waited for.
Memory is sampled, as the sum of each process's proportional share: forked ranks share pages, and
a sum of resident sizes would count those once for each rank. Both cover the whole process, so two
measurements at once in one process each see the other's work.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

SAMPLE_S = 0.2
"""Shortest time between two samples of memory."""

SAMPLING_SHARE = 0.02
"""Largest part of one core that sampling may take: walking a large process's pages is slow."""


@dataclass
class Cost:
    """Filled in when the measured work ends."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure the body of a `with` statement."""
    cost = Cost()
    stop = threading.Event()
    sampler = threading.Thread(target=_sample, args=(cost, stop), name="measure", daemon=True)
    children_before, own_before = _children_cpu(), _own_cpu()
    started = time.monotonic()
    sampler.start()
    try:
        yield cost
    finally:
        cost.wall_seconds = time.monotonic() - started
        children_after = _children_cpu()
        # A child that was there before and has ended since is in the count of the waited-for with
        # all its time, so what it used before is taken off.
        cost.cpu_seconds = (
            _own_cpu() - own_before + sum(children_after.values()) - sum(children_before.values())
        )
        stop.set()
        sampler.join()


def _own_cpu() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + waited_for.ru_utime + waited_for.ru_stime


def _children_cpu() -> dict[psutil.Process, float]:
    """CPU seconds of each living descendant, with the descendants that it has waited for."""
    used: dict[psutil.Process, float] = {}
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        used[child] = times.user + times.system + times.children_user + times.children_system
    return used


def _sample(cost: Cost, stop: threading.Event) -> None:
    this = psutil.Process()
    while True:
        began = time.monotonic()
        total = 0
        for process in [this, *this.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        cost.peak_memory_bytes = max(cost.peak_memory_bytes, total)
        pause = max(SAMPLE_S, (time.monotonic() - began) / SAMPLING_SHARE)
        if stop.wait(pause):
            return
