"""The tokenizer: a byte-level BPE, trained on curated text or loaded from files.

Invariants of a tokenizer that leaves this module:

- it is lossless: decoding gives back the text that was encoded, whatever its characters;
- end-of-text is in its vocabulary, and no text encodes to it. Special tokens spelled out in a
  document are text, split into ordinary tokens;
- training is a pure function of the documents and the configuration: two trainings give the same
  `tokenizer.json`, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from data_curation.config import TokenizerConfig
from data_curation.faults import faults_of

# GPT-2's two files, under the names that OpenAI and Hugging Face give them.
GPT2_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))

# Case, runs and edges of white space, controls, both normal forms of é, several scripts, an emoji
# of several code points: what lossy tokenizers lose.
_PROBE = "  The\tCAT  sat.\r\n\x00\x7f é e\u0301 ß ﬁ 你好 مرحبا 👩‍🔬 \u200b\u3000x \n"


def train_bpe(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a byte-level BPE with GPT-2's pre-tokenization and all 256 bytes in its alphabet.

    Args:
        texts: what to train on; see `training_sample`.
        config: `vocab_size` counts end-of-text too.

    Raises:
        ValueError: the texts yield fewer tokens than `vocab_size`, or end-of-text is an ordinary
            token.
    """
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=2,  # A pair that occurs once is no pattern.
        special_tokens=[config.end_of_text],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if (found := tokenizer.get_vocab_size()) < config.vocab_size:
        raise ValueError(
            f"tokenizer.vocab_size: {config.vocab_size} tokens were asked for, but the text to "
            f"train on yields only {found}. Lower it to {found} or less, or curate more text."
        )
    return _checked(tokenizer, config, "the trained tokenizer")


def training_sample(texts: Iterable[str], sample_bytes: int) -> Iterator[str]:
    """The first texts, whole, until the next one would pass `sample_bytes` of UTF-8.

    Curated documents are sorted by id. Ids are digests, so the first of them are a random sample.

    Raises:
        ValueError: not even the first text fits.
    """
    total = 0
    for text in texts:
        size = len(text.encode())
        if total + size > sample_bytes:
            if total == 0:
                raise ValueError(
                    f"tokenizer.sample_bytes: {sample_bytes} is less than the first document, "
                    f"{size} bytes. Raise it."
                )
            return
        total += size
        yield text


def load_bpe(config: TokenizerConfig) -> Tokenizer:
    """Load the tokenizer that `config.path` names.

    Raises:
        ValueError: there is no tokenizer, it is lossy, or `end_of_text` is missing from it.
    """
    files = tokenizer_files(config)
    where = str(config.path)
    try:
        if len(files) == 2:
            vocabulary, merges = (str(file) for file in files)
            tokenizer = _byte_level(models.BPE.from_file(vocabulary, merges))
        else:
            tokenizer = Tokenizer.from_file(str(files[0]))
    except Exception as error:  # The Rust side raises bare Exception for whatever is wrong.
        raise ValueError(f"path {where} holds no readable tokenizer: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _checked(tokenizer, config, where)


def tokenizer_files(config: TokenizerConfig) -> list[Path]:
    """The files that a loaded tokenizer is read from; none for one that is trained.

    Raises:
        ValueError: `config.path` does not exist or holds no tokenizer.
    """
    if config.path is None:
        return []
    path = Path(config.path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"path {path} does not exist; correct it, or leave it out to train one")
    if (path / "tokenizer.json").is_file():
        return [path / "tokenizer.json"]
    for names in GPT2_FILES:
        files = [path / name for name in names]
        if all(file.is_file() for file in files):
            return files
    pairs = " or ".join(f"{vocabulary} with {merges}" for vocabulary, merges in GPT2_FILES)
    raise ValueError(f"path {path} holds no tokenizer: put tokenizer.json there, or {pairs}")


def tokenizer_faults(config: TokenizerConfig) -> list[str]:
    """What is wrong with the tokenizer that a recipe names, found before any work."""
    if config.path is None:
        return []
    return faults_of(partial(load_bpe, config))


def save_bpe(tokenizer: Tokenizer, end_of_text: str, folder: Path) -> None:
    """Write `tokenizer.json` and a `tokenizer_config.json` for transformers' AutoTokenizer."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "bos_token": end_of_text,
        "clean_up_tokenization_spaces": False,
        "eos_token": end_of_text,
        # As in the shards: special tokens spelled out in a text are text.
        "split_special_tokens": True,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": end_of_text,
    }
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _checked(tokenizer: Tokenizer, config: TokenizerConfig, where: str) -> Tokenizer:
    end_of_text = config.end_of_text
    end_of_text_id = tokenizer.token_to_id(end_of_text)
    if end_of_text_id is None:
        raise ValueError(
            f"end_of_text {end_of_text!r} is not in the vocabulary of {where}. "
            f"{_closest_special_tokens(tokenizer, end_of_text)}"
        )
    tokenizer.add_special_tokens([end_of_text])  # Entries of GPT-2's files are not marked special.
    tokenizer.encode_special_tokens = True
    if end_of_text_id in tokenizer.encode(end_of_text, add_special_tokens=False).ids:
        raise ValueError(
            f"end_of_text {end_of_text!r} is an ordinary token of {where}: documents that hold it "
            "would seem to end there. Choose one that no text is split into, such as <|endoftext|>."
        )
    ids = tokenizer.encode(_PROBE, add_special_tokens=False).ids
    if (back := tokenizer.decode(ids, skip_special_tokens=False)) != _PROBE:
        raise ValueError(
            f"{where} is lossy: {_PROBE!r} comes back as {back!r}. Use a byte-level tokenizer "
            "without normalizer and without prefix space."
        )
    return tokenizer


def _closest_special_tokens(tokenizer: Tokenizer, wanted: str) -> str:
    special = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    # GPT-2's files mark none: its control tokens are known by their brackets.
    special += [t for t in tokenizer.get_vocab() if len(t) > 2 and t[0] + t[-1] in ("<>", "[]")]
    special = sorted(set(special))
    if not special:
        return "It has no special token."
    near = get_close_matches(wanted, special, n=3, cutoff=0.0)
    return f"Its closest special tokens: {', '.join(near)}."
