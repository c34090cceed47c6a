from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance

from evaluation.language_model import LanguageModel

Pair = tuple[str, str]


def _requests(kind: str, arguments: list[tuple[object, ...]]) -> list[Instance]:
    return [Instance(kind, {}, args, i) for i, args in enumerate(arguments)]


@pytest.fixture(scope="module")
def pairs(held_out_documents: list[dict[str, str]]) -> list[Pair]:
    """Short and long, alone and with a shared context, cut by chance, some too long."""
    draw = random.Random(1)
    pairs = []
    for document in held_out_documents[:40]:
        text = document["text"]
        start = draw.randrange(80)
        cut = min(start + draw.choice([1, 20, 90, 300, 420]), len(text) - 60)
        context = text[start:cut]
        pairs += [(context, text[cut : cut + n]) for n in draw.sample(range(1, 60), k=3)]
    pairs += [("", "Nothing before."), ("ends in spaces  ", "word"), ("a\n\nb", "\n\nc")]
    draw.shuffle(pairs)
    return pairs


@pytest.fixture(scope="module")
def lm_eval_backend(random_gpt2: Path) -> Any:
    pytest.importorskip("accelerate", reason="lm-eval's own backend needs lm-eval[hf]")
    from lm_eval.models.huggingface import HFLM

    return HFLM(
        pretrained=str(random_gpt2), dtype="float32", device="cpu", batch_size=4, max_length=128
    )


def _score(folder: Path, pairs: list[Pair], batch_size: int = 16) -> list[tuple[float, bool]]:
    model = LanguageModel.load(folder, batch_size=batch_size)
    return model.loglikelihood(_requests("loglikelihood", list(pairs)))


def test_every_log_likelihood_equals_that_of_the_pair_alone(
    random_gpt2: Path, pairs: list[Pair]
) -> None:
    model = LanguageModel.load(random_gpt2)
    ours = _score(random_gpt2, pairs)
    for pair, (nats, greedy) in zip(pairs, ours, strict=True):
        context, continuation = model.encode_pair(*pair)
        tokens = [*context, *continuation][-129:]
        with torch.inference_mode():
            logits = model.gpt2(torch.tensor([tokens[:-1]])).logits[0, -len(continuation) :]
        expected = logits.log_softmax(-1)[range(len(continuation)), continuation].sum()
        assert nats == pytest.approx(float(expected), abs=1e-3)
        assert greedy == (logits.argmax(-1).tolist() == continuation)


def test_every_log_likelihood_equals_that_of_lm_evals_own_backend(
    random_gpt2: Path, lm_eval_backend: Any, pairs: list[Pair]
) -> None:
    # Theirs dies where one side is left without a token (lm-eval issue 3336).
    pairs = [p for p in pairs if not p[0] or all(lm_eval_backend._encode_pair(*p))]
    assert len(pairs) > 100
    theirs = lm_eval_backend.loglikelihood(
        _requests("loglikelihood", list(pairs)), disable_tqdm=True
    )
    ours = _score(random_gpt2, pairs)
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]
    np.testing.assert_allclose([n for n, _ in ours], [n for n, _ in theirs], atol=1e-3, rtol=0)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_results_depend_neither_on_the_batch_size_nor_on_the_requests_beside(
    random_gpt2: Path, pairs: list[Pair], batch_size: int
) -> None:
    expected = _score(random_gpt2, pairs, batch_size=16)
    found = _score(random_gpt2, pairs[::-1], batch_size=batch_size)[::-1]
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    np.testing.assert_allclose([n for n, _ in found], [n for n, _ in expected], atol=1e-4, rtol=0)


def test_the_likeliest_tokens_are_called_greedy(random_gpt2: Path) -> None:
    model = LanguageModel.load(random_gpt2)
    context = model.tok_encode("Some words to begin with")
    with torch.inference_mode():
        first = int(model.gpt2(torch.tensor([context])).logits[0, -1].argmax())
        second = int(model.gpt2(torch.tensor([[*context, first]])).logits[0, -1].argmax())
    other = (second + 1) % model.gpt2.config.vocab_size
    asked = [(("", ""), context, [first, second]), (("", ""), context, [first, other])]
    assert [greedy for _, greedy in model._loglikelihood_tokens(asked)] == [True, False]


