"""Windows cross shards, and are the samples that `docs/formats.md` defines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evaluation.token_windows import read_windows


def _write_shards(folder: Path, lengths: list[int]) -> None:
    """Shards of these many tokens, whose stream is 0, 1, 2, …"""
    (folder / "shards").mkdir()
    pieces = np.split(np.arange(sum(lengths), dtype=np.uint16), np.cumsum(lengths)[:-1])
    listed = []
    for number, tokens in enumerate(pieces):
        prefix = f"held_out-{number:05d}"
        tokens.tofile(folder / "shards" / f"{prefix}.bin")
        listed.append({"prefix": prefix, "num_tokens": len(tokens)})
    summary = {"dtype": "uint16", "splits": {"held_out": {"shards": listed}}}
    (folder / "shards.json").write_text(json.dumps(summary))


def test_all_windows_or_those_asked_for_are_read_in_order(tmp_path: Path) -> None:
    _write_shards(tmp_path, [5, 1, 3, 8])
    # 17 tokens: windows of 4 + 1 start at 0, 4, 8 and 12, and the last ends on the last token.
    windows = read_windows(tmp_path, "held_out", 4)
    assert windows.dtype == np.uint16
    assert windows.tolist() == [list(range(start, start + 5)) for start in (0, 4, 8, 12)]
    chosen = read_windows(tmp_path, "held_out", 4, np.array([3, 0, 3]))
    assert chosen[:, 0].tolist() == [12, 0, 12]
    assert len(read_windows(tmp_path, "held_out", 5)) == 3


def test_windows_that_are_not_there_are_refused(tmp_path: Path) -> None:
    _write_shards(tmp_path, [5, 1, 3, 8])
    with pytest.raises(ValueError, match=r"Windows 0 to 4 .* has 4"):
        read_windows(tmp_path, "held_out", 4, np.array([0, 4]))
    with pytest.raises(ValueError, match="holds 17 tokens, and one window takes 18"):
        read_windows(tmp_path, "held_out", 17)


def test_a_truncated_shard_is_refused_with_its_name_and_both_sizes(tmp_path: Path) -> None:
    _write_shards(tmp_path, [5, 6])
    file = tmp_path / "shards" / "held_out-00001.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"held_out-00001\.bin has 11 bytes .* have 12"):
        read_windows(tmp_path, "held_out", 4)
