"""Runs lm-evaluation-harness on one task file, quietly and offline.

This is what its `simple_evaluate` does for a model and tasks at hand, less the report about the
machine, which starts subprocesses and takes seconds.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lm_eval.api.task
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

HARNESS = f"lm_eval {version('lm_eval')}"


def run_task(
    model: LM, folder: Path, name: str, *, num_shots: int, seed: int
) -> list[dict[str, Any]]:
    """Ask a model the items of a task.

    Args:
        model: who answers.
        folder: holds the task's YAML and data; nothing is written into it.
        name: of the task.
        num_shots: examples before each item, drawn by lm-eval's sampler.
        seed: of the sampler.

    Returns:
        lm-eval's samples, in the order of the items: `doc`, `arguments`, `filtered_resps` and the
        value of each metric.
    """
    with _quiet():
        manager = TaskManager(include_defaults=False, include_path=str(folder))
        loaded = manager.load([name])
        task = loaded["tasks"][name]
        task.set_config("num_fewshot", num_shots)
        task.set_fewshot_seed(seed)
        # Standard errors are computed elsewhere: lm-eval's for perplexity takes 100,000 draws.
        results = evaluate(model, loaded, bootstrap_iters=0, log_samples=True)
    samples: list[dict[str, Any]] = results["samples"][name]
    return sorted(samples, key=lambda sample: int(sample["doc_id"]))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep lm-eval's progress bars, remarks and compiled files to itself."""
    logger = logging.getLogger("lm_eval")
    level, writes = logger.level, sys.dont_write_bytecode
    bar = lm_eval.api.task.tqdm
    logger.setLevel(logging.ERROR)
    # lm-eval imports the loader from the task's folder, which must stay as it was written.
    sys.dont_write_bytecode = True
    lm_eval.api.task.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        lm_eval.api.task.tqdm = bar
        sys.dont_write_bytecode = writes
        logger.setLevel(level)
