"""Runs of whole sentences in a document's paragraphs, from which items are cut.

Lengths are in words and characters, not in tokens: models with different tokenizers answer the
same items. White space inside a run stays as it stands in the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_WORD = re.compile(r"\S+")
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*$")


@dataclass(frozen=True)
class Length:
    """Bounds on a run of words."""

    min_words: int
    max_words: int
    max_characters: int


@dataclass(frozen=True)
class Passage:
    """Whole sentences of one paragraph.

    Attributes:
        text: from the first character of the first word to the last of the last.
        spans: (start, end) of each word in `text`.
    """

    text: str
    spans: tuple[tuple[int, int], ...]

    def words(self, first: int, end: int) -> str:
        """The text of words `first` to `end - 1`."""
        return self.text[self.spans[first][0] : self.spans[end - 1][1]]

    def gap(self, word: int) -> str:
        """The white space before a word."""
        return self.text[self.spans[word - 1][1] : self.spans[word][0]]


def passages(text: str, length: Length) -> Iterator[Passage]:
    """For each sentence, the longest run of sentences that ends with it and keeps to `length`."""
    for paragraph in _BLANK_LINE.split(text):
        words = list(_WORD.finditer(paragraph))
        starts: list[int] = [0]
        for i, word in enumerate(words):
            last = i + 1 == len(words)
            if not _SENTENCE_END.search(word[0]) or not (last or _opens(words[i + 1][0])):
                continue
            for first in starts:
                start, end = words[first].start(), word.end()
                num_words = i + 1 - first
                if num_words <= length.max_words and end - start <= length.max_characters:
                    if num_words >= length.min_words:
                        spans = tuple((w.start() - start, w.end() - start) for w in words[first:i])
                        yield Passage(
                            paragraph[start:end], (*spans, (word.start() - start, end - start))
                        )
                    break
            starts.append(i + 1)


def _opens(word: str) -> bool:
    """Whether a word may open a sentence: its first letter, past quotes and brackets, is large."""
    letters = word.lstrip("\"'([`*")
    return letters[:1].isupper()
