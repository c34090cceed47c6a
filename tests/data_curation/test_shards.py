"""Shards hold the same bytes as Megatron's own builder would write, and Megatron reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data_curation.shards import EncodedDocuments, ShardWriter, split_summary, token_dtype


def _documents(lengths: list[int], dtype: np.dtype, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 60000, length).astype(dtype) for length in lengths]


def _write(
    folder: Path, documents: list[np.ndarray], shard_bytes: int, batch_size: int
) -> ShardWriter:
    folder.mkdir()
    with ShardWriter(folder, "train", documents[0].dtype, shard_bytes) as writer:
        for first in range(0, len(documents), batch_size):
            batch = documents[first : first + batch_size]
            writer.add(
                EncodedDocuments(
                    tokens=np.concatenate(batch),
                    lengths=np.array([len(d) for d in batch]),
                    text_bytes=np.array([3 * len(d) for d in batch]),
                ),
                [f"id{first + i}" for i in range(len(batch))],
                ["s"] * len(batch),
            )
    return writer


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_bytes_equal_those_of_megatrons_builder_and_megatron_reads_every_sequence(
    tmp_path: Path, dtype: type
) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    documents = _documents([5, 1, 300, 2, 77], np.dtype(dtype))
    _write(tmp_path / "ours", documents, shard_bytes=10**6, batch_size=2)
    builder = IndexedDatasetBuilder(str(tmp_path / "megatron.bin"), dtype=dtype)
    for document in documents:
        builder.add_document(document, [len(document)])
    builder.finalize(str(tmp_path / "megatron.idx"))
    ours = tmp_path / "ours" / "train-00000"
    for suffix in (".bin", ".idx"):
        expected = (tmp_path / f"megatron{suffix}").read_bytes()
        assert Path(f"{ours}{suffix}").read_bytes() == expected
    read = IndexedDataset(str(ours))
    assert len(read) == len(documents)
    assert read.document_indices.tolist() == [0, 1, 2, 3, 4, 5]
    for sequence, document in zip(read, documents, strict=False):
        assert sequence.tolist() == document.tolist()


def test_shards_are_cut_between_documents_and_keep_to_the_bound(tmp_path: Path) -> None:
    # A bound of 20 bytes is 10 uint16 tokens: 4 + 6 fill a shard exactly, then 7, then 4 + 1.
    documents = _documents([4, 6, 7, 4, 1], np.dtype(np.uint16))
    writer = _write(tmp_path / "out", documents, shard_bytes=20, batch_size=5)
    assert [(s.prefix, s.num_documents, s.num_tokens, s.num_bytes) for s in writer.shards] == [
        ("train-00000", 2, 10, 30),
        ("train-00001", 1, 7, 21),
        ("train-00002", 2, 5, 15),
    ]
    assert all(path.stat().st_size <= 20 for path in (tmp_path / "out").glob("*.bin"))
    stream = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("*.bin")))
    assert stream == b"".join(document.tobytes() for document in documents)
    summary = split_summary(writer.shards)
    assert (summary["num_documents"], summary["num_tokens"], summary["num_bytes"]) == (5, 22, 66)


def test_the_sidecar_names_the_document_that_starts_at_each_token(tmp_path: Path) -> None:
    documents = _documents([4, 6, 7, 4, 1], np.dtype(np.uint16))
    _write(tmp_path / "out", documents, shard_bytes=20, batch_size=2)
    rows = [
        pq.read_table(tmp_path / "out" / f"train-0000{n}.documents.parquet").to_pylist()
        for n in range(3)
    ]
    assert [[(row["first_token"], row["id"]) for row in shard] for shard in rows] == [
        [(0, "id0"), (4, "id1")],
        [(0, "id2")],
        [(0, "id3"), (4, "id4")],
    ]


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_bytes_do_not_depend_on_how_documents_are_handed_in(
    tmp_path: Path, batch_size: int
) -> None:
    lengths = np.random.default_rng(1).integers(1, 90, 500).tolist()
    documents = _documents(lengths, np.dtype(np.uint16))
    _write(tmp_path / "a", documents, shard_bytes=9000, batch_size=33)
    _write(tmp_path / "b", documents, shard_bytes=9000, batch_size=batch_size)
    a, b = ({f.name: f.read_bytes() for f in (tmp_path / x).iterdir()} for x in "ab")
    assert len(a) > 6
    assert a == b


def test_a_document_larger_than_a_shard_is_refused_with_both_sizes(tmp_path: Path) -> None:
    documents = _documents([4, 11], np.dtype(np.uint16))
    with pytest.raises(ValueError, match=r"id1 .*22 bytes.*shard_bytes = 20.*Raise"):
        _write(tmp_path / "out", documents, shard_bytes=20, batch_size=2)


def test_uint16_is_used_as_long_as_it_holds_the_vocabulary() -> None:
    assert token_dtype(50257) == np.uint16
    assert token_dtype(65535) == np.uint16
    assert token_dtype(65536) == np.int32
