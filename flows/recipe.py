"""The recipe: everything that defines a run, as one value.

A `Recipe` that exists has passed all checks that need no look at the disk. `flows.recipe_file`
makes one from a file, and looks there too.
"""

from __future__ import annotations

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator

from data_curation.config import SOURCE_NAME, CurationConfig, Source, TokenizerConfig
from evaluation.config import EvaluationConfig
from infra.launchers.local import Launcher
from training.config import TrainingConfig


class RunConfig(BaseModel):
    """How the run is executed on this machine. Changes no result, so enters no artifact's key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_workers: PositiveInt = Field(
        2, le=1024, description="Processes for ingest, curation, tokenization."
    )
    launcher: Launcher = Field(
        "fork",
        description="fork is three times as fast to start, and hides GPUs; torchrun uses them.",
    )


class Recipe(BaseModel):
    """Everything that defines a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=60)
    description: str = ""
    seed: int = Field(1234, ge=0, lt=2**63)
    sources: tuple[Source, ...] = Field(min_length=1)
    curation: CurationConfig = CurationConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()

    @field_validator("sources")
    @classmethod
    def _named_once(cls, value: tuple[Source, ...]) -> tuple[Source, ...]:
        names = [source.name for source in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two sources are called {', '.join(twice)}; give each its own name")
        bad = [name for name in names if not SOURCE_NAME.fullmatch(name)]
        if bad:
            raise ValueError(f"{bad[0]!r} is no source name; use letters, digits, '.', '_' and '-'")
        return value

    def to_yaml(self) -> str:
        """The whole recipe, defaults included, as it can be run again."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
