"""The report, made from a run as docs/formats.md describes it."""

from __future__ import annotations

import json
import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.charts import bucket_means
from evaluation.report import write_report
from evaluation.summary import wilson_interval
from evaluation.units import format_bytes, format_count, format_duration, format_percent

RULES = ["source_cap", "too_short", "too_long", "exact_duplicate", "language", "near_duplicate"]
SCRIPT = "<script>alert('from the corpus')</script>"


def make_run(root: Path) -> dict[str, Any]:
    """The files and records of a small quickstart, by the contract; values like a real run's."""
    folders = {
        name: root / name
        for name in ("ingest", "curate", "tokenize", "train", "export", "evaluate")
    }
    for folder in folders.values():
        folder.mkdir(parents=True)
    _corpus(folders["ingest"], folders["curate"])
    _tokens(folders["tokenize"])
    _training(folders["train"])
    _results(folders["evaluate"])
    seconds = {
        "ingest": (38.4, 71.0, 0.61e9),
        "curate": (52.1, 98.3, 1.12e9),
        "tokenize": (14.2, 20.9, 0.93e9),
        "train": (184.6, 361.0, 6.42e9),
        "export": (1.3, 1.4, 0.52e9),
        "evaluate": (29.8, 55.2, 1.94e9),
    }
    inputs = {
        "ingest": ["raw"],
        "curate": ["ingest"],
        "tokenize": ["curate"],
        "train": ["tokenize"],
        "export": ["train", "tokenize"],
        "evaluate": ["export", "tokenize", "curate", "train"],
    }
    return {
        "run": {
            "recipe_name": "quickstart",
            "recipe_yaml": "name: quickstart\nseed: 1234\nsources:\n- name: stdlib\n"
            "  reader: installed_documentation\n  packages: [stdlib]\n",
            "command": "mtnlg run quickstart",
            "machine": {
                "cpu": "AMD EPYC 9B14",
                "cores": 2,
                "memory_bytes": 24_000_000_000,
                "accelerators": "none",
            },
        },
        "stages": {
            name: {
                "key": f"{i:x}" * 64,
                "digest": f"{i + 8:x}" * 64,
                "folder": folders[name],
                "seconds": seconds[name][0],
                "cpu_seconds": seconds[name][1],
                "peak_memory_bytes": int(seconds[name][2]),
                "metrics": {},
                "reused": name == "ingest",
                "inputs": {given: f"{ord(given[0]):x}" * 32 for given in inputs[name]},
                "versions": {"python": "3.11.13", "torch": "2.13.0+cpu", "lm_eval": "0.4.13"},
            }
            for i, name in enumerate(folders)
        },
    }


