"""Continues prompts with a trained model.

The text of a prompt depends on the model, the settings, the seed and the prompt alone: not on the
prompts beside it, nor on what was drawn before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import LogitsProcessorList

from evaluation.language_model import LanguageModel


class SettingsError(ValueError):
    """What was asked for cannot be sampled, whatever the model."""


@dataclass(frozen=True)
class Continuation:
    """What a model wrote after a prompt.

    Attributes:
        text: without the prompt and without end-of-text.
        stopped_by: what ended it: the model's end-of-text, the number of tokens asked for, or the
            end of the model's context.
    """

    text: str
    stopped_by: Literal["end_of_text", "max_new_tokens", "context"]


def generate(
    model_folder: Path,
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
) -> list[str]:
    """Continue each prompt with the model of a Hugging Face GPT-2 folder. See `continue_prompt`."""
    model = LanguageModel.load(model_folder)
    return [
        continue_prompt(
            model,
            prompt,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        ).text
        for prompt in prompts
    ]


@torch.inference_mode()
def continue_prompt(
    model: LanguageModel,
    prompt: str,
    *,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
) -> Continuation:
    """Sample what follows a prompt.

    Args:
        model: the model.
        prompt: the text to continue; empty for the start of a document.
        max_new_tokens: most tokens to write; fewer where the model's context ends.
        temperature: 0 always takes the likeliest token.
        top_k: sample from so many likeliest tokens; 0 for all.
        top_p: sample from the likeliest tokens of so much probability; 1 for all.
        seed: equal seeds give equal text.

    Raises:
        SettingsError: a setting is out of range, or the prompt leaves no room in the context.
        ValueError: the model's logits are not finite.
    """
    _check_settings(max_new_tokens, temperature, top_k, top_p, seed)
    tokens = model.tok_encode(prompt) or [model.eot_token_id]
    room = model.max_length - len(tokens)
    if room < 1:
        raise SettingsError(
            f"the prompt {prompt[:60]!r} takes {len(tokens)} tokens and the model has "
            f"{model.max_length} positions, so nothing can follow. Shorten the prompt."
        )
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {
            "do_sample": True,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
        }
    tokens_1T = torch.tensor([tokens], device=model.gpt2.device)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        generated_1T = model.gpt2.generate(
            tokens_1T,
            attention_mask=torch.ones_like(tokens_1T),
            max_new_tokens=min(max_new_tokens, room),
            eos_token_id=model.eot_token_id,
            pad_token_id=model.eot_token_id,
            logits_processor=LogitsProcessorList([lambda _tokens, logits: model.finite(logits)]),
            **sampling,
        )
    new = generated_1T[0, len(tokens) :].tolist()
    if new[-1] == model.eot_token_id:
        return Continuation(model.tokenizer.decode(new[:-1]), "end_of_text")
    stopped_by: Literal["max_new_tokens", "context"] = (
        "max_new_tokens" if max_new_tokens <= room else "context"
    )
    return Continuation(model.tokenizer.decode(new), stopped_by)


def _check_settings(
    max_new_tokens: int, temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    for name, value, allowed, remedy in (
        ("max_new_tokens", max_new_tokens, max_new_tokens >= 1, "give 1 or more"),
        # Logits divided by less than this may overflow.
        (
            "temperature",
            temperature,
            temperature == 0 or 1e-3 <= temperature <= 1e6,
            "give 0 for the likeliest token, or 0.001 to 1000000",
        ),
        ("top_k", top_k, top_k >= 0, "give 0 for all tokens, or how many"),
        ("top_p", top_p, 0 < top_p <= 1, "give more than 0, and 1 at most"),
        ("seed", seed, 0 <= seed < 2**63, "give 0 to 2^63 - 1"),
    ):
        if not allowed:
            raise SettingsError(f"{name} = {value} is out of range; {remedy}")
