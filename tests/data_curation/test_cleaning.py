"""Cleaning is ftfy, only faster."""

import ftfy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_curation.cleaning import clean

ASCII = st.text(st.characters(max_codepoint=127))
ENTITIES = st.lists(
    st.one_of(
        st.text("&#;xabAmplgt01 <\n", max_size=12),
        st.sampled_from(
            ["&amp;", "&lt;", "&AMP;", "&#62;", "&#x3e;", "&amp", "<", "\r\n", "\x1b[0m"]
        ),
    )
).map("".join)


@given(st.one_of(ASCII, ENTITIES, st.text()))
@example("\x0c\t\n plain")
@example("a\x0bb")
@example("a\r")
@example("\x7f")
@example("&&amp;lt;")
@example("caf\u00c3\u00a9 \u201cquoted\u201d")
def test_cleaning_gives_what_ftfy_gives(text):
    assert clean(text) == ftfy.fix_text(text)


@pytest.mark.parametrize("code", range(128))
def test_every_ascii_character_is_treated_as_ftfy_does(code):
    assert clean(f"a{chr(code)}b") == ftfy.fix_text(f"a{chr(code)}b")


@given(st.text(st.characters(categories=["Cs", "L", "P"])))
def test_what_is_cleaned_can_be_written(text):
    clean(text).encode()


def test_mojibake_is_repaired():
    assert clean("It\u00e2\u20ac\u2122s na\u00c3\u00afve") == "It's naïve"
