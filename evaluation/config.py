"""What a user can say about evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator


class EvaluationConfig(BaseModel):
    """Tasks made from held-out documents, scored through lm-evaluation-harness."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    tasks: tuple[Literal["cloze", "continuation"], ...] = Field(
        ("cloze", "continuation"), min_length=1
    )
    num_shots: tuple[Annotated[int, Field(ge=0, le=1000)], ...] = Field(
        (0, 1, 4), min_length=1, description="Solved examples in a prompt; each task at each."
    )
    num_items: PositiveInt = Field(
        300, le=1_000_000, description="Items per task, made from held-out text."
    )
    batch_size: PositiveInt = Field(
        16, le=65_536, description="Rows of a forward pass; scores do not depend on it."
    )
    prompts: tuple[str, ...] = Field(
        ("Return the", "The function"), description="Prompts of the sample continuations."
    )

    @field_validator("num_shots")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"{list(value)} names a number of shots twice; name each once")
        return value
