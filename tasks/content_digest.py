"""SHA-256 digests of files, remembered so that an unchanged terabyte is read once.

A digest is remembered under the file's path together with its size, times of modification and
change, and inode. The kernel sets the time of change on every write and lets nobody set it back,
so an edit that keeps the size and restores the time of modification is still seen. A file that
changed less than `SETTLING_NS` before it was read is not remembered: a second write within the
clock's granularity would leave the same times. What this cannot see is a disk that rots under
unchanged times; `ArtifactStore.verify` reads everything again for that.

The memory is an SQLite file that several processes may use at once and a kill at any moment
leaves whole. It holds nothing that cannot be had again by reading the files.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

SETTLING_NS = 2_000_000_000
"""Coarsest step of a file system's clock (FAT: 2 s; most others: milliseconds)."""

FLUSH_S = 1.0
"""How much reading a killed process may have to do again."""


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(paths: Iterable[Path], cache: Path | None) -> dict[Path, str]:
    """Return the SHA-256 of each file.

    Args:
        paths: regular files, or symbolic links to them.
        cache: SQLite file of remembered digests, made if missing; None to read every file.

    Raises:
        ValueError: a file changed while it was read, or `cache` is not such a file.
        FileNotFoundError: a file does not exist.
    """
    # Real paths, since a link can be pointed elsewhere without touching what it pointed to.
    real_paths = {path: Path(os.path.realpath(path)) for path in paths}
    if cache is None:
        unique = sorted(set(real_paths.values()))
        digests = dict(zip(unique, _read_all(unique), strict=True))
    else:
        digests = _remembered_or_read(sorted(set(real_paths.values())), cache)
    return {path: digests[real_path] for path, real_path in real_paths.items()}


def digest_files(paths: Iterable[Path], cache: Path) -> str:
    """Return one digest of the names and contents of a set of raw input files.

    Names count relative to the folder that all files share, so that a corpus keeps its digest
    when it is moved as a whole. The order of `paths` and repetitions do not count.

    Args:
        paths: regular files; a folder stands for all files below it.
        cache: SQLite file of remembered digests, made if missing.

    Raises:
        ValueError: no file at all, or one that changed while it was read.
        FileNotFoundError: a path does not exist.
    """
    files = sorted({file for path in paths for file in _files_at(path.absolute())})
    if not files:
        raise ValueError("there is no raw input file to digest")
    shared = os.path.commonpath([file.parent for file in files])
    total = hashlib.sha256()
    for file, sha256 in sha256_files(files, cache).items():
        name = os.fsencode(os.path.relpath(file, shared))
        # The length in front keeps two different lists of names from reading the same.
        total.update(b"%d:%s%s" % (len(name), name, bytes.fromhex(sha256)))
    return total.hexdigest()


def remember(digests: dict[Path, str], cache: Path, started_ns: int) -> None:
    """Remember digests that the caller has computed.

    Args:
        digests: SHA-256 by path.
        cache: SQLite file of remembered digests, made if missing.
        started_ns: the time before the first of them was read; a file changed since is left out.
    """
    entries = []
    for path, sha256 in digests.items():
        real_path = Path(os.path.realpath(path))
        status = real_path.stat()
        if _settled(status, started_ns):
            entries.append((os.fsencode(real_path), _identity(status), sha256))
    with _opened(cache) as database:
        _insert(database, entries)


def _settled(status: os.stat_result, started_ns: int) -> bool:
    return status.st_ctime_ns < started_ns - SETTLING_NS


def _files_at(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in path.rglob("*") if file.is_file())
    elif path.exists():
        yield path
    else:
        raise FileNotFoundError(f"the raw input {path} does not exist")


def _identity(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _remembered_or_read(paths: list[Path], cache: Path) -> dict[Path, str]:
    digests: dict[Path, str] = {}
    identities = {path: _identity(path.stat()) for path in paths}
    with _opened(cache) as database:
        for path, identity in identities.items():
            row = database.execute(
                "SELECT sha256 FROM digests WHERE path = ? AND identity = ?",
                (os.fsencode(path), identity),
            ).fetchone()
            if row is not None:
                digests[path] = row[0]
        unknown = [path for path in paths if path not in digests]
        started_ns = time.time_ns()
        pending: list[tuple[bytes, str, str]] = []
        flushed = time.monotonic()
        for path, sha256 in zip(unknown, _read_all(unknown), strict=True):
            digests[path] = sha256
            status = path.stat()
            if _identity(status) == identities[path] and _settled(status, started_ns):
                pending.append((os.fsencode(path), identities[path], sha256))
            if time.monotonic() - flushed > FLUSH_S:
                _insert(database, pending)
                pending.clear()
                flushed = time.monotonic()
        _insert(database, pending)
    return digests


def _read_all(paths: list[Path]) -> Iterator[str]:
    # Hashing releases the interpreter's lock; four threads keep a fast disk busy.
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as threads:
        yield from threads.map(_read_settled, paths)


def _read_settled(path: Path) -> str:
    before = _identity(path.stat())
    sha256 = sha256_file(path)
    if _identity(path.stat()) != before:
        raise ValueError(
            f"{path} changed while it was read, so no digest can stand for it.\n"
            "  Wait until whatever writes it has ended, and run again."
        )
    return sha256


@contextmanager
def _opened(cache: Path) -> Iterator[sqlite3.Connection]:
    cache.parent.mkdir(parents=True, exist_ok=True)
    # Every statement is its own transaction: no lock is held while a file is read.
    database = sqlite3.connect(cache, timeout=60, isolation_level=None)
    try:
        database.execute(
            "CREATE TABLE IF NOT EXISTS digests"
            " (path BLOB PRIMARY KEY, identity TEXT NOT NULL, sha256 TEXT NOT NULL)"
        )
        yield database
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"{cache}, the memory of file digests, cannot be used: {error}.\n"
            "  See that its disk has room and can be written; or delete it, the digests are then"
            " computed anew."
        ) from error
    finally:
        database.close()


def _insert(database: sqlite3.Connection, entries: list[tuple[bytes, str, str]]) -> None:
    if not entries:
        return
    database.execute("BEGIN IMMEDIATE")
    database.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", entries)
    database.execute("COMMIT")
