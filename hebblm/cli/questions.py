"""Questions of ``hebblm-read`` to its reader, and their answers on the console."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from hebblm.cli.common import print_line
from hebblm.online.effort import QUICK
from hebblm.runtime.progress import log

if TYPE_CHECKING:  # these load torch, and an error message must not wait for that
    from hebblm.online.expected import Suggestion
    from hebblm.reader.reader import Reader

BREAK = "⏎"  # shows a line break


class QuestionOptions(Protocol):
    """What the options ask for; see :class:`hebblm.cli.read.ReadConfig`."""

    @property
    def suggest(self) -> str | None: ...
    @property
    def explain(self) -> str | None: ...
    @property
    def generate(self) -> str | None: ...
    @property
    def words(self) -> int: ...
    @property
    def new_tokens(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def seed(self) -> int: ...


class Questions:
    """A reader's answers, printed.

    Args:
        reader: answers.
        asked: texts of the questions, and how long the answers are.
        piped: whether standard output is for something else; then answers go to standard error.
    """

    def __init__(self, reader: Reader, asked: QuestionOptions, *, piped: bool) -> None:
        self.print_line = log if piped else print_line
        self.hides: Callable[[str], bool] = lambda word: False
        self._reader = reader
        self._asked = asked
        self._console = Console(stderr=piped)

    def ask(self, when: str) -> None:
        """Answer all questions of the command line; ``when`` says before or after what."""
        asked = self._asked
        if asked.suggest is not None:
            self.suggest(when, asked.suggest)
        if asked.explain is not None:
            self.explain(when, asked.explain)
        if asked.generate is not None:
            drawn = self._reader.generate(
                asked.generate,
                max_new_tokens=asked.new_tokens,
                temperature=asked.temperature,
                seed=asked.seed,
            )
            line = re.sub(" *\n *", f" {BREAK} ", f"{when}: {asked.generate}{drawn}")
            self.print_line(line.rstrip())

    def suggest(self, when: str, text: str) -> list[Suggestion]:
        """Print the next words after a text, with their probabilities adapted and not; return
        them.
        """
        from hebblm.online.prompts import split_typed
        from hebblm.report.render.table import print_table
        from hebblm.report.tables.table import Column, Row, Table

        context, typed = split_typed(text)
        suggestions = self._reader.suggest(
            context, self._asked.words, typed=typed, budget=QUICK.budget, least=QUICK.least
        )
        words = [one for one in suggestions if not self.hides(one.word)]
        if not words:
            self.print_line(f"{_title(when, text)} no word is known that begins with {typed!r}")
            return words
        columns = [
            Column("Next word"),
            Column("Adapted, %", "percent"),
            Column("Unadapted, %", "percent"),
        ]
        rows: list[Row] = []
        for word, adapted, base in words:
            rows.append(
                {
                    "Next word": _visible(word, self._reader),
                    "Adapted, %": 100 * adapted,
                    "Unadapted, %": 100 * base,
                }
            )
        print_table(Table("suggested", _title(when, text), columns, rows), self._console)
        return words

    def explain(self, when: str, text: str) -> None:
        """Print why the next words after a text are suggested."""
        from hebblm.online.prompts import split_typed
        from hebblm.reader.explain import explanation_tables
        from hebblm.report.render.table import print_table

        context, typed = split_typed(text)
        reasons = self._reader.explain(
            context, self._asked.words, typed=typed, budget=QUICK.budget, least=QUICK.least
        )

        def visible(word: str) -> str:
            return _visible(word, self._reader)

        for table in explanation_tables(_title(when, text), reasons, visible):
            print_table(table, self._console)


def _title(when: str, text: str) -> str:
    """Return a text that goes on, and when it was asked."""
    start = f"{text.rstrip()} ..." if text[-1:].isspace() else f"{text}..."
    return f"{when}: {start}" if when else start


def _visible(word: str, reader: Reader) -> str:
    """Return a word with signs for spaces and line breaks."""
    vocabulary = reader.vocabulary
    if vocabulary.unknown is not None and word == vocabulary[vocabulary.start]:
        word = "\n"  # the end of line that a model of words has
    if "\n" in word and not word.strip():
        return f"{BREAK * word.count(chr(10))} (line break)"
    if vocabulary.unknown is not None:
        word = word.replace(f"[{vocabulary[vocabulary.start]}]", f"[{BREAK}]")
    if word.isspace():
        return "␣ (space)"
    return word.replace("\n", BREAK)