def edit(path: Path, change: Any) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def _corpus(ingest: Path, curate: Path) -> None:
    counts = {  # source: (dropped by rule, train, held out, bytes in, bytes kept)
        "stdlib": ([0, 5387, 0, 2, 2, 27], 1880, 39, 1_570_000, 1_100_000),
        "numpy": ([0, 2104, 3, 61, 4, 88], 3312, 70, 4_910_000, 4_420_000),
        "torch": ([8120, 5230, 1, 210, 12, 301], 9870, 201, 18_300_000, 9_950_000),
    }
    sources = {
        name: {
            "in": sum(dropped) + train + held_out,
            "dropped": dict(zip(RULES, dropped, strict=True)),
            "train": train,
            "held_out": held_out,
            "bytes_in": bytes_in,
            "bytes_kept": bytes_kept,
        }
        for name, (dropped, train, held_out, bytes_in, bytes_kept) in counts.items()
    }
    total: dict[str, Any] = {
        key: sum(row[key] for row in sources.values())
        for key in ("in", "train", "held_out", "bytes_in", "bytes_kept")
    }
    total["dropped"] = {rule: sum(r["dropped"][rule] for r in sources.values()) for rule in RULES}
    dedup = {
        "num_bands": 14,
        "num_rows": 8,
        "jaccard": 0.8,
        "candidate_pairs": 1903,
        "verified_pairs": 1544,
        "s_curve": {f"{s:g}": 1 - (1 - s**8) ** 14 for s in (0.5, 0.6, 0.7, 0.8, 0.9)},
    }
    (curate / "funnel.json").write_text(
        json.dumps({"rules": RULES, "sources": sources, "total": total, "dedup": dedup})
    )
    (ingest / "sources.json").write_text(
        json.dumps(
            {
                name: {
                    "files": 211,
                    "documents": row["in"],
                    "bytes": row["bytes_in"],
                    "quarantined": 2 if name == "torch" else 0,
                }
                for name, row in sources.items()
            }
        )
    )
    drops = [
        ("too_short", 41.0, 512.0, None, f"Return the size. {SCRIPT}", None),
        ("too_short", 287.0, 512.0, None, "Close the file descriptor fd.", None),
        ("source_cap", 10_000_000.0, 10_000_000.0, None, "Applies a 2D convolution over …", None),
        ("exact_duplicate", None, None, None, "This is an alias of :func:`gmtime`.", "kept-a"),
        ("language", 0.57, None, "fr", "argument: le tableau, axis: l'axe des valeurs", None),
        (
            "near_duplicate",
            0.914,
            0.8,
            None,
            "Return the maximum along a given axis, ignoring NaN. " * 9,
            "kept-b",
        ),
    ]
    rows = [
        {
            "id": f"{i:032x}",
            "source": "torch",
            "locator": f"torch/nn/functional.py:conv{i}",
            "rule": rule,
            "value": value,
            "threshold": threshold,
            "representative": kept,
            "detail": detail,
        }
        for i, (rule, value, threshold, detail, _, kept) in enumerate(drops)
    ]
    schema = pa.schema(
        [(name, pa.string()) for name in ("id", "source", "locator", "rule")]
        + [("value", pa.float64()), ("threshold", pa.float64())]
        + [(name, pa.string()) for name in ("representative", "detail")]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), curate / "decisions.parquet")
    texts = {f"{i:032x}": drop[4] for i, drop in enumerate(drops)}
    texts |= {"kept-a": "This is an alias of :func:`gmtime`.", "kept-b": "Return the maximum."}
    (ingest / "documents").mkdir()
    documents = [
        {"id": key, "source": "torch", "group": "g", "locator": "l", "text": text}
        for key, text in texts.items()
    ]
    for i in range(2):
        pq.write_table(
            pa.Table.from_pylist(documents[i::2]),
            ingest / "documents" / f"part-{i:05}.parquet",
            row_group_size=2,
        )


def _tokens(folder: Path) -> None:
    split = {"num_documents": 15062, "num_tokens": 4_290_000, "num_bytes": 15_100_000, "shards": []}
    held_out = {"num_documents": 310, "num_tokens": 86_016, "num_bytes": 300_800, "shards": []}
    (folder / "shards.json").write_text(
        json.dumps(
            {
                "format": 1,
                "tokenizer_sha256": "ab" * 32,
                "vocab_size": 8192,
                "end_of_text": "<|endoftext|>",
                "end_of_text_id": 0,
                "dtype": "uint16",
                "splits": {"train": split, "held_out": held_out},
            }
        )
    )


