"""Ctrl-C ends a run as interrupted, wherever it strikes."""

import os
import signal

import pytest

import flows.run
from data_curation.config import TextFolderSource
from flows.recipe import Recipe
from flows.run import run_recipe
from tasks.runs import latest


@pytest.fixture(autouse=True)
def in_the_foreground():
    """A shell's background job ignores Ctrl-C, and so would a run in it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_a_library_takes_for_its_own_error_is_one(tmp_path, monkeypatch, number):
    def strike(*_arguments: object) -> None:
        try:
            os.kill(os.getpid(), number)
        except BaseException as error:
            raise RuntimeError("error calling function") from error

    monkeypatch.setattr(flows.run, "_run_stages", strike)
    source = TextFolderSource(name="a", reader="text", path=str(tmp_path))
    recipe = Recipe(name="mine", sources=(source,))
    with pytest.raises(KeyboardInterrupt):
        run_recipe(recipe, command="mtnlg run mine.yaml", root=tmp_path / "data")
    assert latest(tmp_path / "data").state == "interrupted"
