from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks import content_digest
from tasks.content_digest import digest_files, sha256_files


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "b").mkdir(parents=True)
    (folder / "a.txt").write_text("alpha")
    (folder / "b" / "ä.txt").write_text("beta")
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "digests.sqlite"


@pytest.fixture
def settled_at_once(monkeypatch):
    """Files may be remembered right after they were written."""
    monkeypatch.setattr(content_digest, "SETTLING_NS", -3_600_000_000_000)


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """The names of the files that are really read."""
    names: list[str] = []
    real = content_digest.sha256_file

    def counted(path: Path) -> str:
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(content_digest, "sha256_file", counted)
    return names


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def remembered(cache: Path) -> list[tuple[bytes, str]]:
    with sqlite3.connect(cache) as database:
        return database.execute("SELECT path, sha256 FROM digests").fetchall()


def test_a_byte_changed_at_equal_size_and_times_is_seen(corpus, cache, settled_at_once):
    before = digest_files(files(corpus), cache)
    file = corpus / "a.txt"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    time.sleep(0.02)  # beyond the granularity of the kernel's clock
    file.write_text("alphA")
    os.utime(file, ns=times)
    assert digest_files(files(corpus), cache) != before
    time.sleep(0.02)
    file.write_text("alpha")
    assert digest_files(files(corpus), cache) == before


def test_unchanged_files_are_not_read_again(corpus, cache, settled_at_once, reads):
    before = digest_files(files(corpus), cache)
    assert sorted(reads) == ["a.txt", "ä.txt"]
    reads.clear()
    assert digest_files(files(corpus), cache) == before
    assert reads == []


def test_a_file_just_written_is_not_trusted_to_its_times(corpus, cache, reads):
    digest_files(files(corpus), cache)
    assert remembered(cache) == []
    digest_files(files(corpus), cache)
    assert len(reads) == 4


def test_a_moved_corpus_keeps_its_digest_and_a_renamed_file_does_not(corpus, cache):
    before = digest_files([corpus], cache)
    moved = corpus.rename(corpus.with_name("moved"))
    assert digest_files([moved], cache) == before
    (moved / "a.txt").rename(moved / "c.txt")
    assert digest_files([moved], cache) != before


def test_order_and_repetition_do_not_count_and_a_folder_is_its_files(corpus, cache):
    listed = files(corpus)
    assert (
        digest_files(listed, cache)
        == digest_files([*reversed(listed), *listed], cache)
        == digest_files([corpus], cache)
    )


def test_contents_cannot_be_swapped_between_names(corpus, cache):
    before = digest_files([corpus], cache)
    (corpus / "a.txt").write_text("beta")
    (corpus / "b" / "ä.txt").write_text("alpha")
    assert digest_files([corpus], cache) != before


def test_names_that_are_no_unicode_are_digested(corpus, cache, settled_at_once):
    name = os.fsdecode(b"\xff.txt")
    (corpus / name).write_text("x")
    assert digest_files([corpus], cache) == digest_files([corpus], cache)


def test_a_link_that_is_pointed_elsewhere_is_followed(corpus, cache, settled_at_once):
    link = corpus / "link"
    link.symlink_to("a.txt")
    assert sha256_files([link], cache)[link] == hashlib.sha256(b"alpha").hexdigest()
    link.unlink()
    link.symlink_to("b/ä.txt")
    assert sha256_files([link], cache)[link] == hashlib.sha256(b"beta").hexdigest()


def test_missing_and_empty_inputs_are_refused_by_name(corpus, cache):
    with pytest.raises(FileNotFoundError, match=r"nope\.txt"):
        digest_files([corpus / "nope.txt"], cache)
    (corpus / "empty").mkdir()
    with pytest.raises(ValueError, match="no raw input"):
        digest_files([corpus / "empty"], cache)


def test_a_file_that_changes_while_it_is_read_is_refused(corpus, cache, monkeypatch):
    def write_and_read(path: Path) -> str:
        path.write_text("something longer")
        return "0" * 64

    monkeypatch.setattr(content_digest, "sha256_file", write_and_read)
    with pytest.raises(ValueError, match=r"a\.txt changed while it was read"):
        digest_files([corpus / "a.txt"], cache)


def test_a_cache_that_is_none_is_named_with_the_remedy(corpus, cache):
    cache.parent.mkdir()
    cache.write_bytes(b"this is no database, but long enough to be taken for one" * 20)
    with pytest.raises(ValueError, match=r"digests\.sqlite.*\n.*delete it"):
        digest_files([corpus], cache)


# Digests over and over, each time from an empty memory, until it is killed.
WORKER = """
import sqlite3, sys
from pathlib import Path
from tasks import content_digest
corpus, cache = map(Path, sys.argv[1:])
content_digest.SETTLING_NS = -3_600_000_000_000
content_digest.FLUSH_S = 0.0
print("ready", flush=True)
while True:
    print(content_digest.digest_files([corpus], cache), flush=True)
    database = sqlite3.connect(cache, timeout=60, isolation_level=None)
    database.execute("DELETE FROM digests")
    database.close()
"""


def test_two_processes_and_a_kill_leave_the_cache_whole(tmp_path, cache):
    corpus = tmp_path / "many"
    corpus.mkdir()
    for number in range(6):
        (corpus / f"{number}.txt").write_text(str(number))
    expected = digest_files([corpus], tmp_path / "other.sqlite")
    arguments = [sys.executable, "-c", WORKER, str(corpus), str(cache)]
    with (
        subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as second,
    ):
        assert first.stdout is not None and second.stdout is not None
        assert first.stdout.readline() == second.stdout.readline() == "ready\n"
        answers = [first.stdout.readline().strip(), second.stdout.readline().strip()]
        time.sleep(0.1)
        first.send_signal(signal.SIGKILL)
        time.sleep(0.2)
        second.send_signal(signal.SIGKILL)
        answers += first.stdout.read().split() + second.stdout.read().split()
    assert {answer for answer in answers if len(answer) == 64} == {expected}
    assert digest_files([corpus], cache) == expected
    with sqlite3.connect(cache) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
