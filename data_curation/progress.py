"""How a stage says how far it is: the caller passes a function, the stage calls it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, float | None, str], None]
"""`progress(done, total, note)`: two amounts of one unit, the total None where it is not known,
and a few words."""
