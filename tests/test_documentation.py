"""Every command in the README and in docs/ is run, as written, on a shrunken quickstart."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flows.recipe_faults import RecipeError
from flows.recipe_file import load_recipe

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[1]
PAGES = [
    PROJECT / "README.md",
    *sorted((PROJECT / "docs").glob("*.md")),
    PROJECT / "CONTRIBUTING.md",
]
SHRINK = {
    "sources": "[{name: python, reader: installed_documentation, packages: [stdlib]}]",
    "curation.held_out_fraction": "0.15",
    "tokenizer.vocab_size": "1024",
    "training.model.num_layers": "2",
    "training.model.hidden_size": "32",
    "training.train_tokens": "40K",
    "training.optimizer.warmup_tokens": "10K",
    "evaluation.num_items": "40",
    "evaluation.num_shots": "[0,1]",
}
PIECE = re.compile(r"```(sh|yaml)\n(.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return [block for kind, block in PIECE.findall(text) if kind == language]


def commands(program: str) -> list[str]:
    lines = [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.split(" ")[0] == program))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documentation")
    for block in blocks("yaml"):
        if named := re.match(r"# (\S+\.yaml)\n", block):
            (folder / named[1]).write_text(block)
    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    texts = [source.read_text(encoding="utf-8", errors="ignore") for source in sources]
    pieces = [piece for text in texts for piece in re.findall(r'"""(.+?)"""', text, re.DOTALL)]
    rows = [json.dumps({"text": piece + " " + piece.upper()}) for piece in pieces]
    (folder / "articles.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def run(command: str, folder: Path) -> None:
    words = shlex.split(command)
    if words[:2] == ["mtnlg", "run"]:
        # First, so that what the page itself overrides wins.
        shrink = dict(SHRINK) if words[2] == "quickstart" else {"evaluation.num_items": "30"}
        shrink["curation.length.min_characters"] = "100"
        words[3:3] = [part for item in shrink.items() for part in ("-o", "=".join(item))]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *words[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "DO_NOT_TRACK": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_every_mtnlg_command_of_the_docs_works(workspace):
    found = commands("mtnlg")
    assert len(found) > 10
    for command in found:
        run(command, workspace)


def test_every_make_command_of_the_docs_is_a_target():
    found = commands("make")
    assert "make quickstart" in found and "make test" in found
    for command in found:
        done = subprocess.run(
            [*shlex.split(command), "--dry-run"],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_every_other_command_of_the_docs_is_known_here():
    known = {"make", "mtnlg"}
    lines = [line.strip() for block in blocks("sh") for line in block.splitlines()]
    assert not [line for line in lines if line and line.split(" ")[0] not in known]


def test_the_wrong_recipe_of_the_docs_has_the_faults_that_are_shown(workspace, monkeypatch):
    monkeypatch.chdir(workspace)
    wrong = [
        "training.model.hiden_size=64",
        "training.layout.tensor_parallel=8",
        "training.sequence_length=256",
    ]
    with pytest.raises(RecipeError) as refused:
        load_recipe("my.yaml", wrong)
    assert f"mtnlg: {refused.value}\n" in (PROJECT / "docs/recipes.md").read_text(encoding="utf-8")


def test_the_tour_of_the_code_names_files_that_exist():
    tour = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+/)` \|.*\| (.+) \|$", tour, re.MULTILINE)
    assert len(rows) == 6
    for folder, names in rows:
        for name in re.findall(r"`(.+?)`", names):
            assert (PROJECT / folder / name).is_file(), f"{folder}{name}"


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
