"""From curated documents to a tokenizer and shards, with a real pool of processes."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import data_curation.in_order
import data_curation.tokenize
from data_curation.bpe import load_bpe, save_bpe, tokenizer_faults, train_bpe, training_sample
from data_curation.config import TokenizerConfig
from data_curation.tokenize import tokenize

ENGLISH = [
    f"Return the {adjective} {noun} of the array, or raise ValueError if there is none.\n\n"
    f"    >>> {noun}({number})\n    {number * 7}\n"
    for number, (adjective, noun) in enumerate(
        (a, n)
        for a in ("first", "largest", "sorted", "cumulative", "weighted", "common")
        for n in ("element", "sum", "mean", "index", "difference", "product", "quantile")
    )
]
ODD = [
    "Emoji: 👩‍🔬🏳️‍🌈 e\u0301 and é, ﬁ, zero width \u200b, ideographic\u3000space",
    "自然语言处理是人工智能的一个重要方向。日本語のテキスト。한국어 텍스트",
    "مرحبا بالعالم، هذه جملة عربية.",
    "def f(x):\n\treturn {'a': [x ** 2 for _ in range(10)]}  # comment\r\n",
    "x" * 20000 + " one long line " + "0123456789" * 500,
    "NUL \x00 and \x01\x7f\x1b controls",
    "<|endoftext|>",
    "A document may write <|endoftext|> in its text.<|endoftext|>",
    "   leading and trailing white space \n\n\n",
]


def _curated(folder: Path, train: list[str], held_out: list[str]) -> Path:
    for split, texts in (("train", train), ("held_out", held_out)):
        (folder / split).mkdir(parents=True)
        rows = sorted((hashlib.md5(t.encode()).hexdigest(), t) for t in texts)
        half = len(rows) // 2
        for number, part in enumerate((rows[:half], rows[half:])):
            columns = {
                "id": [name for name, _ in part],
                "source": ["s"] * len(part),
                "group": ["g"] * len(part),
                "locator": ["l"] * len(part),
                "text": [text for _, text in part],
            }
            table = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
            pq.write_table(table, folder / split / f"part-{number:05d}.parquet")
    return folder


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def curated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _curated(tmp_path_factory.mktemp("curated"), ENGLISH + ODD, ENGLISH[:4] + ODD)


CONFIG = TokenizerConfig(vocab_size=320, sample_bytes="1MB", shard_bytes="3kB")


def _run(curated: Path, out: Path, executor: Executor, config: TokenizerConfig = CONFIG) -> dict:
    out.mkdir()
    return tokenize(
        config, curated, out, seed=1, executor=executor, progress=lambda done, total, note: None
    )


@pytest.fixture(scope="module")
def tokenized(curated: Path, executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tokenized") / "out"
    _run(curated, out, executor)
    return out


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _stored_documents(tokenized: Path, split: str) -> Iterator[tuple[str, list[int]]]:
    summary = json.loads((tokenized / "shards.json").read_text())
    for shard in summary["splits"][split]["shards"]:
        path = tokenized / "shards" / shard["prefix"]
        tokens = np.fromfile(f"{path}.bin", dtype=summary["dtype"])
        rows = pq.read_table(f"{path}.documents.parquet").to_pylist()
        starts = [row["first_token"] for row in rows] + [len(tokens)]
        for row, start, end in zip(rows, starts, starts[1:], strict=False):
            yield row["id"], tokens[start:end].tolist()


def test_every_document_comes_back_as_it_was(curated: Path, tokenized: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tokenized / "tokenizer" / "tokenizer.json"))
    for split in ("train", "held_out"):
        parts = sorted((curated / split).iterdir())
        texts = [(r["id"], r["text"]) for p in parts for r in pq.read_table(p).to_pylist()]
        decoded = [
            (name, tokenizer.decode(ids[:-1], skip_special_tokens=False))
            for name, ids in _stored_documents(tokenized, split)
        ]
        assert decoded == texts


def test_end_of_text_ends_each_document_and_stands_nowhere_else(tokenized: Path) -> None:
    end = json.loads((tokenized / "shards.json").read_text())["end_of_text_id"]
    for split in ("train", "held_out"):
        for _, ids in _stored_documents(tokenized, split):
            assert ids[-1] == end
            assert end not in ids[:-1]


def test_shards_json_adds_up(curated: Path, tokenized: Path) -> None:
    summary = json.loads((tokenized / "shards.json").read_text())
    tokenizer_file = tokenized / "tokenizer" / "tokenizer.json"
    assert summary["tokenizer_sha256"] == hashlib.sha256(tokenizer_file.read_bytes()).hexdigest()
    assert (summary["vocab_size"], summary["dtype"]) == (320, "uint16")
    train = summary["splits"]["train"]
    assert train["num_documents"] == len(ENGLISH + ODD)
    assert train["num_bytes"] == sum(len(text.encode()) for text in ENGLISH + ODD)
    assert train["num_tokens"] == sum(len(ids) for _, ids in _stored_documents(tokenized, "train"))
    assert len(train["shards"]) > 1
    for key in ("num_documents", "num_tokens", "num_bytes"):
        assert train[key] == sum(shard[key] for shard in train["shards"])
        assert all(shard[key] > 0 for shard in train["shards"])


def test_megatron_reads_the_shards(tokenized: Path) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    summary = json.loads((tokenized / "shards.json").read_text())
    for split in ("train", "held_out"):
        read = []
        for shard in summary["splits"][split]["shards"]:
            dataset = IndexedDataset(str(tokenized / "shards" / shard["prefix"]))
            read += [dataset[i].tolist() for i in range(len(dataset))]
        assert read == [ids for _, ids in _stored_documents(tokenized, split)]


def test_output_is_the_same_for_any_number_of_workers_and_any_batch(
    curated: Path, tokenized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_curation.tokenize, "BATCH_BYTES", 700)
    monkeypatch.setattr(data_curation.in_order, "ITEMS_IN_FLIGHT", 3)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as one:
        _run(curated, tmp_path / "out", one)
    assert _files(tmp_path / "out") == _files(tokenized)


def test_transformers_loads_the_folder_and_encodes_as_the_shards(tokenized: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenized / "tokenizer", local_files_only=True)
    assert tokenizer.eos_token == tokenizer.bos_token == tokenizer.unk_token == "<|endoftext|>"
    summary = json.loads((tokenized / "shards.json").read_text())
    assert tokenizer.eos_token_id == summary["end_of_text_id"]
    assert len(tokenizer) == summary["vocab_size"]
    assert tokenizer.model_max_length > 10**9
    for _, ids in _stored_documents(tokenized, "held_out"):
        text = tokenizer.decode(ids[:-1])
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids[:-1]
    assert tokenizer.decode(tokenizer("a , b .")["input_ids"]) == "a , b ."


def test_two_trainings_give_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_bpe(train_bpe(ENGLISH + ODD, CONFIG), CONFIG.end_of_text, tmp_path / name)
    assert _files(tmp_path / "a") == _files(tmp_path / "b")


def test_the_tokenizer_does_not_see_held_out_text(executor: Executor, tmp_path: Path) -> None:
    for name, held_out in (("a", ENGLISH[:4]), ("b", ["zzqq zzqq zzqq " * 40])):
        curated = _curated(tmp_path / f"{name}-curated", ENGLISH, held_out)
        _run(curated, tmp_path / name, executor)
    a, b = (tmp_path / name / "tokenizer" / "tokenizer.json" for name in "ab")
    assert a.read_bytes() == b.read_bytes()


def test_training_reads_whole_documents_up_to_the_bound() -> None:
    assert list(training_sample(["abc", "défg", "hi"], 8)) == ["abc", "défg"]
    assert list(training_sample(["abc", "défg", "hi"], 7)) == ["abc"]
    with pytest.raises(ValueError, match=r"sample_bytes: 2 is less .* 3 bytes"):
        list(training_sample(["abc"], 2))


def test_a_vocabulary_that_the_text_cannot_fill_is_refused() -> None:
    with pytest.raises(ValueError, match=r"vocab_size: 5000 .* only \d+. Lower it"):
        train_bpe(ENGLISH, TokenizerConfig(vocab_size=5000))


def test_an_end_of_text_that_documents_hold_as_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="'Return' is an ordinary token"):
        train_bpe(ENGLISH, TokenizerConfig(vocab_size=320, end_of_text="Return"))


def test_an_empty_split_is_refused(executor: Executor, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="The held_out split holds no document"):
        _run(_curated(tmp_path / "curated", ENGLISH, []), tmp_path / "out", executor)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_bpe(train_bpe(ENGLISH, CONFIG), CONFIG.end_of_text, tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_gpt2_files_load_and_encode_like_the_tokenizer_they_came_from(
    saved: Path, tmp_path: Path, names: tuple[str, str]
) -> None:
    model = json.loads((saved / "tokenizer.json").read_text())["model"]
    folder = tmp_path / "gpt2"
    folder.mkdir()
    (folder / names[0]).write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (folder / names[1]).write_text(f"#version: 0.2\n{merges}\n")
    ours = load_bpe(TokenizerConfig(path=str(saved / "tokenizer.json")))
    theirs = load_bpe(TokenizerConfig(path=str(folder)))
    for text in ENGLISH + ODD:
        assert theirs.encode(text).ids == ours.encode(text).ids


def test_a_loaded_tokenizer_gives_the_same_shards_as_the_training_that_made_it(
    curated: Path, tokenized: Path, executor: Executor, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"path": str(tokenized / "tokenizer")})
    _run(curated, tmp_path / "out", executor, config)
    assert _files(tmp_path / "out") == _files(tokenized)


def test_a_good_recipe_has_no_faults(saved: Path) -> None:
    assert tokenizer_faults(CONFIG) == []
    assert tokenizer_faults(TokenizerConfig(path=str(saved))) == []


def test_a_tokenizer_path_that_leads_nowhere_is_a_fault(tmp_path: Path) -> None:
    (fault,) = tokenizer_faults(TokenizerConfig(path=str(tmp_path / "nosuch")))
    assert fault.startswith(f"path {tmp_path / 'nosuch'} does not exist")
    (fault,) = tokenizer_faults(TokenizerConfig(path=str(tmp_path)))
    assert "holds no tokenizer: put tokenizer.json there" in fault
    (tmp_path / "tokenizer.json").write_text("{")
    (fault,) = tokenizer_faults(TokenizerConfig(path=str(tmp_path)))
    assert "holds no readable tokenizer" in fault


def test_a_missing_end_of_text_is_a_fault_that_names_the_closest_token(saved: Path) -> None:
    (fault,) = tokenizer_faults(TokenizerConfig(path=str(saved), end_of_text="<|end_of_text|>"))
    assert "'<|end_of_text|>' is not in the vocabulary" in fault
    assert "closest special tokens: <|endoftext|>" in fault


def test_a_lossy_tokenizer_is_a_fault(saved: Path) -> None:
    tokenizer = Tokenizer.from_file(str(saved / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save(str(saved / "tokenizer.json"))
    (fault,) = tokenizer_faults(TokenizerConfig(path=str(saved)))
    assert "is lossy" in fault


def test_a_word_tokenizer_is_a_fault(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "<|endoftext|>": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (fault,) = tokenizer_faults(TokenizerConfig(path=str(tmp_path)))
    assert "is lossy" in fault
