"""Writes that survive a crash: a reader sees the old content or the new, never a mixture.

A file is written beside its place, flushed to the disk and then renamed over it; the folder is
flushed last, so that the rename itself is on the disk too.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path


def sync_path(path: Path) -> None:
    """Flush a file's data, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace the content of `path` by `text` in one step.

    Raises:
        OSError: the disk is full or read-only; `path` then still has its old content.
    """
    # Two processes, or two threads of one, may write the same path at once.
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_path(path.parent)
