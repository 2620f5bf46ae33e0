"""Names in messages: the library names its arguments, and a command its options."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

Words = Callable[[str], str]
_translate: list[Words] = [lambda message: message]  # the last one holds, in every thread


def worded(message: str) -> str:
    """Return a message for the present caller: with options in a command, else as it is.

    The library writes an argument with its value, as ``k=5``, ``column=NAME`` or ``check=True``, or
    alone in backquotes. A name with an underscore is one without them.
    """
    return _translate[-1](message)


@contextmanager
def wording(translate: Words) -> Iterator[None]:
    """Give messages other words in the block."""
    _translate.append(translate)
    try:
        yield
    finally:
        _translate.pop()


def with_options(names: Collection[str]) -> Words:
    """Return a function that names options of a command instead of arguments in a message.

    ``k=5`` becomes ``--k 5``, ``check=True`` becomes ``--check``, `` `column` `` becomes
    ``--column``, ``max_tokens`` becomes ``--max-tokens``, and ``settings={'mbpa.lr': 1}`` becomes
    ``--set mbpa.lr=1``. A name with a value of its own, as in ``k = 0 must be at least 1``, stays.

    Args:
        names: of the arguments.
    """
    any_name = "|".join(sorted(names, key=len, reverse=True))
    long_name = "|".join(sorted((name for name in names if "_" in name), key=len, reverse=True))
    argument = re.compile(
        rf"`(?P<quoted>{any_name})`"
        rf"|(?<![\w.'\"/-])(?P<given>{any_name})=(?:(?P<true>True\b)|(?=\S))"
        rf"|(?<![\w.'\"/=-])(?P<long>{long_name})(?![\w=]|\.\w| = )"
    )

    def option(match: re.Match[str]) -> str:
        name = match["quoted"] or match["given"] or match["long"]
        words = f"--{name.replace('_', '-')}"
        if match["given"] and not match["true"]:
            return f"{words} "
        return words

    def translate(message: str) -> str:
        message = _SETTINGS.sub(_setting_words, message).replace("`settings`", "--set")
        return argument.sub(option, message)

    return translate


_SETTINGS = re.compile(r"settings=\{(?P<values>[^}]*)\}")


def _setting_words(match: re.Match[str]) -> str:
    """Return values of settings as words of a command line."""
    values = match["values"].replace("'", "").replace('"', "")
    return f"--set {values.replace(', ', ' ').replace(': ', '=')}"
