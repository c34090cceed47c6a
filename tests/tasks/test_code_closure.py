from __future__ import annotations

import pytest

from tasks.code_closure import SourceTree


def digests(root):
    tree = SourceTree(root)
    return {name: tree.digest(name) for name in ("data_curation.curate", "training.worker")}


def closure_of(root, text, module="data_curation.probe"):
    (root / f"{module.replace('.', '/')}.py").write_text(text, encoding="utf-8")
    return set(SourceTree(root).closure(module)) - {module}


def test_a_helper_two_imports_away_changes_exactly_the_stages_that_reach_it(source_root):
    before = digests(source_root)
    (source_root / "data_curation/letters.py").write_text("ALL = 'abcd'\n")
    after = digests(source_root)
    assert after["data_curation.curate"] != before["data_curation.curate"]
    assert after["training.worker"] == before["training.worker"]


def test_comments_docstrings_and_layout_change_nothing(source_root):
    before = digests(source_root)
    (source_root / "data_curation/letters.py").write_text(
        '"""Letters."""\n\n# All of them.\nALL = (\n    "abc"\n)\n"""What we call letters."""\n'
    )
    (source_root / "training/model.py").write_text("LAYERS  =  2  # two\n")
    assert digests(source_root) == before


def test_a_string_that_is_used_is_code(source_root):
    (source_root / "training/model.py").write_text("def f():\n    return 'a'\n")
    before = digests(source_root)
    (source_root / "training/model.py").write_text("def f():\n    return 'b'\n")
    assert digests(source_root)["training.worker"] != before["training.worker"]


def test_a_packages_init_belongs_to_its_modules(source_root):
    before = digests(source_root)
    (source_root / "training/__init__.py").write_text("import os\n")
    after = digests(source_root)
    assert after["training.worker"] != before["training.worker"]
    assert after["data_curation.curate"] == before["data_curation.curate"]


@pytest.mark.parametrize(
    "text",
    [
        "import data_curation.letters",
        "import data_curation.letters as short",
        "from data_curation import letters",
        "from data_curation.letters import ALL",
        "from . import letters",
        "from .letters import ALL",
        "def f():\n    from .letters import ALL",
        "try:\n    from data_curation.letters import ALL\nexcept ImportError:\n    pass",
        "import importlib\nimportlib.import_module('data_curation.letters')",
        "command = ['-m', 'data_curation.letters']",
    ],
)
def test_every_way_to_import_is_seen(source_root, text):
    assert closure_of(source_root, text) == {"data_curation", "data_curation.letters"}


def test_a_star_import_reaches_all_modules_of_the_package(source_root):
    assert "data_curation.letters" in closure_of(source_root, "from data_curation import *")


def test_relative_imports_climb(source_root):
    (source_root / "data_curation/deep").mkdir()
    (source_root / "data_curation/deep/__init__.py").write_text("from ..letters import ALL\n")
    reached = closure_of(source_root, "", module="data_curation.deep.probe")
    assert reached == {"data_curation", "data_curation.deep", "data_curation.letters"}


def test_modules_that_import_each_other_end(source_root):
    (source_root / "training/model.py").write_text("import training.worker\n")
    assert SourceTree(source_root).closure("training.worker") == [
        "training",
        "training.model",
        "training.worker",
    ]


def test_third_party_and_standard_modules_are_left_out(source_root):
    assert closure_of(source_root, "import os, numpy\nfrom json import loads") == {"data_curation"}


def test_data_files_count_by_their_bytes(source_root):
    folder = source_root / "evaluation/templates"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("<p>")
    data = ("evaluation/templates",)
    before = SourceTree(source_root).digest("training.worker", data)
    assert before == SourceTree(source_root).digest("training.worker", data)
    (folder / "report.html").write_text("<b>")
    edited = SourceTree(source_root).digest("training.worker", data)
    (folder / "more.css").write_text("")
    added = SourceTree(source_root).digest("training.worker", data)
    assert len({before, edited, added}) == 3


def test_names_that_do_not_exist_are_refused(sources):
    with pytest.raises(ValueError, match=r"no module training\.nope"):
        sources.digest("training.nope")
    with pytest.raises(ValueError, match="no file training/nope"):
        sources.digest("training.worker", ("training/nope.txt",))


def test_a_tree_keeps_to_what_it_read_and_says_what_drifted(source_root, sources):
    before = sources.digest("data_curation.curate")
    (source_root / "data_curation/letters.py").write_text("ALL = ''\n")
    (source_root / "data_curation/clean.py").write_text(
        "# Only a comment.\n" + (source_root / "data_curation/clean.py").read_text()
    )
    assert sources.digest("data_curation.curate") == before
    assert sources.drift("data_curation.curate", (), before) == ["data_curation.letters"]
    assert sources.drift("training.worker", (), sources.digest("training.worker")) == []


@pytest.mark.parametrize("text", [None, "def broken(:"])
def test_a_module_deleted_or_broken_has_drifted(source_root, sources, text):
    digest = sources.digest("training.worker")
    file = source_root / "training/model.py"
    file.write_text(text) if text else file.unlink()
    assert sources.drift("training.worker", (), digest) == ["training.model"]


def test_a_broken_module_elsewhere_stops_nothing(source_root):
    (source_root / "training/draft.py").write_text("def broken(:")
    assert SourceTree(source_root).digest("training.worker")


def test_the_installed_stages_reach_their_own_library_only():
    tree = SourceTree.installed()
    reached = tree.closure("training.config")
    assert {"training", "training.config", "training.units"} == set(reached)
