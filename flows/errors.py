"""What the command line tells a user, and with which exit code."""

from __future__ import annotations


class WrongUseError(ValueError):
    """The command cannot be carried out as it was given: exit code 2."""


class RunFailedError(RuntimeError):
    """A stage of the run could not be built: exit code 1."""
