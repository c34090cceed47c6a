"""The language of a text is langdetect's answer, always the same and never an exception."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import langdetect
import pytest

from data_curation.config import LANGUAGES
from data_curation.language import Language, detect_language

GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund, und niemand hat ihn gesehen."


def test_common_languages_are_told(english):
    assert detect_language(english(1), 1000).code == "en"
    found = detect_language(GERMAN, 1000)
    assert found.code == "de"
    assert 0.9 < found.probability <= 1


@pytest.mark.parametrize("text", ["", " \n", "3.14 2.71 1,000", "https://example.org/a", "!?"])
def test_text_without_a_language_is_undetermined(text):
    assert detect_language(text, 1000) == Language("und", 0.0)


def test_only_the_prefix_counts(english):
    text = GERMAN + " " + english(1, 500)
    assert detect_language(text, len(GERMAN)).code == "de"
    assert detect_language(text, len(text)).code == "en"


def test_hard_texts_get_the_same_answer_in_any_order_and_process():
    texts = [f"{a} {b}" for a in ("get", "no", "set x", "in") for b in ("le", "die", "array", "la")]
    tell = partial(detect_language, prefix_characters=1000)
    once = list(map(tell, texts))
    assert list(map(tell, reversed(texts))) == once[::-1]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        assert list(other.map(tell, texts)) == once
    assert len({found.code for found in once}) > 2


def test_the_recipe_knows_exactly_the_languages_of_langdetect():
    profiles = Path(langdetect.__file__).parent / "profiles"
    assert {path.name for path in profiles.iterdir()} | {"und"} == LANGUAGES
