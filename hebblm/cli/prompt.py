"""The prompt of ``hebblm-read --interactive``: lines, their history, and what Tab adds to them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hebblm.cli.questions import Questions
from hebblm.errors import UserError
from hebblm.online.effort import QUICK
from hebblm.runtime.extras import install
from hebblm.runtime.progress import log
from hebblm.serve.blocked import BlockedWords, folder_of

if TYPE_CHECKING:  # loads torch
    from hebblm.online.expected import Suggestion
    from hebblm.reader.reader import Reader

SIGN = "> "
PHRASE = 8  # tokens that a phrase has, at most
HISTORY = "lines"
HELP = """\
Type the beginning of a sentence to see the words that come next, and how it may go on.
Tab completes the line by a word or a phrase; the arrow keys bring back earlier lines.
/why            why the last words were suggested (also ?)
/forget NAME    forget a document
/block WORD     never suggest a word; /allow WORD allows it again
/documents      what was read
/help           these lines"""


class Conversation:
    """Answers the lines of a prompt.

    Args:
        reader: answers.
        questions: prints answers.
        save: folder of the reader.
        forget: forgets a document, and keeps that.
    """

    def __init__(
        self, reader: Reader, questions: Questions, save: Path, forget: Callable[[str], None]
    ) -> None:
        self._reader, self._questions, self._forget = reader, questions, forget
        self.blocked = BlockedWords(folder_of(save))
        self._last = ""
        questions.hides = self.blocked.hides

    def answer(self, line: str) -> None:
        """Answer a line; a mistake in it is printed."""
        word, _, rest = line.strip().partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: self._questions.print_line(HELP),
            "/why": lambda _: self._questions.explain("", self._last),
            "?": lambda _: self._questions.explain("", self._last),
            "/forget": self._forget,
            "/block": lambda name: self.blocked.change([name], allow=False),
            "/allow": lambda name: self.blocked.change([name], allow=True),
            "/documents": self._list,
        }
        try:
            if word in commands:
                commands[word](rest.strip())
            elif word.startswith("/"):
                raise UserError(f"{word!r:.60} is not a command; /help lists them")
            else:
                self._last = line
                words = self._questions.suggest("", line)
                self._questions.print_line(f"{line}{self.phrase(line, words)}".rstrip())
        except UserError as error:
            log(str(error))

    def phrase(self, line: str, words: Sequence[Suggestion]) -> str:
        """Return how a line may go on, up to its end: the first of some words that does not end it,
        then the most probable pieces.

        The most probable piece need not begin the most probable word.
        """
        first = ""
        for word in words:
            if "\n" not in word.insert_text:
                first = word.insert_text
                break
        phrase = first + self._reader.generate(
            line + first, max_new_tokens=PHRASE, temperature=0, until="\n"
        )
        parts = phrase.split(" ")
        for number, part in enumerate(parts):
            if self.blocked.hides(part.strip(".,;:!?")):
                return " ".join(parts[:number])
        return phrase

    def completions(self, line: str) -> Iterator[tuple[str, str]]:
        """Yield what Tab may add to a line, each with what it shows: words, then a phrase."""
        from hebblm.online.prompts import split_typed

        if line.startswith("/"):
            return
        context, typed = split_typed(line)
        words = []
        for word in self._reader.suggest(
            context, 5, typed=typed, budget=QUICK.budget, least=QUICK.least
        ):
            if not self.blocked.hides(word.word):
                words.append(word)
                if word.insert_text:
                    yield word.insert_text, word.word
        phrase = self.phrase(line, words)
        if len(phrase.split()) > 1:
            yield phrase, f"{phrase.strip()} ..."

    def _list(self, _: str) -> None:
        for document in self._reader.documents():
            tokens = "" if document.tokens is None else f", {document.tokens:,} tokens"
            self._questions.print_line(f"{document.name or 'without a name'}{tokens}")


def lines_of(conversation: Conversation, save: Path) -> Iterator[str]:
    """Yield the lines that a person types, or those of a file or pipe."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            yield line.rstrip("\r\n")
        return
    if find_spec("prompt_toolkit") is None:
        log(f"for history and Tab: {install('prompt')}")
        for line in sys.stdin:
            yield line.rstrip("\r\n")
        return
    yield from typed_lines(conversation, save)


def typed_lines(conversation: Conversation, save: Path) -> Iterator[str]:
    """Yield the lines of a terminal, with their history and Tab, until Ctrl-D; Ctrl-C ends all."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.patch_stdout import patch_stdout

    class Expected(Completer):
        def get_completions(self, document: Any, event: Any) -> Iterator[Completion]:
            for text, shown in conversation.completions(document.text_before_cursor):
                yield Completion(text, display=shown)

    folder = folder_of(save)
    folder.mkdir(parents=True, exist_ok=True)
    session: PromptSession[str] = PromptSession(
        SIGN,
        history=FileHistory(str(folder / HISTORY)),
        completer=Expected(),
        complete_while_typing=False,
        complete_in_thread=True,
    )
    while True:
        try:
            with patch_stdout(raw=True):
                # signals reach the main thread, and this is another one
                yield session.prompt(handle_sigint=False)
        except EOFError:
            return
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGINT)
            return
