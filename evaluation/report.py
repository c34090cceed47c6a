"""The report of a run: one HTML file that opens offline, and the same figures as JSON.

Everything shown is derived here, from the records of the stages and the files they left; no stage
draws anything itself. Text from the corpus is escaped by the template engine, never by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, StrictUndefined

from evaluation import charts
from evaluation.drop_examples import examples_by_rule
from evaluation.run_records import RunRecords, read_records
from evaluation.summary import shots, summarize
from evaluation.units import format_bytes, format_count, format_duration, format_percent

_RULE_MEANING = {
    "source_cap": ("its source reached the cap", "bytes"),
    "too_short": ("fewer characters than the least allowed", "characters"),
    "too_long": ("more characters than the most allowed", "characters"),
    "exact_duplicate": ("the same text as a kept document", ""),
    "language": ("not in a language to keep", "probability"),
    "near_duplicate": ("almost the same words as a kept document", "Jaccard"),
}


def write_report(records: Mapping[str, Any], out: Path) -> dict[str, int | float | str]:
    """Write `report.html` and `summary.json` into `out`.

    Args:
        records: `{"run": …, "stages": …}` as described in docs/formats.md.
        out: an existing folder.

    Returns:
        Key figures of the report.

    Raises:
        ValueError: the records are incomplete or contradict themselves.
    """
    found = read_records(records)
    summary = summarize(found)
    (out / "summary.json").write_bytes(
        orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    page = render(found, summary)
    (out / "report.html").write_text(page, encoding="utf-8", newline="\n")
    return {
        "nats_per_token": round(summary["held_out_nats_per_token"], 4),
        "bits_per_byte": round(summary["held_out_bits_per_byte"], 4),
        "scores": len(summary["scores"]),
    }


def render(records: RunRecords, summary: Mapping[str, Any]) -> str:
    """The page as text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "bytes": format_bytes,
        "compact": format_count,
        "duration": format_duration,
        "measure": lambda value: f"{value:,.0f}" if value >= 10 else f"{value:.3g}",
        "percent": format_percent,
        "shots": shots,
    }
    template = resources.files("evaluation").joinpath("templates/report.html.j2")
    steps = records.steps
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        records=records,
        summary=summary,
        scale=_score_scale(summary["scores"]),
        funnel=_funnel_rows(records.funnel),
        examples=examples_by_rule(
            records.folder("curate") / "decisions.parquet", records.folder("ingest") / "documents"
        ),
        rule_meaning=_RULE_MEANING,
        steps_without_loss=sum(row["loss"] is None for row in steps),
        steps_a_point=charts.points_a_bucket(len(steps)),
        loss_chart=charts.loss_chart(
            steps,
            records.validation,
            records.results["language_models"],
            summary["held_out_nats_per_token"],
        ),
        s_curve_chart=charts.s_curve_chart(records.funnel["dedup"]),
        throughput_chart=charts.line_chart(
            "throughput", steps, "tokens_per_second", "tokens a second"
        ),
        learning_rate_chart=charts.line_chart(
            "learning-rate", steps, "learning_rate", "learning rate"
        ),
        grad_norm_chart=charts.line_chart("grad-norm", steps, "grad_norm", "gradient norm"),
    )


def _score_scale(scores: list[dict[str, Any]]) -> dict[str, Any]:
    """The axis shared by all scores: from 0 to the next 10 % above all that is drawn."""
    drawn = [0.0]
    for row in scores:
        drawn += [row["high_95"], row["chance"] or 0.0, *(b["value"] for b in row["baselines"])]
    top = min(1.0, (int(max(drawn) * 10) + 1) / 10)
    step = 0.1 if top <= 0.5 else 0.2
    ticks = [i * step for i in range(round(top / step) + 1) if i * step <= top + 1e-9]
    return {"top": top, "ticks": ticks}


def _funnel_rows(funnel: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a rule: what it dropped, and what was left after it."""
    left = funnel["total"]["in"]
    rows = []
    for rule in funnel["rules"]:
        dropped = funnel["total"]["dropped"].get(rule, 0)
        left -= dropped
        rows.append({"rule": rule, "dropped": dropped, "left": left})
    return rows
