"""Counts as people write them: "1B", "340B", "2.5M", 4096, "10_000"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PositiveInt

_SCALE = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_COUNT = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*([KMBT]?)", re.IGNORECASE)


def parse_count(value: Any) -> Any:
    """Turn "1.5B" into 1_500_000_000; leave what is no text to the field's own check.

    Raises:
        ValueError: the text is no count, or not a whole number ("1.5").
    """
    if not isinstance(value, str):
        return value
    match = _COUNT.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a count; write for example 4096, 500K, 2.5M, 1B or 1T")
    number = Decimal(match[1].replace("_", "")) * _SCALE[match[2].upper()]
    if number != int(number):
        raise ValueError(f"{value!r} is not a whole number")
    return int(number)


Count = Annotated[PositiveInt, Field(le=10**16), BeforeValidator(parse_count)]
"""At most ten thousand trillions, so that products with sizes stay within 64 bits."""
