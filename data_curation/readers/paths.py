"""The files that a `path` of the recipe stands for.

A file stands for itself, a glob for the files it matches, a folder for the files below it with the
suffixes of the reader. Names are relative to the folder, to the part of a glob before its first
wildcard, or to a file's own folder.

Links are followed. A file that they lead to by several ways is taken once, under the name that is
shortest and then first; a link that leads nowhere is an error, since what it should bring would be
missed in silence.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

from data_curation.readers.units import InputFile


def find_files(path: str, suffixes: tuple[str, ...]) -> list[InputFile]:
    """Return the files that `path` stands for, sorted by name.

    Args:
        path: a file, a folder or a glob (`**` crosses folders).
        suffixes: endings of the files to take from a folder.

    Raises:
        ValueError: nothing is found, or what is found can be no input.
    """
    try:
        return _find_files(path, suffixes)
    except OSError as error:
        name = error.filename or path
        raise ValueError(
            f"path {_printable(str(name))} cannot be read: {error.strerror}. "
            "Correct the path, or the rights to it."
        ) from error


def _find_files(path: str, suffixes: tuple[str, ...]) -> list[InputFile]:
    top = Path(path)
    if top.is_file():
        return [InputFile(top, _printable(top.name))]
    if top.is_dir():
        found = [file for file in _all_below(top) if file.name.lower().endswith(suffixes)]
        if not found:
            raise ValueError(
                f"folder {path} holds no file that ends in {', '.join(suffixes)}. "
                "Name another folder, or a glob that matches the files."
            )
    elif glob.has_magic(path):
        # Path.glob would take no absolute pattern.
        matches = glob.glob(path, recursive=True)  # noqa: PTH207
        found = [Path(name) for name in matches if not Path(name).is_dir()]
        if not found:
            raise ValueError(f"glob {path} matches no file. Correct it.")
        while glob.has_magic(str(top)):
            top = top.parent
    else:
        _check_is_file(top)
    files = [InputFile(file, _printable(file.relative_to(top).as_posix())) for file in found]
    once: dict[str, InputFile] = {}
    for file in sorted(files, key=lambda file: (len(file.path.parts), file.name)):
        once.setdefault(os.path.realpath(file.path), file)
    for file in once.values():
        _check_is_file(file.path)
    return sorted(once.values(), key=lambda file: file.name)


def _check_is_file(path: Path) -> None:
    if path.is_file():
        return
    shown = _printable(str(path))
    if path.is_symlink():
        raise ValueError(f"path {shown} is a link that leads to no file. Mend it, or remove it.")
    if path.exists():
        raise ValueError(f"path {shown} is a pipe, socket or device. Name a file or a folder.")
    raise ValueError(f"path {shown} does not exist. Correct it, or create it.")


def _all_below(top: Path) -> list[Path]:
    """All that is no folder, whatever it is; each folder once, by however many links."""
    found: list[Path] = []
    visited: set[str] = set()
    level = [top]
    while level:
        deeper: list[Path] = []
        for folder in sorted(level):
            if (real := os.path.realpath(folder)) in visited:
                continue
            visited.add(real)
            # Hidden folders hold the bookkeeping of other programs, such as .git.
            inside = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
            for entry in inside:
                (deeper if entry.is_dir() else found).append(entry)
        level = deeper
    return found


def _printable(name: str) -> str:
    """A name as text: bytes that are no UTF-8 are spelled out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
