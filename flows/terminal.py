"""How a run looks on a terminal: one live table while it goes, one short table when it is done.

- On a terminal the table is redrawn in place and fits the width, from 60 columns up. Elsewhere (a
  pipe, CI) each event is one plain line without escape codes, and progress is a line every ten
  seconds at most, rarer the longer a stage takes.
- Key figures are shown whole or left out, never cut in the middle of a number.
- Text from the corpus or a model is shown as it is: no markup, no control characters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evaluation.units import (
    format_bytes,
    format_clock,
    format_count,
    format_duration,
    format_percent,
)
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
_PLAIN_INTERVAL_S = 10.0
_ROOMY = 76  # columns from which tables spread out


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
            row.done, row.total, row.note = done, total, _printable(note)
            if row.first is None:
                row.first = (now, done)
            elapsed = self._elapsed(row)
            silent = now - row.printed_s < max(_PLAIN_INTERVAL_S, elapsed / 20)
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
            repeated = row.state == "waiting" and row.note == _printable(note)
            row.state, row.note = "waiting", _printable(note)
        if not repeated:
            self._line(stage, f"waiting: {_printable(note)}")

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
            row.state, row.note = "failed", _printable(message.strip().split("\n")[0])
        self._line(stage, f"Failed: {row.note}")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            width = min(options.max_width, 100)
            ascii_only = options.ascii_only
            clock = format_clock(self._clock() - self._started_s)
            title = _fit(self._title, width - len(clock) - 1)
            yield Text.assemble((title, "bold"), " ", (clock, "dim"), no_wrap=True)
            for row in self._stages.values():
                yield self._row(row, width, ascii_only)

    def _row(self, row: _Stage, width: int, ascii_only: bool) -> Text:
        symbol, in_ascii, word, style = _LOOK[row.state]
        bar_width = 16 if width >= _ROOMY else 10
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
            line.append(_whole(format_figures(row.figures), room, "  "))
        elif row.state == "running":
            left = self._time_left(row)
            note = row.note if len(f"{row.note}, {left}") > room else f"{row.note}, {left}"
            line.append(_fit(note.strip(", "), room, ascii_only))
        else:
            line.append(_fit(row.note, room, ascii_only), style)
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
        if taken_s < 3 or gained <= 0:
            return ""
        return f"{format_clock(taken_s * (row.total - row.done) / gained)} left"

    def _line(self, stage: str, text: str) -> None:
        if self._live is None:
            self._say(f"{stage:<{_NAME_WIDTH}} {text}")

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def print_result(summary: Mapping[str, Any], console: Console, report: Path) -> None:
    """Show what came out of a run, in one screen that fits 60 columns.

    Args:
        summary: the content of the report's `summary.json`.
        console: where to show it.
        report: the HTML file to point at.
    """
    console.print()
    console.print(_loss_table(summary, console.width))
    console.print()
    if summary["scores"]:
        console.print(_score_table(summary["scores"], console.width))
        console.print()
    speed = (
        f"{format_count(summary['train_tokens'])} tokens at "
        f"{format_count(summary['tokens_per_second'])} tokens/s; {summary['utilization']}"
    )
    console.print(Text.assemble(("Training  ", "bold"), speed))
    if summary["samples"]:
        sample = summary["samples"][0]
        prompt, continuation = _printable(sample["prompt"]), _printable(sample["continuation"])
        gap = "" if continuation[:1] in ".,;:)'" else " "
        room = 2 * (console.width - 10) - cell_len(prompt) - 8
        said = Text.assemble((prompt, "bold"), gap, _fit(continuation, room))
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True, width=9)
        grid.add_column(overflow="fold")
        grid.add_row(Text("Sample", "bold"), said)
        console.print(grid)
    console.print(Text.assemble(("Report    ", "bold"), str(report)), soft_wrap=True)


def _loss_table(summary: Mapping[str, Any], width: int) -> Table:
    table = _table(width)
    table.add_column(Text("Held-out loss", "bold"), min_width=13)
    table.add_column("nats a token", justify="right")
    table.add_column("bits a byte", justify="right")
    table.add_column("model is", justify="left")
    table.add_row(
        Text("this model", "bold"),
        f"{summary['held_out_nats_per_token']:.3f}",
        f"{summary['held_out_bits_per_byte']:.3f}",
        "",
    )
    for row in summary["language_models"]:
        difference = row["model_minus_this_nats"]
        side, style = ("lower", "green") if difference < 0 else ("higher", "yellow")
        table.add_row(
            row["name"],
            f"{row['nats_per_token']:.3f}",
            f"{row['bits_per_byte']:.3f}",
            Text(f"{abs(difference):.3f} {side}", style),
        )
    return table


_STANDING = {  # against the best of chance and baselines: word, symbol where room is short, style
    "above": ("above", "↑", "green"),
    "at": ("level", "=", "dim"),
    "below": ("below", "↓", "red"),
    "alone": ("", "", ""),
}


def _score_table(scores: Sequence[Mapping[str, Any]], width: int) -> Table:
    """Scores with standard error, n, chance and the best baseline; and where they stand."""
    table = _table(width)
    table.add_column(Text("Accuracy", "bold"), min_width=8, overflow="ellipsis")
    table.add_column("shots", justify="right")
    table.add_column("% ± stderr", justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("chance", justify="right", no_wrap=True)
    table.add_column("baseline", no_wrap=True)
    table.add_column("model is" if width >= _ROOMY else "", no_wrap=True)
    for row in scores:
        word, symbol, style = _STANDING[row["standing"]]
        best = max(row["baselines"], key=lambda b: b["value"], default=None)
        table.add_row(
            _metric_name(row),
            str(row["num_shots"]),
            Text(f"{100 * row['value']:.1f} ± {100 * row['stderr']:.1f}", style),
            f"{row['n']}",
            "–" if row["chance"] is None else format_percent(row["chance"]),
            "–" if best is None else f"{best['name']} {format_percent(best['value'])}",
            Text(word if width >= _ROOMY else symbol, style),
        )
    return table


def _metric_name(score: Mapping[str, Any]) -> str:
    """The task, and the metric where it is not plain accuracy."""
    task, metric = str(score["task"]), str(score["metric"])
    return task if metric == "acc" else f"{task}, {'norm.' if metric == 'acc_norm' else metric}"


def _table(width: int) -> Table:
    padding = (0, 2 if width >= _ROOMY else 1, 0, 0)
    return Table(box=None, show_edge=False, pad_edge=False, padding=padding, header_style="dim")


def format_figures(figures: Figures) -> list[str]:
    """ "documents 53,704", "text 21.0 MB": the unit is read off the name."""
    shown = []
    for name, value in figures.items():
        words = name.replace("_", " ")
        if value is None:
            shown.append(f"{words} unknown")
        elif isinstance(value, str):
            shown.append(f"{words} {_printable(value)}")
        elif "bytes" in name.split("_") and "_per_" not in name:
            shown.append(f"{words.replace('bytes', '').strip()} {format_bytes(value)}".strip())
        elif name.endswith("_seconds") or name == "seconds":
            shown.append(
                f"{words.removesuffix('seconds').strip()} {format_duration(value)}".strip()
            )
        elif name.endswith("_per_second"):
            shown.append(f"{format_count(value)} {words.removesuffix(' per second')}/s")
        elif isinstance(value, int):
            shown.append(f"{words.removeprefix('num ')} {_count(value)}")
        else:
            shown.append(f"{words} {value:.4g}")
    return shown


def _count(value: int) -> str:
    return f"{value:,}" if abs(value) < 1_000_000 else format_count(value)


def _whole(parts: Sequence[str], room: int, separator: str) -> str:
    """The longest beginning of `parts` that fits."""
    text = ""
    for part in parts:
        longer = f"{text}{separator}{part}" if text else part
        if cell_len(longer) > room:
            break
        text = longer
    return text


def _bar(share: float, width: int, ascii_only: bool) -> Text:
    label = f"{share:4.0%}"
    room = width - len(label) - 1
    full = min(room, int(share * room))
    solid, rest = ("#", "-") if ascii_only else ("━", "─")
    return Text.assemble((solid * full, "cyan"), (rest * (room - full), "dim"), f" {label}")


def _share(done: float, total: float) -> float:
    """Rounded down to a percent, so that 100 % means all of it."""
    return int(100 * min(1.0, max(0.0, done / total)) + 1e-9) / 100 if total > 0 else 0.0


def _fit(text: str, room: int, ascii_only: bool = False) -> str:
    if cell_len(text) <= room:
        return text
    dots = "..." if ascii_only else "…"
    return set_cell_size(text, max(0, room - len(dots))).rstrip() + dots if room > 3 else ""


def _printable(text: str) -> str:
    """One line without control characters; a terminal would obey them."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
