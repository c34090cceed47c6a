"""`mtnlg generate`: which folder holds the model that a user names?"""

from __future__ import annotations

from pathlib import Path

from tasks.runs import find, latest


def model_folder(root: Path, name: str | None) -> Path:
    """The Hugging Face folder of a run, or the folder itself.

    Raises:
        ValueError: neither a run nor a model folder, or the run has exported no model yet.
    """
    if name is not None and Path(name).is_dir():
        folder = Path(name)
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds no config.json; give a Hugging Face GPT-2 folder")
        return folder
    record = find(root, name) if name else latest(root)
    exported = record.stages.get("export")
    if exported is None or not exported.folder:
        raise ValueError(
            f"run {record.run_id} has exported no model yet; finish it with: {record.command}"
        )
    return Path(exported.folder)
