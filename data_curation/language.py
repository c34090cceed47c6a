"""The language of a text by langdetect, on a bounded prefix.

langdetect draws random numbers; with its seed fixed, it answers the same text alike every time, in
every process and in any order.
"""

from __future__ import annotations

from typing import NamedTuple

from langdetect import DetectorFactory, LangDetectException, detect_langs

UNDETERMINED = "und"
"""ISO 639-2 for text without anything to tell a language by: digits, addresses, nothing."""


class Language(NamedTuple):
    """A language code and its probability, from 0 to 1."""

    code: str
    probability: float


def detect_language(text: str, prefix_characters: int) -> Language:
    """Return the most probable language of the first `prefix_characters` of `text`.

    Source: Nakatani 2010, Language Detection Library for Java, in its Python port.
    """
    DetectorFactory.seed = 0
    try:
        # Equally probable ones in the order of their names.
        best = min(
            detect_langs(text[:prefix_characters]), key=lambda found: (-found.prob, found.lang)
        )
    except LangDetectException:
        return Language(UNDETERMINED, 0.0)
    return Language(best.lang, float(best.prob))
