from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean_stderr
from lm_eval.api.model import LM

from evaluation.baselines import NgramBaseline, Question, share_chosen
from evaluation.harness import run_task
from evaluation.ngram import NgramModel
from evaluation.scores import mean, perplexity
from evaluation.task_files import TaskFiles, write_tasks


class PlantedModel(LM):
    """Answers by a rule of the item, so that its accuracy is known beforehand."""

    def __init__(self, answer: Callable[[Instance], tuple[float, bool]]) -> None:
        super().__init__()
        self._answer = answer
        self.prompts: list[str] = []

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        self.prompts += [request.args[0] for request in requests]
        return [self._answer(request) for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError

    def generate_until(self, requests: list[Instance]) -> list[str]:
        raise NotImplementedError


@pytest.fixture(scope="module")
def tasks(curated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TaskFiles]:
    folder = tmp_path_factory.mktemp("made") / "tasks"
    return write_tasks(
        ["cloze", "continuation"], curated, folder, num_items=60, max_shots=4, seed=1234
    )


def _ask(model: LM, task: TaskFiles, num_shots: int = 0, seed: int = 1234) -> list[dict[str, Any]]:
    return run_task(model, task.folder, task.name, num_shots=num_shots, seed=seed)


def _share(samples: list[dict[str, Any]], metric: str) -> float:
    return sum(sample[metric] for sample in samples) / len(samples)


def test_a_model_that_knows_the_answers_is_always_right(tasks: dict[str, TaskFiles]) -> None:
    def knows(request: Instance) -> tuple[float, bool]:
        right = request.idx == request.doc["answer"]
        return (-1.0, True) if right else (-100.0, False)

    samples = _ask(PlantedModel(knows), tasks["continuation"])
    assert _share(samples, "acc") == _share(samples, "acc_norm") == 1
    assert [s["doc"]["id"] for s in samples] == [i["id"] for i in tasks["continuation"].items]


def test_a_model_that_prefers_the_first_choice_is_right_where_that_is_the_answer(
    tasks: dict[str, TaskFiles],
) -> None:
    samples = _ask(PlantedModel(lambda request: (-1.0 - request.idx, False)), tasks["continuation"])
    answers = [item["answer"] for item in tasks["continuation"].items]
    assert _share(samples, "acc") == answers.count(0) / len(answers)


def test_normalized_accuracy_divides_by_the_characters_of_a_choice(
    tasks: dict[str, TaskFiles],
) -> None:
    samples = _ask(PlantedModel(lambda request: (-1.0, False)), tasks["continuation"])
    items = tasks["continuation"].items
    longest = [np.argmax([len(choice) for choice in item["choices"]]) for item in items]
    right = [int(i == item["answer"]) for i, item in zip(longest, items, strict=True)]
    assert [int(sample["acc_norm"]) for sample in samples] == right


def test_cloze_counts_greedy_answers_and_keeps_log_likelihoods(
    tasks: dict[str, TaskFiles],
) -> None:
    items = tasks["cloze"].items
    known = {item["id"] for item in items[:15]}
    model = PlantedModel(lambda request: (-2.0, request.doc["id"] in known))
    samples = _ask(model, tasks["cloze"])
    assert _share(samples, "acc") == 15 / len(items)
    assert {sample["perplexity"] for sample in samples} == {-2.0}
    assert model.prompts == [item["context"] for item in items]


@pytest.mark.parametrize("name", ["cloze", "continuation"])
def test_prompts_hold_examples_of_the_pool_before_the_item(
    tasks: dict[str, TaskFiles], name: str
) -> None:
    task = tasks[name]
    shown = {
        f"{e['context']}{e['target']}"
        if name == "cloze"
        else f"{e['context']} {e['choices'][e['answer']]}"
        for e in task.examples
    }
    model = PlantedModel(lambda request: (-1.0, False))
    samples = _ask(model, task, num_shots=4)
    for sample in samples:
        *examples, item = sample["arguments"][0][0].split("\n\n")
        assert len(examples) == len(set(examples)) == 4
        assert set(examples) <= shown
        assert item == sample["doc"]["context"]
    again = _ask(model, task, num_shots=4)
    assert [s["arguments"] for s in again] == [s["arguments"] for s in samples]
    other = _ask(model, task, num_shots=4, seed=1)
    assert [s["arguments"] for s in other] != [s["arguments"] for s in samples]


def test_asking_says_nothing_and_leaves_the_task_folder_alone(
    tasks: dict[str, TaskFiles], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tasks["cloze"].folder
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*"))}
    _ask(PlantedModel(lambda request: (-1.0, False)), tasks["cloze"], num_shots=1)
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*"))} == before
    assert capfd.readouterr() == ("", "")


def test_the_standard_error_of_a_share_is_lm_evals() -> None:
    values = np.array([1.0] * 3 + [0.0] * 7)
    value, stderr = mean(values)
    assert value == pytest.approx(0.3)
    assert stderr == pytest.approx(math.sqrt(0.3 * 0.7 / 9))
    assert stderr == pytest.approx(mean_stderr(values.tolist()))


def test_the_standard_error_of_perplexity_agrees_with_the_bootstrap() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(-2.0, 0.5, size=400)
    value, stderr = perplexity(values)
    assert value == pytest.approx(math.exp(-values.mean()))
    resampled = [math.exp(-draw.choice(values, 400).mean()) for _ in range(4000)]
    assert stderr == pytest.approx(np.std(resampled, ddof=1), rel=0.05)


def test_a_bigram_model_answers_by_its_counts() -> None:
    # 1 is followed by 2 twice and by 3 once; 2 always by 4.
    windows = np.array([[1, 2, 4, 0], [0, 1, 2, 4], [0, 0, 1, 3]])
    bigram = NgramBaseline("bigram", NgramModel.fit(windows, 2, 5))
    assert bigram.says([0, 1], [2, 4])
    assert not bigram.says([0, 1], [3])
    assert not bigram.says([0, 1], [2, 3])
    assert bigram.says([9 % 5, 0, 1], [2])
    question = Question(requests=[([0, 1], [3]), ([0, 1], [2])], lengths=[1, 1], answer=1)
    assert share_chosen([question], [bigram.log_likelihoods(question)]) == 1


def test_ties_go_to_the_first_choice() -> None:
    question = Question(requests=[], lengths=[3, 3], answer=0)
    assert share_chosen([question], [np.array([-1.0, -1.0])]) == 1
