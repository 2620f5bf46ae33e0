"""Errors that the user can mend, unlike defects of the program."""

from __future__ import annotations

import os

MOST = 1 << 53
"""The largest whole number of a setting: it is exact as a float, and sums of it fit 64 bits."""

MAX_WORD_CHARACTERS = 300  # characters of a word, such as the name of a file, that are shown


class UserError(ValueError):
    """A mistake in the input: one line that names the offending value and the remedy.

    The command line prints the message after ``error:`` and exits with status 2; no traceback is
    shown.
    """

    def __init__(self, message: str) -> None:
        words = (
            word if len(word) <= MAX_WORD_CHARACTERS else f"{word[:MAX_WORD_CHARACTERS]}..."
            for word in message.split()
        )
        super().__init__(" ".join(words))


def reason(error: OSError) -> str:
    """Return why the system refused, without file names, which may be temporary."""
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__


def unwritable(path: object, error: OSError) -> UserError:
    """Return the error for a file or folder that cannot be written."""
    return UserError(
        f"cannot write {path}: {reason(error)}; choose a place with space and permission"
    )


def unreadable(path: object, error: OSError) -> UserError:
    """Return the error for a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} does not exist")
    return UserError(f"cannot read {path}: {reason(error)}; check the path and its permissions")
