"""The files that a `path` of the recipe stands for.

A file stands for itself, a glob for the files it matches, a folder for the files below it with the
suffixes of the reader. Names are relative to the folder, to the part of a glob before its first
wildcard, or to a file's own folder.
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
        ValueError: nothing is found.
    """
    top = Path(path)
    if top.is_file():
        return [InputFile(top, top.name)]
    if top.is_dir():
        found = [file for file in _files_below(top) if file.name.lower().endswith(suffixes)]
        if not found:
            raise ValueError(
                f"folder {path} holds no file that ends in {', '.join(suffixes)}. "
                "Name another folder, or a glob that matches the files."
            )
    elif glob.has_magic(path):
        # Path.glob would take no absolute pattern.
        matches = glob.glob(path, recursive=True)  # noqa: PTH207
        found = [Path(name) for name in matches if Path(name).is_file()]
        if not found:
            raise ValueError(f"glob {path} matches no file. Correct it.")
        while glob.has_magic(str(top)):
            top = top.parent
    else:
        raise ValueError(f"path {path} does not exist. Correct it, or create it.")
    files = (InputFile(file, file.relative_to(top).as_posix()) for file in found)
    return sorted(files, key=lambda file: file.name)


def _files_below(top: Path) -> list[Path]:
    found = []
    for folder, subfolders, names in os.walk(top):
        # Hidden folders hold the bookkeeping of other programs, such as .git.
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return [path for path in found if path.is_file()]
