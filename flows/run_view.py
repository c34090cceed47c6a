"""How a run looks on a terminal while it goes: one live table.

On a terminal the table is redrawn in place and fits the width, from 60 columns up. Elsewhere (a
pipe, CI) each event is one plain line without escape codes, and progress is a line every ten
seconds at most, rarer the longer a stage takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from rich.cells import set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from evaluation.units import format_clock, format_duration
from flows.terminal_text import ROOMY, fit, format_figures, printable, whole_parts
from tasks.artifacts import Figures, Origin

State = Literal["pending", "running", "waiting", "built", "reused", "resumed", "failed"]

_LOOK: dict[str, tuple[str, str, str, str]] = {  # state: symbol, in ASCII, word, style
    "pending": ("·", ".", "", "dim"),
    "running": ("▸", ">", "", "cyan"),
    "waiting": ("…", "~", "waiting", "yellow"),
    "built": ("✓", "+", "Built", "green"),
    "reused": ("✓", "=", "Reused", "blue"),
    "resumed": ("✓", "+", "Resumed", "green"),
    "failed": ("✗", "x", "Failed", "red"),
}
_NAME_WIDTH, _CLOCK_WIDTH = 9, 7
_MAX_WIDTH = 100  # Wider, the eye loses the line.
_PLAIN_INTERVAL_S = 10.0
_PLAIN_INTERVAL_SHARE = 1 / 20  # Of the time a stage has taken: a day's training is no flood.
_PACE_KNOWN_AFTER_S = 3.0


@dataclass
class _Stage:
    name: str
    state: State = "pending"
    started_s: float | None = None
    ended_after_s: float | None = None
    done: float = 0.0
    total: float | None = None
    first: tuple[float, float] | None = None  # when progress was first heard of, and how much
    note: str = ""
    figures: Figures = field(default_factory=dict)
    printed_s: float = 0.0


class RunView:
    """Shows the stages of one run; a context manager.

    Args:
        stages: the stages in their order.
        title: a few words above the table.
        console: where to show it.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        stages: Sequence[str],
        title: str,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stages = {name: _Stage(name) for name in stages}
        self._title = title
        self._console = console
        self._clock = clock
        self._started_s = clock()
        self._lock = threading.RLock()
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(self, console=console, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._started_s = self._clock()
        if self._live is not None:
            self._live.start()
        else:
            self._say(self._title)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def stage_started(self, stage: str) -> None:
        with self._lock:
            row = self._stages[stage] = _Stage(stage, "running", started_s=self._clock())
            row.printed_s = self._clock()
        self._line(stage, "started")

    def stage_progress(self, stage: str, done: float, total: float | None, note: str) -> None:
        """Tell how far a stage is.

        Args:
            stage: its name.
            done: in any unit.
            total: in the same unit, if known.
            note: a few words.
        """
        with self._lock:
            row = self._stages[stage]
            now = self._clock()
            row.state = "running"
            row.done, row.total, row.note = done, total, printable(note)
            if row.first is None:
                row.first = (now, done)
            elapsed = self._elapsed(row)
            silent = now - row.printed_s < max(_PLAIN_INTERVAL_S, elapsed * _PLAIN_INTERVAL_SHARE)
            if not silent:
                row.printed_s = now
            left = self._time_left(row)
        if self._live is None and not silent:
            parts = [] if total is None else [f"{_share(done, total):.0%}"]
            parts += [part for part in (row.note, left) if part]
            self._line(stage, ", ".join([*parts, f"{format_duration(elapsed)} so far"]))

    def stage_waiting(self, stage: str, note: str) -> None:
        with self._lock:
            row = self._stages[stage]
            repeated = row.state == "waiting" and row.note == printable(note)
            row.state, row.note = "waiting", printable(note)
        if not repeated:
            self._line(stage, f"waiting: {printable(note)}")

    def stage_finished(self, stage: str, state: Origin, seconds: float, figures: Figures) -> None:
        """Tell that a stage has its output.

        Args:
            stage: its name.
            state: built now, reused from before, or built by going on from a checkpoint.
            seconds: it took, now.
            figures: the most telling first; as many as fit are shown.
        """
        with self._lock:
            row = self._stages[stage]
            row.state, row.ended_after_s, row.figures, row.note = state, seconds, figures, ""
        shown = ", ".join(format_figures(figures))
        word = _LOOK[state][2]
        took = "" if state == "reused" else f" in {format_duration(seconds)}"
        self._line(stage, f"{word}{took}{': ' if shown else ''}{shown}")

    def stage_failed(self, stage: str, message: str) -> None:
        with self._lock:
            row = self._stages[stage]
            row.ended_after_s = self._elapsed(row)
            row.state, row.note = "failed", printable(message.strip().split("\n")[0])
        self._line(stage, f"Failed: {row.note}")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            width = min(options.max_width, _MAX_WIDTH)
            ascii_only = options.ascii_only
            clock = format_clock(self._clock() - self._started_s)
            title = fit(self._title, width - len(clock) - 1)
            yield Text.assemble((title, "bold"), " ", (clock, "dim"), no_wrap=True)
            for row in self._stages.values():
                yield self._row(row, width, ascii_only)

    def _row(self, row: _Stage, width: int, ascii_only: bool) -> Text:
        symbol, in_ascii, word, style = _LOOK[row.state]
        bar_width = 16 if width >= ROOMY else 10
        line = Text(no_wrap=True, overflow="crop", end="\n")
        line.append(f"{in_ascii if ascii_only else symbol} ", style)
        line.append(set_cell_size(row.name, _NAME_WIDTH) + " ", "dim" if not word else "")
        if row.state == "running":
            if row.total is None:
                line.append(" " * bar_width)
            else:
                line.append_text(_bar(_share(row.done, row.total), bar_width, ascii_only))
        else:
            line.append(set_cell_size(word, bar_width), style)
        timed = row.state not in ("pending", "reused")
        line.append(f"{format_clock(self._elapsed(row)) if timed else '':>{_CLOCK_WIDTH}}  ", "dim")
        room = width - line.cell_len
        if row.state in ("built", "reused", "resumed"):
            line.append(whole_parts(format_figures(row.figures), room, "  "))
        elif row.state == "running":
            left = self._time_left(row)
            note = row.note if len(f"{row.note}, {left}") > room else f"{row.note}, {left}"
            line.append(fit(note.strip(", "), room, ascii_only))
        else:
            line.append(fit(row.note, room, ascii_only), style)
        return line

    def _elapsed(self, row: _Stage) -> float:
        if row.ended_after_s is not None:
            return row.ended_after_s
        return 0.0 if row.started_s is None else self._clock() - row.started_s

    def _time_left(self, row: _Stage) -> str:
        """From the pace since progress was first heard of; empty while that says too little."""
        if row.total is None or row.first is None or row.done >= row.total:
            return ""
        since_s, first = row.first
        taken_s, gained = self._clock() - since_s, row.done - first
        if taken_s < _PACE_KNOWN_AFTER_S or gained <= 0:
            return ""
        return f"{format_clock(taken_s * (row.total - row.done) / gained)} left"

    def _line(self, stage: str, text: str) -> None:
        if self._live is None:
            self._say(f"{stage:<{_NAME_WIDTH}} {text}")

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def _bar(share: float, width: int, ascii_only: bool) -> Text:
    label = f"{share:4.0%}"
    room = width - len(label) - 1
    full = min(room, int(share * room))
    solid, rest = ("#", "-") if ascii_only else ("━", "─")
    return Text.assemble((solid * full, "cyan"), (rest * (room - full), "dim"), f" {label}")


def _share(done: float, total: float) -> float:
    """Rounded down to a percent, so that 100 % means all of it."""
    return int(100 * min(1.0, max(0.0, done / total)) + 1e-9) / 100 if total > 0 else 0.0
