from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation import cloze, continuation
from evaluation.held_out_documents import Document, HeldOut, is_few_shot
from evaluation.passages import Length, passages
from evaluation.task_files import TaskFiles, write_tasks

SEED = 1234


def _tasks(curated: Path, folder: Path, **changes: Any) -> dict[str, TaskFiles]:
    settings: dict[str, Any] = {"num_items": 300, "max_shots": 4, "seed": SEED, **changes}
    return write_tasks(["cloze", "continuation"], curated, folder, **settings)


def _curated(folder: Path, documents: list[dict[str, str]]) -> Path:
    (folder / "held_out").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(documents), folder / "held_out" / "part-00000.parquet")
    return folder


@pytest.fixture(scope="module")
def tasks(curated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TaskFiles]:
    return _tasks(curated, tmp_path_factory.mktemp("made") / "tasks")


@pytest.fixture(scope="module")
def by_id(held_out_documents: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    return {document["id"]: document for document in held_out_documents}


def test_passages_are_the_longest_runs_of_whole_sentences_within_bounds() -> None:
    text = "One two three. Four five. Six seven\neight nine.\n\nTen eleven, e.g. twelve."
    found = [p.text for p in passages(text, Length(3, 6, 100))]
    assert found == [
        "One two three.",
        "One two three. Four five.",
        "Four five. Six seven\neight nine.",
        "Ten eleven, e.g. twelve.",
    ]
    assert [p.text for p in passages(text, Length(3, 6, 24))] == [
        "One two three.",
        "Six seven\neight nine.",
        "Ten eleven, e.g. twelve.",
    ]


def test_every_item_stands_in_its_held_out_document(
    tasks: dict[str, TaskFiles], by_id: dict[str, dict[str, str]]
) -> None:
    for item in tasks["cloze"].items:
        assert item["context"] + item["target"] + "." in by_id[item["id"]]["text"]
        assert item["target"][1:].islower()
        assert len(item["target"]) >= 4
        assert 15 <= len(item["context"].split()) <= 40
    for item in tasks["continuation"].items:
        right = item["choices"][item["answer"]]
        assert f"{item['context']} {right}" in by_id[item["id"]]["text"]


def test_a_document_gives_one_item_at_most_and_in_a_fixed_order(
    tasks: dict[str, TaskFiles], curated: Path, tmp_path: Path
) -> None:
    again = _tasks(curated, tmp_path / "tasks")
    for name, task in tasks.items():
        ids = [item["id"] for item in task.items]
        assert len(set(ids)) == len(ids) > 60
        assert again[name].items == task.items
        assert again[name].data_sha256 == task.data_sha256


def test_fewer_items_are_the_first_of_more(
    tasks: dict[str, TaskFiles], curated: Path, tmp_path: Path
) -> None:
    for name, task in _tasks(curated, tmp_path / "tasks", num_items=40).items():
        assert task.items == tasks[name].items[:40]


def test_another_seed_gives_other_items(
    tasks: dict[str, TaskFiles], curated: Path, tmp_path: Path
) -> None:
    for name, task in _tasks(curated, tmp_path / "tasks", seed=1).items():
        assert task.items != tasks[name].items


def test_a_new_document_moves_no_item(
    tasks: dict[str, TaskFiles], held_out_documents: list[dict[str, str]], tmp_path: Path
) -> None:
    fewer = _tasks(_curated(tmp_path / "curated", held_out_documents[:100]), tmp_path / "tasks")
    kept = {document["id"] for document in held_out_documents[:100]}
    assert fewer["cloze"].items == [i for i in tasks["cloze"].items if i["id"] in kept]
    contexts = [i["context"] for i in tasks["continuation"].items if i["id"] in kept]
    assert [item["context"] for item in fewer["continuation"].items] == contexts


def test_examples_come_from_groups_that_give_no_item(
    tasks: dict[str, TaskFiles], by_id: dict[str, dict[str, str]]
) -> None:
    for task in tasks.values():
        of_items = {by_id[item["id"]]["group"] for item in task.items}
        of_examples = {by_id[example["id"]]["group"] for example in task.examples}
        assert of_examples
        assert not of_items & of_examples


def test_wrong_choices_differ_and_come_from_other_groups(
    tasks: dict[str, TaskFiles],
    held_out_documents: list[dict[str, str]],
    by_id: dict[str, dict[str, str]],
) -> None:
    answers = []
    for item in tasks["continuation"].items:
        assert len(set(item["choices"])) == continuation.NUM_CHOICES
        answers.append(item["answer"])
        right = len(item["choices"][item["answer"]])
        for number, choice in enumerate(item["choices"]):
            assert abs(len(choice) - right) <= 0.25 * right
            if number != item["answer"]:
                groups = {d["group"] for d in held_out_documents if choice in d["text"]}
                assert groups - {by_id[item["id"]]["group"]}
    assert {answers.count(place) > len(answers) // 8 for place in range(4)} == {True}


def test_equal_texts_give_one_item(
    held_out_documents: list[dict[str, str]], tmp_path: Path
) -> None:
    copies = [
        {**document, "id": f"{number:032x}", "group": f"copy-{number}"}
        for number, document in enumerate(held_out_documents)
    ]
    curated = _curated(tmp_path / "curated", [*held_out_documents, *copies])
    for task in _tasks(curated, tmp_path / "tasks").values():
        texts = [item["context"] for item in [*task.items, *task.examples]]
        assert len(set(texts)) == len(texts)


def test_a_document_that_stands_twice_is_refused_by_its_id(
    held_out_documents: list[dict[str, str]], tmp_path: Path
) -> None:
    curated = _curated(tmp_path, [*held_out_documents, held_out_documents[7]])
    with pytest.raises(ValueError, match=held_out_documents[7]["id"]):
        HeldOut(curated, SEED)


def test_too_few_items_are_refused_with_the_counts(
    held_out_documents: list[dict[str, str]], tmp_path: Path
) -> None:
    few = _curated(tmp_path / "curated", held_out_documents[:20])
    with pytest.raises(ValueError, match=r"cloze: 20 held-out documents give \d+ items.* 30"):
        _tasks(few, tmp_path / "tasks")


def test_too_few_examples_are_refused_with_the_counts(curated: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"asks for 200 examples .* give \d+"):
        _tasks(curated, tmp_path / "tasks", max_shots=200)


def test_no_held_out_documents_are_refused_by_the_folders_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="held_out"):
        HeldOut(tmp_path, SEED)


def test_about_an_eighth_of_the_groups_give_examples() -> None:
    share = sum(is_few_shot(f"group-{i}", SEED) for i in range(8000)) / 8000
    assert share == pytest.approx(1 / 8, abs=0.015)


def test_a_word_with_markup_is_no_target() -> None:
    sentence = "This sentence has enough words before the last one, which is {}."
    for word, expected in (("plain", " plain"), ("``code``", None), ("Name", None), ("x2y", None)):
        document = Document("id", "group", sentence.format(word))
        item = cloze.make_item(document, Length(5, 40, 200), SEED)
        assert (item and item["target"]) == expected


def test_task_files_hold_no_path_of_this_machine(
    tasks: dict[str, TaskFiles], tmp_path: Path
) -> None:
    folder = tasks["cloze"].folder
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "cloze.few_shot.jsonl",
        "cloze.jsonl",
        "cloze.yaml",
        "continuation.few_shot.jsonl",
        "continuation.jsonl",
        "continuation.yaml",
        "read_items.py",
    ]
    for path in folder.iterdir():
        assert str(folder.parent) not in path.read_text(encoding="utf-8")
    lines = (folder / "cloze.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in lines if line] == tasks["cloze"].items
