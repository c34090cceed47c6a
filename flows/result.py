"""What came out of a run, in one screen of a terminal: losses, scores, speed, a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evaluation.units import format_count, format_percent
from flows.terminal_text import ROOMY, fit, printable


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
        prompt, continuation = printable(sample["prompt"]), printable(sample["continuation"])
        gap = "" if continuation[:1] in ".,;:)'" else " "
        room = 2 * (console.width - 10) - cell_len(prompt) - 8
        said = Text.assemble((prompt, "bold"), gap, fit(continuation, room))
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
    table.add_column("model is" if width >= ROOMY else "", no_wrap=True)
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
            Text(word if width >= ROOMY else symbol, style),
        )
    return table


def _metric_name(score: Mapping[str, Any]) -> str:
    """The task, and the metric where it is not plain accuracy."""
    task, metric = str(score["task"]), str(score["metric"])
    return task if metric == "acc" else f"{task}, {'norm.' if metric == 'acc_norm' else metric}"


def _table(width: int) -> Table:
    padding = (0, 2 if width >= ROOMY else 1, 0, 0)
    return Table(box=None, show_edge=False, pad_edge=False, padding=padding, header_style="dim")
