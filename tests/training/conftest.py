"""Fixtures: a tokenized corpus, and finished runs of the tiny job."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from tiny_job import Run, run_job, tiny_config, write_tokenized


@pytest.fixture(scope="session")
def run(tokenized: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Run the tiny job in a layout, once a session for equal arguments."""

    @functools.cache
    def finished(layout: str, **changes: Any) -> Run:
        config = tiny_config(layout, **changes)
        folder = tmp_path_factory.mktemp(layout)
        events = run_job(config, tokenized, folder / "out", folder)
        return Run(config, folder / "out", events)

    return finished


@pytest.fixture(scope="session")
def tokenized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenized")
    return write_tokenized(folder, num_train=6000, num_held_out=400)
