"""Makes the tasks from held-out documents, as files that lm-evaluation-harness reads.

- At most one item a document; no two items with equal text; no few-shot example equal to an item.
- Items depend on the held-out documents and the seed alone: not on the model, its tokenizer or
  its context, so scores of different models are of the same items.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from evaluation import cloze, continuation
from evaluation.held_out_documents import HeldOut

MIN_ITEMS = 30
"""With fewer, the standard error of a share is above 9 points: no score."""

_MAX_EXAMPLES = 64
_MAX_ENDINGS = 1024
"""Wrong choices are drawn from so many documents at most: the work grows with this times items."""

_LOADER = Path(__file__).with_name("read_items.py")

Item = dict[str, Any]


@dataclass(frozen=True)
class TaskFiles:
    """One task, written.

    Attributes:
        folder: what to give to lm-eval as include path.
        name: of the task.
        version: raised whenever the items or the prompt of a task change.
        items: in the order in which they are asked.
        examples: the few-shot pool.
        data_sha256: digest of the file of items.
    """

    folder: Path
    name: str
    version: float
    items: Sequence[Item]
    examples: Sequence[Item]
    data_sha256: str


def write_tasks(
    names: Sequence[str], curated: Path, folder: Path, *, num_items: int, max_shots: int, seed: int
) -> dict[str, TaskFiles]:
    """Make and write tasks.

    Args:
        names: "cloze", "continuation".
        curated: folder of the stage `curate`.
        folder: where to write; made here.
        num_items: items a task, or fewer where there are no more.
        max_shots: most few-shot examples that a prompt will have.
        seed: fixes the choice.

    Raises:
        ValueError: fewer than MIN_ITEMS items, or too few examples, can be made.
    """
    held_out = HeldOut(curated, seed)
    folder.mkdir()
    shutil.copyfile(_LOADER, folder / _LOADER.name)
    makers = {"cloze": (cloze.TASK, _cloze), "continuation": (continuation.TASK, _continuation)}
    written = {}
    for name in names:
        task, make = makers[name]
        items, examples = make(held_out, num_items, seed)
        _check(name, len(items), len(examples), max_shots, held_out.num_documents)
        written[name] = _write(task, folder, items, examples)
    return written


def _cloze(held_out: HeldOut, num_items: int, seed: int) -> tuple[list[Item], list[Item]]:
    documents = held_out.documents(few_shot=False)
    items = _distinct((cloze.make_item(d, cloze.LENGTH, seed) for d in documents), num_items)
    documents = held_out.documents(few_shot=True)
    examples = (cloze.make_item(d, cloze.SHOT_LENGTH, seed) for d in documents)
    return items, _distinct(examples, _MAX_EXAMPLES, items)


def _continuation(held_out: HeldOut, num_items: int, seed: int) -> tuple[list[Item], list[Item]]:
    documents = held_out.documents(few_shot=False)
    found = (continuation.make_cut(document, seed) for document in documents)
    cuts = list(islice(filter(None, found), max(_MAX_ENDINGS, num_items)))
    made = (continuation.make_item(cut, cuts[:_MAX_ENDINGS], seed) for cut in cuts)
    items = _distinct(made, num_items)
    documents = held_out.documents(few_shot=True)
    examples = (continuation.make_example(document, seed) for document in documents)
    return items, _distinct(examples, _MAX_EXAMPLES, items)


def _distinct(made: Iterable[Item | None], limit: int, others: Sequence[Item] = ()) -> list[Item]:
    """The first items of a text of their own; boilerplate may stand in several documents."""
    taken = {_text(item) for item in others}
    items: list[Item] = []
    for item in made:
        if item is None or _text(item) in taken:
            continue
        taken.add(_text(item))
        items.append(item)
        if len(items) == limit:
            break
    return items


def _text(item: Item) -> str:
    right = item["target"] if "target" in item else f" {item['choices'][item['answer']]}"
    return " ".join(f"{item['context']}{right}".split())


def _check(name: str, items: int, examples: int, max_shots: int, documents: int) -> None:
    remedy = "Raise curation.held_out_fraction, or bring more text of whole sentences."
    if items < MIN_ITEMS:
        raise ValueError(
            f"{name}: {documents} held-out documents give {items} items, and a score needs "
            f"{MIN_ITEMS}. {remedy} Or leave {name} out of evaluation.tasks."
        )
    if examples < max_shots:
        raise ValueError(
            f"{name}: evaluation.num_shots asks for {max_shots} examples in a prompt, and the "
            f"held-out documents set apart for examples give {examples}. {remedy} "
            "Or ask for fewer shots."
        )


def _write(
    task: dict[str, Any], folder: Path, items: Sequence[Item], examples: Sequence[Item]
) -> TaskFiles:
    name = task["task"]
    files = {"items": f"{name}.jsonl", "few_shot": f"{name}.few_shot.jsonl"}
    for split, rows in (("items", items), ("few_shot", examples)):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (folder / files[split]).write_text("".join(lines), encoding="utf-8", newline="\n")
    settings = {
        **task,
        "test_split": "items",
        "fewshot_split": "few_shot",
        "dataset_kwargs": files,
    }
    text = yaml.safe_dump(settings, sort_keys=True)
    # A tag that only lm-eval's own loader knows.
    text += "custom_dataset: !function read_items.read_items\n"
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8", newline="\n")
    digest = hashlib.sha256((folder / files["items"]).read_bytes()).hexdigest()
    version = task["metadata"]["version"]
    return TaskFiles(folder, name, version, items, examples, digest)
