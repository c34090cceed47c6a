from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2LMHeadModel

from evaluation.generation import continue_prompt, generate
from evaluation.language_model import LanguageModel

SAMPLING: dict[str, Any] = {
    "max_new_tokens": 12,
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.95,
    "seed": 7,
}
GREEDY = {**SAMPLING, "temperature": 0.0}


@pytest.fixture(scope="module")
def model(random_gpt2: Path) -> LanguageModel:
    return LanguageModel.load(random_gpt2)


def _always(token: int) -> Any:
    """Plants a model that always says one token."""

    def change(gpt2: GPT2LMHeadModel) -> None:
        gpt2.transformer.ln_f.weight.zero_()
        gpt2.transformer.ln_f.bias.fill_(1.0)
        gpt2.transformer.wte.weight[token] = 50.0

    return change


def test_at_temperature_0_each_token_is_the_likeliest(model: LanguageModel) -> None:
    tokens = model.tok_encode("Some words")
    start = len(tokens)
    with torch.inference_mode():
        for _ in range(12):
            tokens.append(int(model.gpt2(torch.tensor([tokens])).logits[0, -1].argmax()))
    found = continue_prompt(model, "Some words", **GREEDY)
    assert found.text == model.tokenizer.decode(tokens[start:])
    assert found.stopped_by == "max_new_tokens"


def test_equal_seeds_give_equal_text_and_others_do_not(model: LanguageModel) -> None:
    torch.manual_seed(1)
    first = continue_prompt(model, "Some words", **SAMPLING)
    torch.manual_seed(2)
    assert continue_prompt(model, "Some words", **SAMPLING) == first
    assert continue_prompt(model, "Some words", **{**SAMPLING, "seed": 8}) != first


def test_sampling_leaves_the_callers_random_numbers_alone(model: LanguageModel) -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    continue_prompt(model, "Some words", **SAMPLING)
    assert torch.equal(torch.rand(4), expected)


def test_a_prompt_is_continued_alike_beside_others(random_gpt2: Path) -> None:
    alone = generate(random_gpt2, ["Some words"], **SAMPLING)
    assert generate(random_gpt2, ["Another prompt", "Some words"], **SAMPLING)[1:] == alone


def test_top_k_of_1_is_greedy(model: LanguageModel) -> None:
    expected = continue_prompt(model, "Some words", **GREEDY)
    assert continue_prompt(model, "Some words", **{**SAMPLING, "top_k": 1}) == expected


def test_text_ends_at_end_of_text_and_does_not_show_it(export_gpt2) -> None:
    model = LanguageModel.load(export_gpt2(_always(0)))
    found = continue_prompt(model, "Some words", **GREEDY)
    assert (found.text, found.stopped_by) == ("", "end_of_text")


def test_text_ends_with_the_context_and_says_so(export_gpt2) -> None:
    model = LanguageModel.load(export_gpt2(_always(65)))
    prompt = "Some words"
    room = 128 - len(model.tok_encode(prompt))
    found = continue_prompt(model, prompt, **{**GREEDY, "max_new_tokens": 500})
    assert found.text == model.tokenizer.decode([65]) * room
    assert found.stopped_by == "context"


def test_a_prompt_that_fills_the_context_is_refused(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="128 positions"):
        continue_prompt(model, "z" * 128, **SAMPLING)


def test_an_empty_prompt_starts_a_document(model: LanguageModel) -> None:
    assert continue_prompt(model, "", **GREEDY).text


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", -1.0),
        ("temperature", 1e-300),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("max_new_tokens", 0),
        ("seed", 2**63),
    ],
)
def test_settings_out_of_range_are_refused(model: LanguageModel, setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=setting):
        continue_prompt(model, "Some words", **{**SAMPLING, setting: value})


@pytest.mark.parametrize("settings", [SAMPLING, GREEDY])
def test_a_model_that_diverged_is_refused(export_gpt2, settings: dict[str, Any]) -> None:
    model = LanguageModel.load(export_gpt2(lambda gpt2: gpt2.transformer.ln_f.bias.fill_(math.nan)))
    with pytest.raises(ValueError, match="not finite"):
        continue_prompt(model, "Some words", **settings)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_model_folder_is_refused_by_name(random_gpt2: Path, tmp_path: Path, name: str):
    folder = tmp_path / "model"
    shutil.copytree(random_gpt2, folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:10])
    with pytest.raises(ValueError, match=f"{folder} holds no readable GPT-2 model"):
        LanguageModel.load(folder)
