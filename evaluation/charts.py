"""Charts as SVG inside the report: drawn by matplotlib, coloured by the page.

- Text stays text. Colours are the page's CSS variables, so light, dark and print need no redraw.
- Each chart is drawn twice, wide and narrow; the page shows the one that keeps 10 point legible.
- Equal data give equal bytes: no dates, no random ids.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from evaluation.units import format_count

# Stand-ins that matplotlib carries to the SVG, where each becomes a CSS variable.
_INK, _MUTED, _RULE = "#000001", "#000002", "#000003"
_MODEL, _MODEL_LIGHT, _BASELINE = "#000004", "#000005", "#000006"
_VARIABLES = {
    _INK: "ink",
    _MUTED: "muted",
    _RULE: "rule",
    _MODEL: "model",
    _MODEL_LIGHT: "model-light",
    _BASELINE: "baseline",
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.edgecolor": _RULE,
    "axes.labelcolor": _MUTED,
    "axes.labelsize": 10,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": _RULE,
    "grid.linewidth": 0.8,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
    "path.simplify": True,
}
_POINTS = 400  # A line of more points is drawn through bucket means.

Draw = Callable[[Axes], None]


def loss_chart(
    steps: Sequence[Mapping[str, Any]],
    validation: Sequence[Mapping[str, Any]],
    language_models: Sequence[Mapping[str, Any]],
    held_out_nats: float,
) -> Markup:
    """Training and validation loss over tokens, with the n-gram models as levels."""

    def draw(axes: Axes) -> None:
        tokens, losses = bucket_means(
            [row["tokens"] for row in steps], [row["loss"] for row in steps]
        )
        axes.plot(tokens, losses, color=_MODEL_LIGHT, linewidth=1.2)
        finite = [row for row in validation if row["loss"] is not None]
        axes.plot(
            [row["tokens"] for row in finite],
            [row["loss"] for row in finite],
            color=_MODEL,
            linewidth=1.6,
            marker="o",
            markersize=4.5,
        )
        last = steps[-1]["tokens"]
        axes.plot([last], [held_out_nats], color=_MODEL, marker="D", markersize=6.5)
        for row in language_models:
            axes.axhline(row["nats_per_token"], color=_BASELINE, linewidth=1, dashes=(4, 3))
        labels = [
            (row["nats_per_token"], f"{row['name']} {row['nats_per_token']:.2f}", _BASELINE)
            for row in language_models
        ]
        labels.append((held_out_nats, f"model {held_out_nats:.2f}", _MODEL))
        axes.set_xlim(0, last * 1.01)
        levels = [*losses, *(level for level, _, _ in labels)]
        low, high = min(levels), max(levels)
        axes.set_ylim(low - 0.08 * (high - low), high + 0.05 * (high - low))
        _label_right(axes, labels)
        _tokens_axis(axes)
        axes.set_ylabel("loss, nats a token")

    return _chart("loss", draw, wide=(10, 4.2), narrow=(5, 4.2))


def line_chart(name: str, steps: Sequence[Mapping[str, Any]], field: str, label: str) -> Markup:
    """One quantity of the training steps over tokens, from zero."""

    def draw(axes: Axes) -> None:
        axes.plot(
            *bucket_means([row["tokens"] for row in steps], [row[field] for row in steps]),
            color=_MODEL,
            linewidth=1.4,
        )
        axes.set_xlim(0, steps[-1]["tokens"] * 1.01)
        axes.set_ylim(bottom=0)
        _tokens_axis(axes)
        axes.yaxis.set_major_formatter(FuncFormatter(_tick))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_ylabel(label)

    return _chart(name, draw, wide=(3.7, 2.7), narrow=(5, 2.7))


def s_curve_chart(dedup: Mapping[str, Any]) -> Markup:
    """How likely a pair of documents is to be compared, by its similarity."""

    def draw(axes: Axes) -> None:
        bands, rows = dedup["num_bands"], dedup["num_rows"]
        similarity = [i / 200 for i in range(201)]
        axes.plot(
            similarity,
            [1 - (1 - s**rows) ** bands for s in similarity],
            color=_MODEL,
            linewidth=1.6,
        )
        axes.axvline(dedup["jaccard"], color=_BASELINE, linewidth=1, dashes=(4, 3))
        axes.annotate(
            f"duplicate from {dedup['jaccard']:g}",
            (dedup["jaccard"], 0.97),
            xytext=(-6, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=_BASELINE,
        )
        points = sorted((float(s), p) for s, p in dedup["s_curve"].items())
        axes.plot(
            [s for s, _ in points],
            [p for _, p in points],
            color=_MODEL,
            linestyle="",
            marker="o",
            markersize=4.5,
        )
        axes.set_xlim(0, 1.01)
        axes.set_ylim(0, 1.05)
        axes.set_xlabel("Jaccard similarity of two documents")
        axes.set_ylabel("chance to be compared")

    return _chart("s-curve", draw, wide=(10, 3), narrow=(5, 3))


def points_a_bucket(num_points: int) -> int:
    """How many neighbours one drawn point stands for."""
    return max(1, -(-num_points // _POINTS))


def bucket_means(x: Sequence[float], y: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """At most `_POINTS` points: each the mean of equally many neighbours (the last of fewer).

    Steps without a finite value (null in the records) are left out.
    """
    size = points_a_bucket(len(x))
    pairs = [(at, value) for at, value in zip(x, y, strict=True) if value is not None]
    buckets = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    return (
        [sum(at for at, _ in bucket) / len(bucket) for bucket in buckets],
        [sum(value for _, value in bucket) / len(bucket) for bucket in buckets],
    )


def _tokens_axis(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    axes.set_xlabel("training tokens")


def _tick(value: float, _position: int | None = None) -> str:
    if value and abs(value) < 1:
        return f"{value:g}"
    if abs(value) >= 1000:
        text = format_count(value if abs(value) >= 10_000 else round(value))
        return re.sub(r"(\.\d*?)0+(?= |$)", r"\1", text).replace(". ", " ")
    return f"{value:g}"


def _label_right(axes: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
    """Name levels at the right edge, moved apart where they would cover each other."""
    bottom, top = axes.get_ylim()
    gap = 0.055 * (top - bottom)
    at = -float("inf")
    for level, text, colour in sorted(labels):
        at = max(level, at + gap)
        axes.annotate(
            text,
            (1, at),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )


def _chart(
    name: str, draw: Draw, *, wide: tuple[float, float], narrow: tuple[float, float]
) -> Markup:
    return _svg(f"{name}-wide", draw, wide, "chart wide") + _svg(
        f"{name}-narrow", draw, narrow, "chart narrow"
    )


def _svg(name: str, draw: Draw, size: tuple[float, float], css_class: str) -> Markup:
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        buffer = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # A style element inside inline SVG would reach the whole page.
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'<svg [^>]*?(viewBox="[^"]*")[^>]*>',
        rf'<svg class="{css_class}" \1 aria-hidden="true">',
        text,
        count=1,
    )
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text).replace("xlink:href", "href")
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, f"var(--{variable})")
    return Markup(text)  # matplotlib escapes the text it draws
