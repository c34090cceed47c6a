"""`mtnlg generate`: which folder holds the model that a user names?"""

from __future__ import annotations

from pathlib import Path

from flows.errors import WrongUseError
from flows.runs import run_named


def model_folder(root: Path, name: str | None) -> Path:
    """The Hugging Face folder of a run, or the folder itself.

    Raises:
        WrongUseError: neither a run nor a model folder, or the run has exported no model yet.
    """
    if name is not None and Path(name).is_dir():
        folder = Path(name)
        if not (folder / "config.json").is_file():
            raise WrongUseError(f"{folder} holds no config.json; give a Hugging Face GPT-2 folder")
        return folder
    record = run_named(root, name)
    exported = record.artifact_folder("export")
    if exported is None:
        raise WrongUseError(
            f"run {record.run_id} has exported no model yet; finish it with: {record.command}"
        )
    if not exported.is_dir():
        raise ValueError(
            f"the model of run {record.run_id} is gone from {exported}; "
            f"build it again with: {record.command}"
        )
    return exported
