"""What a person sees of a run on a terminal, and what a log file gets."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from flows.result import print_result
from flows.run_view import RunView
from flows.terminal_text import format_figures

STAGES = ["ingest", "curate", "tokenize", "train", "export", "evaluate", "report"]
TITLE = "quickstart: raw text in, evaluated model out"


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def terminal(width: int = 80, **more: Any) -> Console:
    return Console(
        file=io.StringIO(), width=width, height=40, force_terminal=True, color_system="standard",
        _environ={}, **more,
    )  # fmt: skip


def pipe() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=False, _environ={})


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def screen(view: RunView, width: int = 80) -> list[str]:
    """The table as it would be drawn now, without colours."""
    console = Console(file=io.StringIO(), width=width, _environ={})
    console.print(view)
    return [line.rstrip() for line in written(console).splitlines()]


def busy_view(console: Console, clock: Clock) -> RunView:
    view = RunView(STAGES, TITLE, console, clock)
    view.stage_started("ingest")
    view.stage_finished("ingest", "reused", 0.1, {"documents": 36_924, "text_bytes": 24_800_000})
    view.stage_started("curate")
    view.stage_finished(
        "curate",
        "built",
        52.1,
        {"train_documents": 15_062, "held_out_documents": 310, "dropped_documents": 21_552},
    )
    view.stage_started("tokenize")
    view.stage_finished("tokenize", "resumed", 3_750.0, {"train_tokens": 4_290_000})
    view.stage_started("train")
    view.stage_progress("train", 200_000, 1_000_000, "loss 6.012, 5,932 tokens/s")
    clock.now += 40
    view.stage_progress("train", 400_000, 1_000_000, "loss 5.213, 5,932 tokens/s")
    view.stage_started("export")
    view.stage_waiting("export", "built by process 4711 on another node")
    view.stage_started("evaluate")
    view.stage_failed(
        "evaluate", "held_out: no document is long enough for a cloze item\nTraceback"
    )
    return view


def test_each_stage_shows_state_clock_and_key_figures() -> None:
    assert screen(busy_view(terminal(), Clock())) == [
        "quickstart: raw text in, evaluated model out 0:40",
        "✓ ingest    Reused                   documents 36,924  text 24.8 MB",
        "✓ curate    Built              0:52  train documents 15,062",
        "✓ tokenize  Resumed         1:02:30  train tokens 4.29 M",
        # 200,000 tokens in 40 s leave 600,000 for two minutes
        "▸ train     ━━━━───────  40%   0:40  loss 5.213, 5,932 tokens/s, 2:00 left",
        "… export    waiting            0:00  built by process 4711 on another node",
        "✗ evaluate  Failed             0:00  held_out: no document is long enough for a…",
        "· report",
    ]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = screen(busy_view(terminal(width), Clock()), width)
    assert len(lines) == 1 + len(STAGES)
    assert max(cell_len(line) for line in lines) <= width


def test_figures_are_left_out_rather_than_cut() -> None:
    curate = screen(busy_view(terminal(60), Clock()), 60)[2]
    assert curate.endswith("train documents 15,062")


def test_a_hundred_percent_means_all() -> None:
    view = RunView(STAGES, TITLE, terminal(), Clock())
    view.stage_started("train")
    view.stage_progress("train", 999, 1000, "")
    assert "99%" in screen(view)[4]
    view.stage_progress("train", 1000, 1000, "")
    assert "100%" in screen(view)[4]


def test_time_left_counts_from_where_a_resumed_stage_began() -> None:
    clock = Clock()
    view = RunView(STAGES, TITLE, terminal(), clock)
    view.stage_started("train")
    view.stage_progress("train", 900, 1000, "")
    clock.now += 50
    view.stage_progress("train", 950, 1000, "")
    assert "0:50 left" in screen(view)[4]


def test_a_terminal_without_unicode_gets_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=file, width=80, _environ={}).print(busy_view(terminal(), Clock()))
    file.flush()
    assert b"> train     ####-------  40%" in file.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_log_file_gets_plain_lines_one_an_event() -> None:
    console = pipe()
    with busy_view(console, Clock()):
        pass
    text = written(console)
    assert "\x1b" not in text
    assert text.splitlines()[:7] == [
        "ingest    started",
        "ingest    Reused: documents 36,924, text 24.8 MB",
        "curate    started",
        "curate    Built in 52 s: train documents 15,062, held out documents 310, "
        "dropped documents 21,552",
        "tokenize  started",
        "tokenize  Resumed in 1 h 02 min: train tokens 4.29 M",
        "train     started",
    ]
    assert "evaluate  Failed: held_out: no document is long enough for a cloze item" in text


def test_progress_in_a_log_file_comes_every_ten_seconds_at_most() -> None:
    clock, console = Clock(), pipe()
    with RunView(STAGES, TITLE, console, clock) as view:
        view.stage_started("train")
        for step in range(600):
            clock.now += 0.1
            view.stage_progress("train", step, 600, "loss 5.2")
    lines = [line for line in written(console).splitlines() if "loss" in line]
    assert len(lines) in (5, 6)
    assert lines[0] == "train     16%, loss 5.2, 0:50 left, 10 s so far"


def test_waiting_for_another_run_is_said_once() -> None:
    console = pipe()
    with RunView(STAGES, TITLE, console, Clock()) as view:
        view.stage_started("train")
        for _ in range(5):
            view.stage_waiting("train", "built by process 4711")
    assert written(console).count("waiting: built by process 4711") == 1


def test_a_live_terminal_is_redrawn_and_left_clean() -> None:
    console = terminal()
    view = busy_view(console, Clock())
    with view:
        pass
    text = written(console)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # cursor hidden, then shown
    assert "Reused" in text


def test_no_color_is_respected() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"NO_COLOR": "1"})
    console.print(busy_view(terminal(), Clock()))
    assert "\x1b[3" not in written(console)


def test_a_terminal_that_cannot_redraw_gets_plain_lines() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"TERM": "dumb"})
    with RunView(STAGES, TITLE, console, Clock()) as view:
        view.stage_started("ingest")
    assert "ingest    started\n" in written(console)


def test_text_that_would_command_the_terminal_is_defused() -> None:
    console = pipe()
    with RunView(STAGES, "[red]title[/red]", console, Clock()) as view:
        view.stage_started("train")
        view.stage_failed("train", "[bold]no\x1b[2Jsuch\r\x07file")
    assert "[red]title[/red]" in written(console)
    assert "Failed: [bold]no [2Jsuch file" in written(console)


def test_figures_read_their_unit_off_their_name() -> None:
    assert format_figures(
        {
            "num_documents": 53_704,
            "bytes_kept": 15_500_000,
            "train_tokens": 4_290_000,
            "tokens_per_second": 5932.4,
            "loss": 5.0213,
            "start_seconds": 9.4,
            "layout": "2x2x2",
        }
    ) == [
        "documents 53,704",
        "kept 15.5 MB",
        "train tokens 4.29 M",
        "5,932 tokens/s",
        "loss 5.021",
        "start 9.4 s",
        "layout 2x2x2",
    ]


def summary(**more: Any) -> dict[str, Any]:
    def score(task: str, shots: int, value: float, standing: str) -> dict[str, Any]:
        return {
            "task": task,
            "metric": "acc",
            "num_shots": shots,
            "value": value,
            "stderr": 0.0217,
            "n": 300,
            "chance": 0.25,
            "baselines": [
                {"name": "unigram", "value": 0.12},
                {"name": "trigram", "value": 0.203},
            ],
            "standing": standing,
        }

    models = (("unigram", 6.812, 2.81), ("bigram", 4.921, 2.03), ("trigram", 4.224, 1.743))
    return {
        "held_out_nats_per_token": 5.021,
        "held_out_bits_per_byte": 2.071,
        "language_models": [
            {
                "name": name,
                "nats_per_token": nats,
                "bits_per_byte": bits,
                "model_minus_this_nats": 5.021 - nats,
            }
            for name, nats, bits in models
        ],
        "scores": [score("cloze", 0, 0.17, "below"), score("continuation", 4, 0.43, "above")],
        "train_tokens": 1_093_632,
        "tokens_per_second": 5932.4,
        "utilization": "unknown device peak, so no MFU",
        "samples": [
            {
                "prompt": "Return the",
                "continuation": " value\x1b[31m of the [bold]axis[/bold].\n\n" + "and so on " * 60,
            }
        ],
        **more,
    }


def result(width: int, **more: Any) -> str:
    console = Console(file=io.StringIO(), width=width, _environ={})
    print_result(summary(**more), console, Path("runs/report.html"))
    return written(console)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_result_fits_the_terminal_with_every_number_whole(width: int) -> None:
    lines = [line.rstrip() for line in result(width).splitlines()]
    assert max(cell_len(line) for line in lines) <= width
    words = [" ".join(line.split()) for line in lines]
    assert "this model 5.021 2.071" in words
    assert "unigram 6.812 2.810 1.791 lower" in words
    assert "bigram 4.921 2.030 0.100 higher" in words
    assert any(w.startswith("cloze 0 17.0 ± 2.2 300 25.0 % trigram 20.3 %") for w in words)
    assert any(w.startswith("continuation 4 43.0 ± 2.2 300 25.0 % trigram 20.3 %") for w in words)


def test_the_result_says_where_each_score_stands() -> None:
    words = " ".join(result(80).split())
    assert "trigram 20.3 % below continuation" in words
    assert "trigram 20.3 % above Training" in words
    words = " ".join(result(60).split())
    assert "trigram 20.3 % ↓ continuation" in words
    assert "trigram 20.3 % ↑ Training" in words


def test_the_result_shows_speed_sample_and_report() -> None:
    text = result(80)
    assert "1.09 M tokens at 5,932 tokens/s; unknown device peak, so no MFU" in text
    assert "Return the value [31m of the [bold]axis[/bold]. and so on" in text
    assert "\x1b" not in text
    assert "…" in text
    assert len(text.splitlines()) <= 20
    assert "Report    runs/report.html" in text


def test_a_result_without_scores_or_samples_still_shows() -> None:
    assert "Accuracy" not in result(80, scores=[], samples=[])
