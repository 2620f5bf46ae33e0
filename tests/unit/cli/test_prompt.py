"""The prompt of ``hebblm-read --interactive``: commands, words to block, history and Tab."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import hebblm
from hebblm.cli.prompt import HELP, Conversation, lines_of, typed_lines
from hebblm.cli.questions import Questions
from hebblm.errors import UserError

NOTES = "Call frobnitz with two arguments .\n" * 6
OPTIONS = SimpleNamespace(words=3, suggest=None, explain=None, generate=None, new_tokens=5)


@pytest.fixture
def reader() -> hebblm.Reader:
    reader = hebblm.load("tiny-pydoc-raw", device="cpu").reader("best")
    reader.read(NOTES, name="notes")
    reader.begin()
    return reader


@pytest.fixture
def conversation(reader: hebblm.Reader, tmp_path: Path) -> Conversation:
    questions = Questions(reader, OPTIONS, piped=False)  # type: ignore[arg-type]

    def forget(name: str) -> None:
        if name != "notes":
            raise UserError(f"no document is named {name!r}; documents() lists their names")
        reader.forget(name)

    return Conversation(reader, questions, tmp_path / "known", forget)


def test_a_line_is_answered_by_words_and_a_phrase(
    conversation: Conversation, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation.answer("Call ")
    said = capsys.readouterr().out
    assert "frobnitz" in said.split("\n", 8)[4]
    assert "Call frobnitz with two arguments .\n" in said
    for word in ("/why", "?"):
        conversation.answer(word)
        assert "notes" in capsys.readouterr().out
    conversation.answer("/help")
    assert capsys.readouterr().out == f"{HELP}\n"
    conversation.answer("/documents")
    assert capsys.readouterr().out == "notes, 42 tokens\n"


def test_what_is_blocked_is_never_suggested_and_stays_blocked(
    conversation: Conversation, reader: hebblm.Reader, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert "frobnitz" in dict(conversation.completions("Call fro")).values()
    conversation.answer("/block Frobnitz")
    conversation.answer("Call ")
    assert "frobnitz" not in capsys.readouterr().out
    assert "frobnitz" not in dict(conversation.completions("Call ")).values()
    questions = Questions(reader, OPTIONS, piped=False)  # type: ignore[arg-type]
    again = Conversation(reader, questions, tmp_path / "known", lambda name: None)
    assert again.blocked.words == ("Frobnitz",)
    again.answer("/allow frobnitz")
    assert again.blocked.words == ()


def test_mistakes_are_one_line(
    conversation: Conversation, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, said in [
        ("/nothing", "'/nothing' is not a command; /help lists them"),
        ("/forget letters", "no document is named 'letters'"),
        ("/block two words", "'two words' is not a word"),
        ("/block", "'' is not a word"),
    ]:
        conversation.answer(line)
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    conversation.answer("/forget notes")
    conversation.answer("/documents")
    assert capsys.readouterr().out == ""


def test_a_phrase_follows_the_words(conversation: Conversation) -> None:
    found = [*conversation.completions("Call ")]
    assert found[0] == ("frobnitz", "frobnitz")
    assert found[-1][0] == "frobnitz with two arguments ."
    assert [*conversation.completions("/for")] == []
    assert ("nitz", "frobnitz") in [*conversation.completions("Call frob")]


def test_a_phrase_begins_with_the_first_word_of_the_list(
    conversation: Conversation, reader: hebblm.Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    """A word of several forms may be likelier than the most probable token, which is one form."""
    ends = ("quux;", "quux,", "quux:", "quux?", "blip", "blip")
    reader.read("".join(f"we met {end} and\n" for end in ends) * 2, name="met")
    reader.begin()
    suggested = reader.suggest("we met", n=1)[0]
    drawn = reader.generate("we met ", max_new_tokens=1, temperature=0)
    assert (suggested.word, drawn) == ("quux", "blip")
    words = [text for text, _ in conversation.completions("we met ")]
    assert words[0] == suggested.insert_text.lstrip()
    assert words[-1].startswith(words[0])
    conversation.answer("we met ")
    assert f"we met {words[-1]}\n" in capsys.readouterr().out


def test_tab_completes_and_lines_are_remembered(conversation: Conversation, tmp_path: Path) -> None:
    pytest.importorskip("prompt_toolkit")
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    asked = threading.Event()
    completions = conversation.completions

    def watched(line: str) -> Iterator[tuple[str, str]]:
        yield from completions(line)
        asked.set()

    conversation.completions = watched  # type: ignore[method-assign]

    def typed(text: str, then: str) -> list[str]:
        with (
            create_pipe_input() as keys,
            create_app_session(input=keys, output=DummyOutput()),
        ):

            def type_on() -> None:
                if "\t" in text:
                    assert asked.wait(120)
                time.sleep(1)  # until what Tab found is in the line
                keys.send_text(then)

            keys.send_text(text)
            thread = threading.Thread(target=type_on)
            thread.start()
            found = [*typed_lines(conversation, tmp_path / "known")]
            thread.join()
            return found

    up, end = "\x1b[A", "\x04"
    assert typed("Call frobn\t", f"\r{end}") == ["Call frobnitz"]
    assert typed(f"{up}\r/help\r", end) == ["Call frobnitz", "/help"]


def test_lines_of_a_pipe_are_taken_as_they_are(
    conversation: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\r\n\n"))
    assert [*lines_of(conversation, tmp_path / "known")] == ["one", "two", ""]
