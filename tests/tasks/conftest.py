from __future__ import annotations

from pathlib import Path

import pytest

from tasks.code_closure import SourceTree

SOURCES = {
    "data_curation/__init__.py": "",
    "data_curation/curate.py": "from data_curation.clean import clean\n",
    "data_curation/clean.py": "def clean():\n    from . import letters\n    return letters.ALL\n",
    "data_curation/letters.py": "ALL = 'abc'\n",
    "training/__init__.py": "",
    "training/worker.py": "import training.model as model\n",
    "training/model.py": "LAYERS = 2\n",
}


@pytest.fixture
def source_root(tmp_path: Path) -> Path:
    """A folder with two small first-party packages."""
    root = tmp_path / "sources"
    for name, text in SOURCES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def sources(source_root: Path) -> SourceTree:
    return SourceTree(source_root)