def test_whole_texts_are_scored_as_by_lm_evals_own_backend(
    random_gpt2: Path, lm_eval_backend: Any, held_out_documents: list[dict[str, str]]
) -> None:
    texts = [(held_out_documents[i]["text"][:length],) for i, length in enumerate((30, 200, 600))]
    ours = LanguageModel.load(random_gpt2).loglikelihood_rolling(
        _requests("loglikelihood_rolling", list(texts))
    )
    theirs = lm_eval_backend.loglikelihood_rolling(
        _requests("loglikelihood_rolling", list(texts)), disable_tqdm=True
    )
    np.testing.assert_allclose(ours, theirs, atol=2e-3, rtol=0)


def test_greedy_text_is_cut_before_the_stop_text_as_by_lm_evals_own_backend(
    random_gpt2: Path, lm_eval_backend: Any
) -> None:
    asked = [
        (prompt, {"until": [stop], "max_gen_toks": 12, "do_sample": False})
        for prompt in ("Some words", "The other")
        for stop in ("e", "\n\n")
    ]
    ours = LanguageModel.load(random_gpt2).generate_until(_requests("generate_until", list(asked)))
    theirs = lm_eval_backend.generate_until(
        _requests("generate_until", list(asked)), disable_tqdm=True
    )
    assert ours == theirs


def test_a_prompt_that_does_not_fit_is_scored_by_its_end_and_counted(
    random_gpt2: Path, held_out_documents: list[dict[str, str]]
) -> None:
    text = held_out_documents[0]["text"]
    model = LanguageModel.load(random_gpt2)
    tokens = model.tok_encode(text)
    assert len(tokens) > 140
    fits, too_long = tokens[:129], tokens[:130]
    asked = [(("", ""), t[:-3], t[-3:]) for t in (fits, too_long, too_long[1:])]
    results = model._loglikelihood_tokens(asked)
    assert model.truncated_requests == 1
    assert results[1] == results[2]


def test_a_continuation_that_does_not_fit_is_refused(random_gpt2: Path) -> None:
    model = LanguageModel.load(random_gpt2)
    with pytest.raises(ValueError, match=r"continuation of 129 tokens .* 128 positions"):
        model._loglikelihood_tokens([(("", ""), [1], [2] * 129)])


def test_a_continuation_inside_a_token_is_encoded_alone_and_counted(random_gpt2: Path) -> None:
    model = LanguageModel.load(random_gpt2)
    word = next(
        token
        for token in sorted(model.tokenizer.get_vocab())
        if token.isascii() and token.isalpha() and len(token) == 3
    )
    assert len(model.tok_encode(word)) == 1
    context, continuation = word[:2], word[2:]
    # Without care, nothing would be left: the pair is no longer than its beginning.
    context_tokens, continuation_tokens = model.encode_pair(context, continuation)
    assert context_tokens == model.tok_encode(context)
    assert continuation_tokens == model.tok_encode(continuation)
    assert model.separately_encoded == 1


def test_an_empty_continuation_is_refused(random_gpt2: Path) -> None:
    with pytest.raises(ValueError, match="empty text"):
        _score(random_gpt2, [("Some words", "")])


def test_an_empty_context_stands_for_the_start_of_a_document(random_gpt2: Path) -> None:
    model = LanguageModel.load(random_gpt2)
    tokens = model.tok_encode("Some words")
    with torch.inference_mode():
        logits = model.gpt2(torch.tensor([[0, *tokens[:-1]]])).logits[0]
    expected = logits.log_softmax(-1)[range(len(tokens)), tokens].sum()
    [(nats, _)] = _score(random_gpt2, [("", "Some words")])
    assert nats == pytest.approx(float(expected), abs=1e-4)


def test_end_of_text_spelled_out_in_a_prompt_is_text(random_gpt2: Path) -> None:
    model = LanguageModel.load(random_gpt2)
    assert model.eot_token_id not in model.tok_encode("a <|endoftext|> b")


def test_logits_that_are_not_finite_are_refused(export_gpt2) -> None:
    folder = export_gpt2(lambda gpt2: gpt2.transformer.ln_f.bias.fill_(math.nan))
    with pytest.raises(ValueError, match="not finite"):
        _score(folder, [("Some", " words")])


def test_a_folder_without_its_weights_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        LanguageModel.load(tmp_path)
