"""A mistake is answered in words and with the right exit code, never with a traceback."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import yaml

from flows.cli import main
from tasks.runs import RunRecord


@pytest.fixture
def mtnlg(tmp_path, monkeypatch, capsys):
    """mtnlg(code, *arguments): what the command says on standard error, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MTNLG_ROOT", raising=False)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("Some text.\n")
    recipe = {"name": "mine", "sources": [{"name": "a", "reader": "text", "path": "texts"}]}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    (tmp_path / "file").touch()

    def run(code: int, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["mtnlg", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == code
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("root", "code", "part"),
    [
        ("file", 2, "is a file"),
        ("file/below", 1, "Not a directory"),
        ("/dev/null/below", 1, "Not a directory"),
        ("/proc/below", 1, "nothing can be written to /proc/below"),
        ("x" * 5000, 1, "File name too long"),
    ],
)
def test_a_root_that_cannot_be_written_is_named(mtnlg, root, code, part):
    assert part in mtnlg(code, "run", "mine.yaml", "--root", root)


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "--prompt", "\udcff"),
        ("run", "\udcff.yaml"),
        ("run", "mine.yaml", "--root", "\udcff"),
        ("status", "\udcff"),
    ],
)
def test_an_argument_that_is_no_text_is_refused(mtnlg, arguments):
    assert "\\xff" in mtnlg(2, *arguments)


def test_a_root_from_the_environment_that_is_no_text_is_refused(mtnlg, monkeypatch):
    monkeypatch.setenv("MTNLG_ROOT", os.fsdecode(b"\xff"))
    assert "\\xff" in mtnlg(2, "status")


@pytest.mark.parametrize("command", ["status", "report", "generate"])
def test_a_damaged_record_is_a_failure_that_names_the_file(mtnlg, tmp_path, command):
    run = RunRecord.create(tmp_path / "data", "mine", {}, "mtnlg run mine.yaml")
    (run.folder / "run.json").write_text("{")
    options = ["--prompt", "x"] if command == "generate" else []
    assert f"{run.run_id}/run.json" in mtnlg(1, command, "--root", "data", *options)


def test_results_that_are_gone_are_named(mtnlg, tmp_path, monkeypatch):
    run = RunRecord.create(tmp_path / "data", "mine", {}, "mtnlg run mine.yaml")
    for stage in ("export", "report"):
        run.stage_started(stage)
        run.stages[stage].folder = f"artifacts/{stage}/0123456789abcdef"
    run.finish("completed")
    said = mtnlg(1, "generate", "--root", "data", "--prompt", "x")
    assert "0123456789abcdef" in said
    assert "mtnlg run mine.yaml" in said
    said = mtnlg(1, "report", "--root", "data")
    assert "artifacts/report/0123456789abcdef" in said
    assert "mtnlg run mine.yaml" in said


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_fault(redirection):
    command = f"{shlex.quote(sys.executable)} -m flows.cli recipes list {redirection}"
    done = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_the_letters_is_no_fault():
    show = [sys.executable, "-m", "flows.cli", "recipes", "show", "quickstart"]
    wide = ["-o", "description=naïve · 文"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(show + wide, env=environment, capture_output=True, check=True)
    assert "naïve · ?".encode("latin-1") in done.stdout
    done = subprocess.run(
        [*show, *wide, "--json"], env=environment, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["description"] == "naïve · 文"