def _training(folder: Path) -> None:
    noise = random.Random(1)
    tokens_a_step, num_steps = 1024, 1068
    steps, validation = [], []
    for step in range(1, num_steps + 1):
        tokens = step * tokens_a_step
        smooth = 4.86 + 4.2 * math.exp(-tokens / 120_000) + 0.9 * math.exp(-tokens / 600_000)
        warm = min(1.0, tokens / 50_000)
        decay = 0.5 * (1 + math.cos(math.pi * tokens / (num_steps * tokens_a_step)))
        steps.append(
            {
                "step": step,
                "tokens": tokens,
                "loss": smooth + noise.gauss(0, 0.16),
                "learning_rate": warm * (1e-4 + 9e-4 * decay),
                "grad_norm": 0.5 + 2.5 * math.exp(-tokens / 80_000) + abs(noise.gauss(0, 0.1)),
                "tokens_per_second": 5930 + noise.gauss(0, 260),
                "sample_hash": f"{step:016x}",
            }
        )
        if step % 119 == 0:
            validation.append(
                {"step": step, "tokens": tokens, "loss": smooth + 0.02, "num_tokens": 49_920}
            )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    (folder / "validation.jsonl").write_text("".join(json.dumps(r) + "\n" for r in validation))
    (folder / "training.json").write_text(
        json.dumps(
            {
                "num_parameters": 3_380_000,
                "num_tokens": num_steps * tokens_a_step,
                "num_steps": num_steps,
                "final_loss": steps[-1]["loss"],
                "final_validation_loss": validation[-1]["loss"],
                "tokens_per_second": 5932.4,
                "model_flops_per_token": 2.1e7,
                "hardware_flops_per_token": 2.1e7,
                "flops_formula": "Narayanan et al. 2021, eq. 3: 72 l h² (1 + s / 6h + V / 12lh)",
                "model_flops_per_second": 1.25e11,
                "mfu": None,
                "hfu": None,
                "peak_source": "no peak known for this CPU",
                "layout": {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2},
                "precision": "bf16",
                "resumed_from": [],
            }
        )
    )


def _results(folder: Path) -> None:
    def score(task: str, shots: int, value: float, baselines: dict[str, float]) -> dict[str, Any]:
        return {
            "task": task,
            "task_version": "1",
            "metric": "acc",
            "num_shots": shots,
            "value": value,
            "stderr": math.sqrt(value * (1 - value) / 299),
            "n": 300,
            "chance": 0.25 if task == "continuation" else 0.0,
            "baselines": [{"name": name, "value": v} for name, v in baselines.items()],
            "truncated_prompts": 12 if shots == 4 else 0,
            "seed": 1234,
            "split": "held_out",
            "data_sha256": "cd" * 32,
        }

    cloze = {"unigram": 0.12, "bigram": 0.167, "trigram": 0.203}
    continuation = {"unigram": 0.26, "bigram": 0.31}
    held_out = {"num_tokens": 86_016, "num_bytes": 300_800}
    (folder / "results.json").write_text(
        json.dumps(
            {
                "harness": "lm_eval 0.4.13",
                "scores": [
                    score("cloze", 0, 0.17, cloze),
                    score("cloze", 1, 0.12, cloze),
                    score("cloze", 4, 0.183, cloze),
                    score("continuation", 0, 0.43, continuation),
                    score("continuation", 1, 0.336, continuation),
                    score("continuation", 4, 0.29, continuation),
                ],
                "held_out": {"nats_per_token": 5.021, "bits_per_byte": 2.071, **held_out},
                "language_models": [
                    {"name": n, "nats_per_token": nats, "bits_per_byte": bits, **held_out}
                    for n, nats, bits in (
                        ("unigram", 6.812, 2.81),
                        ("bigram", 4.921, 2.03),
                        ("trigram", 4.224, 1.743),
                    )
                ],
                "prompts": [
                    {
                        "prompt": "Return the",
                        "continuation": " value of the given axis, or the default if the object"
                        " has no such attribute.\n\nThis method is called by the array",
                    },
                    {"prompt": f"The {SCRIPT}", "continuation": " function is not"},
                ],
                "model": "export",
            }
        )
    )


