"""What a stage asks of the store: which inputs and settings make its key, and how to build it.

A request is plain data plus one function, so that the same object serves to run a stage and to
say beforehand whether it would run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.artifacts import Artifact, Stage

Progress = Callable[[float, float | None, str], None]
Build = Callable[[Path, Progress], dict[str, Any]]


@dataclass(frozen=True)
class StageRequest:
    """A stage with resolved settings and inputs at hand."""

    stage: Stage
    config: Mapping[str, Any]
    build: Build
    inputs: Mapping[str, Artifact] = field(default_factory=dict)
    raw_inputs: Mapping[str, str] = field(default_factory=dict)
