"""What a user can say about sources, curation and tokenization.

Every model refuses unknown keys. A model is a value: two equal models give equal outputs.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    PositiveInt,
    field_validator,
    model_validator,
)

_LANGDETECT = """
    af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr
    ne nl no pa pl pt ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw
"""
LANGUAGES = frozenset([*_LANGDETECT.split(), "und"])
"""The codes that langdetect tells, and `und` for text that it can tell nothing of."""

SOURCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class _Config(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class InstalledDocumentationSource(_Config):
    """Docstrings and text documents of installed packages: real text that every machine has."""

    name: str
    reader: Literal["installed_documentation"]
    packages: tuple[str, ...] = Field(
        ("stdlib",),
        min_length=1,
        description="Import names of installed packages; 'stdlib' is Python's standard library.",
    )


class JsonLinesSource(_Config):
    """Files of one JSON object a line: .jsonl, .ndjson, also packed by gzip or zstandard."""

    name: str
    reader: Literal["jsonl"]
    path: str = Field(description="A file, a folder (searched recursively) or a glob.")
    text_field: str = "text"
    id_field: str | None = Field(
        None, description="Field that names a document; the file and line otherwise."
    )


class ParquetSource(_Config):
    """Parquet files, read one row group at a time."""

    name: str
    reader: Literal["parquet"]
    path: str = Field(description="A file, a folder (searched recursively) or a glob.")
    text_field: str = "text"
    id_field: str | None = Field(
        None, description="Column that names a document; the file and row otherwise."
    )


class TextFolderSource(_Config):
    """Plain text files, one document a file."""

    name: str
    reader: Literal["text"]
    path: str = Field(description="A file, a folder (searched recursively) or a glob.")
    suffixes: tuple[str, ...] = Field((".txt", ".md", ".rst"), min_length=1)


Source = Annotated[
    InstalledDocumentationSource | JsonLinesSource | ParquetSource | TextFolderSource,
    Field(discriminator="reader"),
]


class LengthConfig(_Config):
    """Documents shorter or longer than this, in characters after cleaning, are dropped."""

    min_characters: PositiveInt = Field(512, description="The paper's value for web text.")
    max_characters: PositiveInt | None = Field(None, description="Without bound if absent.")

    @model_validator(mode="after")
    def _bounds_leave_room(self) -> Self:
        if self.max_characters is not None and self.max_characters < self.min_characters:
            raise ValueError(
                f"max_characters = {self.max_characters} is below min_characters = "
                f"{self.min_characters}, so every document would be dropped; raise it"
            )
        return self


class LanguageConfig(_Config):
    """langdetect on a bounded prefix, with a fixed seed."""

    keep: tuple[str, ...] = Field(
        ("en",),
        min_length=1,
        description="Codes of langdetect: ISO 639-1, zh-cn, zh-tw; und where it tells none.",
    )
    prefix_characters: PositiveInt = Field(
        1000, description="Beginning of a document by which its language is told."
    )

    @field_validator("keep")
    @classmethod
    def _languages_exist(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(value) - LANGUAGES):
            raise ValueError(
                f"langdetect does not know {', '.join(unknown)}; use {', '.join(sorted(LANGUAGES))}"
            )
        return value


class DedupConfig(_Config):
    """MinHash-LSH with explicit bands; every candidate pair is verified by exact Jaccard.

    A pair of Jaccard similarity J becomes a candidate with probability 1 - (1 - J^rows)^bands.
    """

    jaccard: float = Field(0.8, gt=0, le=1, description="Least similarity of near-duplicates.")
    num_bands: PositiveInt = Field(
        14, ge=2, le=1000, description="More bands propose more pairs: fewer are missed."
    )
    num_rows: PositiveInt = Field(
        8, le=100, description="Hashes a band; more rows propose fewer pairs."
    )
    shingle_words: PositiveInt = Field(
        5, le=1000, description="Consecutive words that make one shingle."
    )


class CurationConfig(_Config):
    """From ingested to curated documents. `decisions.RULES` is the order of the rules."""

    max_source_bytes: ByteSize | None = Field(
        None,
        gt=0,
        description="Cap of each source, so that none drowns the others; whole groups stay.",
    )
    length: LengthConfig = LengthConfig()
    language: LanguageConfig = LanguageConfig()
    dedup: DedupConfig = DedupConfig()
    held_out_fraction: float = Field(
        0.02, gt=0, lt=1, description="Share of groups (files, modules) kept out of training."
    )


class TokenizerConfig(_Config):
    """A byte-level BPE: trained on the curated text, or loaded from `path`."""

    vocab_size: PositiveInt = Field(
        8192, ge=257, le=10_000_000, description="Of a trained tokenizer."
    )
    path: str | None = Field(
        None, description="A tokenizer.json, or a folder that holds one; trains one if absent."
    )
    end_of_text: str = Field(
        "<|endoftext|>", min_length=1, description="Ends each document; no text encodes to it."
    )
    sample_bytes: ByteSize = Field(
        ByteSize(50_000_000),
        gt=0,
        description="Most text that the BPE is trained on, chosen by id.",
    )
    shard_bytes: ByteSize = Field(
        ByteSize(1_000_000_000), gt=0, description="Bound of one .bin file."
    )

    @field_validator("end_of_text")
    @classmethod
    def _end_of_text_is_one_word(cls, value: str) -> str:
        if value != value.strip():
            raise ValueError(f"{value!r} begins or ends with white space; remove it")
        return value
