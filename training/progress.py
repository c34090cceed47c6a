"""What rank 0 tells the program that started it: one JSON object a line, and nothing else.

DeepSpeed, megatron-core and torch print to standard output as they like. The real standard output
is therefore set aside for the events, and everything else that writes to it lands on standard
error. Events:

- `{"event": "resumed", "step"}`
- `{"event": "progress", "step", "num_steps", "tokens", "total_tokens", "loss",
  "validation_loss", "tokens_per_second", "seconds_left"}`
- `{"event": "checkpoint", "step"}`
- `{"event": "done"}`
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO

_INTERVAL_S = 0.25


class ProgressReport:
    """Writes events; a report without a stream writes none."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._last_progress = float("-inf")

    @classmethod
    def claim_stdout(cls, *, rank: int) -> ProgressReport:
        """Keep standard output for rank 0's events and send all other output to standard error."""
        sys.stdout.flush()
        events = os.fdopen(os.dup(1), "w", encoding="utf-8") if rank == 0 else None
        os.dup2(2, 1)
        return cls(events)

    def event(self, event: str, **fields: Any) -> None:
        """Write one event at once."""
        if self._stream is not None:
            print(json.dumps({"event": event, **fields}), file=self._stream, flush=True)

    def progress(self, *, is_last: bool, **fields: Any) -> None:
        """Write a progress event, unless one was written a moment ago and more will come."""
        now = time.monotonic()
        if is_last or now - self._last_progress >= _INTERVAL_S:
            self._last_progress = now
            self.event("progress", **fields)
