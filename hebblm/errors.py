"""Errors that are the user's to mend, as opposed to defects of the program."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in the input: one line that names the offending value and the remedy.

    The command line prints the message after ``error:`` and exits with status 2; no traceback is shown.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
