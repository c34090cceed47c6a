from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.config import EvaluationConfig
from evaluation.evaluate import evaluate
from evaluation.ngram import NgramModel
from evaluation.token_windows import read_windows

CONFIG = EvaluationConfig(num_shots=(0, 2), num_items=40, prompts=("Some words",))


def _evaluate(model: Path, tokenized: Path, curated: Path, trained: Path, out: Path) -> Any:
    out.mkdir()
    notes: list[tuple[float, float | None, str]] = []
    figures = evaluate(
        CONFIG,
        model,
        tokenized,
        curated,
        trained,
        out,
        seed=1234,
        progress=lambda *note: notes.append(note),
    )
    return figures, notes


@pytest.fixture(scope="module")
def run(
    random_gpt2: Path,
    tokenized: Path,
    curated: Path,
    trained: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, Any], Any]:
    out = tmp_path_factory.mktemp("evaluated") / "out"
    said = _evaluate(random_gpt2, tokenized, curated, trained, out)
    return out, json.loads((out / "results.json").read_text(encoding="utf-8")), said


def test_every_score_says_what_it_is_of(run: tuple[Path, dict[str, Any], Any]) -> None:
    _, results, _ = run
    assert results["harness"].startswith("lm_eval 0.4.")
    keys = [(s["task"], s["metric"], s["num_shots"]) for s in results["scores"]]
    assert keys == [
        ("cloze", "acc", 0),
        ("cloze", "acc", 2),
        ("continuation", "acc", 0),
        ("continuation", "acc_norm", 0),
        ("continuation", "acc", 2),
        ("continuation", "acc_norm", 2),
    ]
    for score in results["scores"]:
        assert 0 <= score["value"] <= 1
        assert score["n"] == 40
        p = score["value"]
        assert score["stderr"] == pytest.approx(math.sqrt(p * (1 - p) / 39))
        assert (score["split"], score["seed"], score["task_version"]) == ("held_out", 1234, 1.0)
        names = [baseline["name"] for baseline in score["baselines"]]
        assert names[:3] == ["unigram", "bigram", "trigram"]
        assert names[3:] == ([] if score["task"] == "cloze" else ["longest"])
        assert len(score["data_sha256"]) == 64
    assert {s["chance"] for s in results["scores"] if s["task"] == "continuation"} == {0.25}


def test_scores_are_those_of_the_items_on_disk(run: tuple[Path, dict[str, Any], Any]) -> None:
    out, results, _ = run
    for score in results["scores"]:
        file = out / "items" / f"{score['task']}-{score['num_shots']}.jsonl"
        items = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        assert len(items) == score["n"]
        right = [item[score["metric"]] for item in items]
        assert score["value"] == pytest.approx(sum(right) / len(right))
        if score["metric"] == "acc" and score["task"] == "continuation":
            chosen = [int(np.argmax(item["log_likelihoods"])) for item in items]
            answers = [item["answer"] for item in items]
            assert right == [int(c == a) for c, a in zip(chosen, answers, strict=True)]
    for score in results["word_perplexities"]:
        file = out / "items" / f"cloze-{score['num_shots']}.jsonl"
        items = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        nats = [item["log_likelihoods"][0] for item in items]
        assert score["value"] == pytest.approx(math.exp(-sum(nats) / len(nats)))
        assert score["chance"] is None


def test_no_item_is_of_a_document_of_training(
    run: tuple[Path, dict[str, Any], Any],
    held_out_documents: list[dict[str, str]],
) -> None:
    out, _, _ = run
    held_out = {document["id"] for document in held_out_documents}
    files = [*(out / "items").iterdir(), *(out / "tasks").glob("*.jsonl")]
    assert len(files) == 8
    for file in files:
        lines = file.read_text(encoding="utf-8").split("\n")
        assert {json.loads(line)["id"] for line in lines if line} <= held_out


def test_the_model_and_the_ngram_models_predict_the_same_tokens(
    run: tuple[Path, dict[str, Any], Any], tokenized: Path, trained: Path
) -> None:
    _, results, (figures, _) = run
    held_out = results["held_out"]
    windows = read_windows(tokenized, "held_out", 64)
    assert held_out["num_tokens"] == windows[:, 1:].size
    for row, order in zip(results["language_models"], (1, 2, 3), strict=True):
        assert (row["num_tokens"], row["num_bytes"]) == (
            held_out["num_tokens"],
            held_out["num_bytes"],
        )
        seen = np.sort(np.load(trained / "seen_samples.npy"))
        fitted = NgramModel.fit(read_windows(tokenized, "train", 64, seen), order, 700)
        assert row["nats_per_token"] == pytest.approx(fitted.nats_per_token(windows))
        bits = row["nats_per_token"] * row["num_tokens"] / math.log(2) / row["num_bytes"]
        assert row["bits_per_byte"] == pytest.approx(bits)
    assert figures["nats_per_token"] == round(held_out["nats_per_token"], 4)


def test_progress_goes_from_nothing_to_all(run: tuple[Path, dict[str, Any], Any]) -> None:
    _, _, (_, notes) = run
    assert [done for done, _, _ in notes] == list(range(8))
    assert {total for _, total, _ in notes} == {7}


def test_two_runs_write_the_same_bytes(
    run: tuple[Path, dict[str, Any], Any],
    random_gpt2: Path,
    tokenized: Path,
    curated: Path,
    trained: Path,
    tmp_path: Path,
) -> None:
    out, _, _ = run
    _evaluate(random_gpt2, tokenized, curated, trained, tmp_path / "again")
    files = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    again = tmp_path / "again"
    assert files == sorted(p.relative_to(again) for p in again.rglob("*") if p.is_file())
    for file in files:
        assert (again / file).read_bytes() == (out / file).read_bytes(), file


def test_shards_of_another_tokenizer_are_refused_with_both_digests(
    random_gpt2: Path, tokenized: Path, curated: Path, trained: Path, tmp_path: Path
) -> None:
    other = tmp_path / "tokenized"
    other.mkdir()
    shards = json.loads((tokenized / "shards.json").read_text())
    expected = shards["tokenizer_sha256"]
    (other / "shards.json").write_text(json.dumps({**shards, "tokenizer_sha256": "0" * 64}))
    with pytest.raises(ValueError, match=f"{expected}.*{'0' * 64}"):
        _evaluate(random_gpt2, other, curated, trained, tmp_path / "out")


def test_a_model_that_diverged_gets_no_scores(
    export_gpt2: Any, tokenized: Path, curated: Path, trained: Path, tmp_path: Path
) -> None:
    broken = export_gpt2(lambda gpt2: gpt2.transformer.h[0].ln_1.weight.fill_(math.inf))
    with pytest.raises(ValueError, match="not finite"):
        _evaluate(broken, tokenized, curated, trained, tmp_path / "out")
    assert not (tmp_path / "out" / "results.json").exists()