class Page(HTMLParser):
    """What a reader of the page sees, and what a browser would load or run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        if tag not in ("b", "i", "code", "span", "sup", "sub"):
            self.text += " "
        for name, value in attrs:
            if name in ("src", "href") and not (value or "").startswith("#"):
                self.loads.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


@pytest.fixture
def run(tmp_path: Path) -> dict[str, Any]:
    return make_run(tmp_path / "stages")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def report(run: dict[str, Any], out: Path) -> tuple[dict[str, Any], Page]:
    write_report(run, out)
    html = (out / "report.html").read_text(encoding="utf-8")
    return json.loads((out / "summary.json").read_text()), Page(html)


def results_file(run: dict[str, Any]) -> Path:
    return Path(run["stages"]["evaluate"]["folder"]) / "results.json"


def test_the_page_loads_nothing_and_runs_nothing(run: dict[str, Any], out: Path) -> None:
    _, page = report(run, out)
    assert page.loads == []
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    html = (out / "report.html").read_text()
    assert "url(" not in html.replace("url(#", "")
    assert "@import" not in html


def test_text_from_the_corpus_and_from_prompts_stays_text(run: dict[str, Any], out: Path) -> None:
    _, page = report(run, out)
    assert f"Return the size. {SCRIPT}" in page.words  # a dropped document
    assert f"The {SCRIPT} function is not" in page.words  # a prompt and its continuation


def test_names_given_by_the_user_stay_text(run: dict[str, Any], out: Path) -> None:
    run["run"]["recipe_name"] = "<img src=x>"
    run["run"]["command"] = "mtnlg run '<img src=x>'"
    run["run"]["recipe_yaml"] = "name: '</pre><img src=x>'"

    def rename(funnel: dict[str, Any]) -> None:
        funnel["sources"]["<img src=x>"] = funnel["sources"].pop("numpy")

    edit(Path(run["stages"]["curate"]["folder"]) / "funnel.json", rename)
    _, page = report(run, out)
    assert "img" not in page.tags
    assert page.words.count("<img src=x>") >= 4


def test_equal_records_give_equal_bytes(run: dict[str, Any], tmp_path: Path) -> None:
    pages = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_report(run, tmp_path / name)
        pages.append(
            (
                (tmp_path / name / "report.html").read_bytes(),
                (tmp_path / name / "summary.json").read_bytes(),
            )
        )
    assert pages[0] == pages[1]


def test_no_two_elements_share_an_id(run: dict[str, Any], out: Path) -> None:
    _, page = report(run, out)
    assert len(page.ids) == len(set(page.ids))


def test_the_verdict_compares_the_loss_with_each_baseline(run: dict[str, Any], out: Path) -> None:
    summary, page = report(run, out)
    # 5.021 - 6.812 = -1.791, 5.021 - 4.921 = 0.100, 5.021 - 4.224 = 0.797
    expected = (
        "The model's held-out loss is 5.02 nats a token (2.07 bits a byte): 1.79 below the "
        "unigram, 0.10 above the bigram and 0.80 above the trigram model, all fitted on the same "
        "training tokens and scored on the same 86,016 held-out tokens."
    )
    assert summary["verdict"][0] == expected
    assert expected in page.words
    assert "better than the unigram model, not yet better than the bigram and" in page.words


@pytest.mark.parametrize(
    ("nats", "headline"),
    [
        (7.0, "no better than the unigram, bigram and trigram models"),
        (4.0, "better than the unigram, bigram and trigram models"),
        (4.921, "better than the unigram model, not yet better than the bigram and trigram models"),
    ],
)
def test_the_headline_follows_the_loss(
    run: dict[str, Any], out: Path, nats: float, headline: str
) -> None:
    edit(results_file(run), lambda r: r["held_out"].update(nats_per_token=nats))
    summary, _ = report(run, out)
    assert summary["headline"] == f"The model predicts held-out text {headline}"


def test_a_score_stands_above_only_if_its_whole_interval_does(
    run: dict[str, Any], out: Path
) -> None:
    summary, page = report(run, out)
    standing = {(row["task"], row["num_shots"]): row["standing"] for row in summary["scores"]}
    assert standing == {
        ("cloze", 0): "at",
        ("cloze", 1): "below",
        ("cloze", 4): "at",
        ("continuation", 0): "above",
        ("continuation", 1): "at",  # 33.6 % is above the bigram's 31 %, 28.5 % is not
        ("continuation", 4): "at",
    }
    assert (
        "Continuation accuracy at 0 shots: 43.0 % (95 % interval 37.5 to 48.7 %, n = 300) is above "
        "the bigram baseline, 31.0 %." in page.words
    )
    assert (
        "Cloze accuracy at 0 and 4 shots and continuation accuracy at 1 and 4 shots cannot be told"
        in page.words
    )


def test_scores_at_their_baselines_are_called_so(run: dict[str, Any], out: Path) -> None:
    def level(results: dict[str, Any]) -> None:
        for score in results["scores"]:
            score["value"] = max(b["value"] for b in score["baselines"])

    edit(results_file(run), level)
    summary, page = report(run, out)
    assert {row["standing"] for row in summary["scores"]} == {"at"}
    assert "Cloze and continuation accuracy sits at its baseline" in page.words
    assert "Accuracy does not show that this model learned." in page.words


def test_chance_is_the_reference_where_no_baseline_is_better(
    run: dict[str, Any], out: Path
) -> None:
    edit(results_file(run), lambda r: r["scores"][3].update(baselines=[]))
    summary, page = report(run, out)
    assert summary["scores"][3]["best_reference"] == "chance"
    assert "is above chance, 25.0 %." in page.words


def test_every_score_shows_error_interval_n_shots_chance_and_baselines(
    run: dict[str, Any], out: Path
) -> None:
    _, page = report(run, out)
    assert (
        "cloze 0 shots · acc 17.0 ± 2.2 % 13.2 to 21.7 % · n 300 0.0 % "
        "unigram 12.0 %, bigram 16.7 %, trigram 20.3 % at baseline" in page.words
    )


def test_an_unknown_peak_gives_no_utilization(run: dict[str, Any], out: Path) -> None:
    summary, page = report(run, out)
    assert summary["mfu"] is None and summary["hfu"] is None
    assert "unknown device peak, so no MFU (no peak known for this CPU)" in page.words
    assert not re.search(r"\d % MFU", page.words)


def test_both_utilizations_stand_side_by_side_with_formula_and_peak(
    run: dict[str, Any], out: Path
) -> None:
    edit(
        Path(run["stages"]["train"]["folder"]) / "training.json",
        lambda t: t.update(mfu=0.302, hfu=0.403, peak_source="A100 bf16, 312 TFLOP/s, datasheet"),
    )
    _, page = report(run, out)
    assert "MFU 30.2 %, HFU 40.3 % (A100 bf16, 312 TFLOP/s, datasheet)" in page.words
    assert "Narayanan et al. 2021, eq. 3" in page.words


def test_the_funnel_is_shown_to_the_last_document(run: dict[str, Any], out: Path) -> None:
    _, page = report(run, out)
    assert "in 36,924 100.0 % source cap −8,120 28,804" in page.words
    # 36,924 - 8,120 - 12,721 - 4 - 273 - 18 - 416 = 15,372 = 15,062 + 310
    assert "near duplicate −416 15,372" in page.words
    assert "15,062 train and 310 are held out" in page.words
    assert "2 records could not be used" in page.words


def test_a_funnel_that_does_not_add_up_is_refused(run: dict[str, Any], out: Path) -> None:
    edit(
        Path(run["stages"]["curate"]["folder"]) / "funnel.json",
        lambda f: f["sources"]["numpy"].update(train=3311),
    )
    with pytest.raises(ValueError, match="numpy does not add up: 5642 documents in, 5641"):
        write_report(run, out)
    assert list(out.iterdir()) == []


def test_losses_over_different_tokens_are_not_compared(run: dict[str, Any], out: Path) -> None:
    edit(results_file(run), lambda r: r["language_models"][1].update(num_tokens=86_000))
    with pytest.raises(ValueError, match=r"bigram model was scored on 86000 .* 86016"):
        write_report(run, out)


def test_a_missing_stage_is_named(run: dict[str, Any], out: Path) -> None:
    del run["stages"]["export"]
    with pytest.raises(ValueError, match="no record of export"):
        write_report(run, out)


def test_dropped_documents_show_what_was_measured_and_what_was_kept(
    run: dict[str, Any], out: Path
) -> None:
    _, page = report(run, out)
    assert "287 characters, threshold 512 Close the file descriptor fd." in page.words
    assert "0.914 Jaccard, threshold 0.8 Return the maximum along a given axis" in page.words
    assert "kept instead Return the maximum." in page.words
    assert "torch/nn/functional.py:conv4 · fr · 0.57 probability argument: le" in page.words
    assert "torch/nn/functional.py:conv3 This is an alias" in page.words


def test_a_run_that_dropped_nothing_and_validated_never_still_reports(
    run: dict[str, Any], out: Path
) -> None:
    curated = Path(run["stages"]["curate"]["folder"])

    def keep_all(funnel: dict[str, Any]) -> None:
        for row in (*funnel["sources"].values(), funnel["total"]):
            row["train"] += sum(row["dropped"].values())
            row["dropped"] = {}

    edit(curated / "funnel.json", keep_all)
    table = pq.read_table(curated / "decisions.parquet")
    pq.write_table(table.slice(0, 0), curated / "decisions.parquet")
    (Path(run["stages"]["train"]["folder"]) / "validation.jsonl").write_text("")
    _, page = report(run, out)
    assert "What was dropped" not in page.words


def test_steps_without_a_finite_loss_are_counted_not_drawn(run: dict[str, Any], out: Path) -> None:
    metrics = Path(run["stages"]["train"]["folder"]) / "metrics.jsonl"
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    for step in steps[100:103]:
        step["loss"] = step["grad_norm"] = None
    metrics.write_text("".join(json.dumps(step) + "\n" for step in steps))
    _, page = report(run, out)
    assert "3 of 1,068 steps had no finite loss and are not drawn." in page.words
    assert bucket_means([1, 2, 3], [5.0, None, 7.0]) == ([1, 3], [5.0, 7.0])


def test_the_report_tells_how_to_make_the_run_again(run: dict[str, Any], out: Path) -> None:
    summary, page = report(run, out)
    assert "Do it again mtnlg run quickstart Recipe name: quickstart seed: 1234" in page.words
    assert summary["stages"][3]["key"] == "3" * 64
    assert "evaluate 555555555555" in page.words
    assert "cores 2 memory 24.0 GB accelerators none" in page.words


def test_summary_json_is_as_documented(run: dict[str, Any], out: Path) -> None:
    summary, _ = report(run, out)
    documents = Path(__file__).parents[2] / "docs" / "formats.md"
    section = documents.read_text(encoding="utf-8").split("## report", 1)[1]
    undocumented = [key for key in summary if f"`{key}`" not in section]
    assert undocumented == []
    for name in ("language_models", "scores", "samples", "stages"):
        assert [key for key in summary[name][0] if f"`{key}`" not in section] == []


@pytest.mark.parametrize(
    ("share", "n", "low", "high"),
    [  # Newcombe 1998, table I, method 3
        (81 / 263, 263, 0.2553, 0.3662),
        (15 / 148, 148, 0.0624, 0.1605),
        (0 / 20, 20, 0.0000, 0.1611),
        (1 / 29, 29, 0.0061, 0.1718),
    ],
)
def test_intervals_equal_the_published_ones(share: float, n: int, low: float, high: float) -> None:
    assert wilson_interval(share, n) == pytest.approx((low, high), abs=5e-5)


def test_a_long_curve_is_drawn_through_means_that_keep_its_level() -> None:
    x, y = bucket_means(list(range(1000)), [float(i % 2) for i in range(1000)])
    assert len(x) <= 400
    assert x[0] == pytest.approx(1.0) and y[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_count(1_093_632), "1.09 M"),
        (format_count(15_372), "15.4 k"),
        (format_count(5932.4), "5,932"),
        (format_count(999_999), "1.00 M"),
        (format_bytes(300_800), "301 kB"),
        (format_bytes(21_040_000), "21.0 MB"),
        (format_bytes(999_960_000), "1.00 GB"),
        (format_duration(0.42), "0.4 s"),
        (format_duration(250), "4 min 10 s"),
        (format_duration(59.7), "1 min 00 s"),
        (format_duration(7_380), "2 h 03 min"),
        (format_percent(0.1734), "17.3 %"),
    ],
)
def test_numbers_carry_three_digits_and_a_unit(shown: str, expected: str) -> None:
    assert shown == expected


if __name__ == "__main__":
    import sys

    target = Path(sys.argv[1])  # to look at the page by eye
    write_report(make_run(target / "stages"), target)
