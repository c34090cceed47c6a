"""Samples are windows of the token stream; damaged shards are refused by name.

The shards are written by megatron-core's own builder.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.samples import TokenizedSplit


def _write_shards(folder: Path, shards: list[list[int]], dtype: type = np.uint16) -> np.ndarray:
    """Write shards of documents of these lengths; return the token stream, 0, 1, 2, …"""
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    (folder / "shards").mkdir(parents=True)
    listed = []
    position = 0
    for number, lengths in enumerate(shards):
        prefix = f"train-{number:05d}"
        path = folder / "shards" / prefix
        builder = IndexedDatasetBuilder(f"{path}.bin", dtype=dtype)
        for length in lengths:
            builder.add_document(np.arange(position, position + length), [length])
            position += length
        builder.finalize(f"{path}.idx")
        shard = {"num_documents": len(lengths), "num_tokens": sum(lengths), "num_bytes": 1}
        listed.append({"prefix": prefix, **shard})
    summary = {
        "format": 1,
        "tokenizer_sha256": "ab" * 32,
        "vocab_size": 60_000,
        "end_of_text": "<|endoftext|>",
        "end_of_text_id": 7,
        "dtype": np.dtype(dtype).name,
        "splits": {"train": {"num_tokens": position, "shards": listed}},
    }
    (folder / "shards.json").write_text(json.dumps(summary))
    return np.arange(position)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_samples_cross_documents_and_shards(tmp_path: Path, dtype: type) -> None:
    stream = _write_shards(tmp_path, [[3, 4], [2], [1, 1], [9, 6]], dtype)
    split = TokenizedSplit(tmp_path, "train", sequence_length=8)
    # 26 tokens: samples start at 0, 8 and 16; one at 24 would need 33 tokens.
    assert split.num_samples == 3
    for index in range(3):
        assert np.array_equal(split.tokens(index), stream[8 * index : 8 * index + 9])
    assert split.tokens(0).dtype == np.int64
    assert type(split.tokens(0)) is np.ndarray
    batch = split.batch(np.array([2, 0, 2]))
    assert batch.shape == (3, 9)
    assert batch[:, 0].tolist() == [16, 0, 16]


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8), sequence_length=st.integers(1, 20)
)
def test_samples_are_the_stream_cut_at_every_multiple_of_the_sequence_length(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], sequence_length: int
) -> None:
    folder = tmp_path_factory.mktemp("tokenized")
    stream = _write_shards(folder, [[length] for length in lengths])
    expected = [
        stream[start : start + sequence_length + 1].tolist()
        for start in range(0, len(stream) - sequence_length, sequence_length)
    ]
    if not expected:
        with pytest.raises(ValueError, match="Shorten training"):
            TokenizedSplit(folder, "train", sequence_length)
        return
    split = TokenizedSplit(folder, "train", sequence_length)
    assert [split.tokens(index).tolist() for index in range(split.num_samples)] == expected
    with pytest.raises(IndexError):
        split.tokens(split.num_samples)


def test_what_the_trainer_needs_to_know_of_the_tokenizer_is_there(tmp_path: Path) -> None:
    _write_shards(tmp_path, [[20]])
    split = TokenizedSplit(tmp_path, "train", 4)
    assert split.vocab_size == 60_000
    assert split.tokenizer_sha256 == "ab" * 32


def test_a_split_too_small_for_one_sample_is_refused_with_both_numbers(tmp_path: Path) -> None:
    _write_shards(tmp_path, [[16]])
    assert TokenizedSplit(tmp_path, "train", 15).num_samples == 1
    with pytest.raises(ValueError, match=r"holds 16 tokens, .* = 17. Shorten"):
        TokenizedSplit(tmp_path, "train", 16)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_the_wrong_size_is_refused_with_its_name_and_both_sizes(
    tmp_path: Path, suffix: str, change: int
) -> None:
    _write_shards(tmp_path, [[5], [6, 7]])
    file = tmp_path / "shards" / f"train-00001{suffix}"
    size = file.stat().st_size
    file.write_bytes((file.read_bytes() + b"\0")[: size + change])
    with pytest.raises(
        ValueError, match=rf"train-00001\{suffix} has {size + change} bytes .* have {size}\."
    ):
        TokenizedSplit(tmp_path, "train", 4)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    _write_shards(tmp_path, [[5], [6, 7]])
    (tmp_path / "shards" / "train-00000.bin").unlink()
    with pytest.raises(ValueError, match=r"train-00000\.bin is missing"):
        TokenizedSplit(tmp_path, "train", 4)


@pytest.mark.parametrize(("offset", "message"), [(0, "no Megatron index"), (17, "no Megatron")])
def test_an_index_of_another_kind_is_refused(tmp_path: Path, offset: int, message: str) -> None:
    _write_shards(tmp_path, [[5], [6, 7]])
    file = tmp_path / "shards" / "train-00001.idx"
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"train-00001\.idx is {message}"):
        TokenizedSplit(tmp_path, "train", 4)


def test_an_index_that_disagrees_with_shards_json_is_refused(tmp_path: Path) -> None:
    _write_shards(tmp_path, [[5], [6, 7]])
    file = tmp_path / "shards" / "train-00001.idx"
    content = bytearray(file.read_bytes())
    content[34] += 1  # The length of the first document.
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"lists 2 documents of 14 tokens, and .* 2 of 13"):
        TokenizedSplit(tmp_path, "train", 4)
