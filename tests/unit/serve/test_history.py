"""What was learned is on the disk before anybody hears of it, whenever the server is killed."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

import hebblm
from hebblm.errors import UserError

pytest.importorskip("starlette")

from hebblm.serve import memories
from hebblm.serve.config import Limits, ServeOptions, read_key
from hebblm.serve.errors import ApiError
from hebblm.serve.history import Forgotten, LearnedHistory, LearnedText, present
from hebblm.serve.memories import HISTORY, MemoryFolders, NamedMemory
from hebblm.serve.safety import Rates

ITEMS = [LearnedText("a", "1", "one"), LearnedText("b", "2", "zwei\n東京"), Forgotten("a")]


def test_every_cut_of_the_file_leaves_the_items_before_it(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = LearnedHistory(path)
    sizes = [0]
    for item in ITEMS:
        history.append(item)
        sizes.append(path.stat().st_size)
    history.close()
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        cut = LearnedHistory(path)
        assert cut.items == ITEMS[: sum(end <= size for end in sizes) - 1]
        cut.append(ITEMS[0])
        cut.close()
        again = LearnedHistory(path)
        assert again.items == cut.items
        again.close()


def test_a_line_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"type":"learned"}\n')
    with pytest.raises(UserError, match="was changed at byte 0"):
        LearnedHistory(path)


def test_the_last_word_on_a_document_holds() -> None:
    items = [*ITEMS, LearnedText("b", "3", "three"), LearnedText("a", "4", "four")]
    assert present(ITEMS) == {"b": ITEMS[1], "a": None}
    assert list(present(items).items()) == [("b", items[3]), ("a", items[4])]


@pytest.fixture(scope="module")
def words() -> hebblm.LanguageModel:
    return hebblm.load("tiny-pydoc-raw", device="cpu")


def opened(words: hebblm.LanguageModel, folder: Path, **limits: int) -> NamedMemory:
    places = MemoryFolders(folder / "reader", folder)
    return NamedMemory(
        "m", lambda saved: words.reader("best", memory=saved), places, Limits(**limits)
    )


def names(memory: NamedMemory) -> list[str]:
    return [document.name for document in memory.published.documents]


def test_a_history_that_was_saved_already_is_not_learned_twice(
    words: hebblm.LanguageModel, tmp_path: Path
) -> None:
    """The server was killed after it had saved the reader and before it emptied the history."""
    memory = opened(words, tmp_path)
    for name in "abc":
        memory.learn(f"the {name} is here .", name)[1].result(60)
    memory.forget("b").result(60)
    memory.learn("the a is there .", "a")[1].result(60)
    history = (tmp_path / HISTORY).read_bytes()
    memory.close()
    assert (tmp_path / HISTORY).read_bytes() == b""
    (tmp_path / HISTORY).write_bytes(history)
    again = opened(words, tmp_path)
    assert names(again) == ["c", "a"]
    assert again.published.entries == memory.published.entries
    again.close()


def test_a_start_after_a_kill_forgets_all_at_once_and_saves(
    words: hebblm.LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = opened(words, tmp_path)
    for name in "abc":
        memory.learn(f"the {name} is here .", name)[1].result(60)
    memory.close()
    history = LearnedHistory(tmp_path / HISTORY)
    for item in (
        Forgotten("a"),
        LearnedText("c", "2026-01-01T00:00:00.000000+00:00", "the c is there ."),
        LearnedText("d", "2026-01-01T00:00:01.000000+00:00", "the d is there ."),
        Forgotten("b"),
    ):
        history.append(item)
    history.close()
    forgotten = []
    forget = hebblm.Reader.forget

    def counted(reader: hebblm.Reader, *names: str, **options: Any) -> None:
        forgotten.append(names)
        forget(reader, *names, **options)

    monkeypatch.setattr(hebblm.Reader, "forget", counted)
    again = opened(words, tmp_path)
    assert [sorted(names) for names in forgotten] == [["a", "b", "c"]]
    assert names(again) == ["c", "d"]
    assert (tmp_path / HISTORY).read_bytes() == b""
    saved = words.reader(memory=tmp_path / "reader")
    assert [document.name for document in saved.documents()] == ["c", "d"]
    again.close()


def test_what_cannot_be_forgotten_at_a_start_stays_in_the_history(
    words: hebblm.LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = opened(words, tmp_path)
    for name in "abc":
        memory.learn(f"the {name} is here .", name)[1].result(60)
    memory.close()
    history = LearnedHistory(tmp_path / HISTORY)
    for name in "ab":
        history.append(Forgotten(name))
    history.close()
    before = (tmp_path / HISTORY).read_bytes()
    forget = hebblm.Reader.forget

    def some(reader: hebblm.Reader, *names: str, **options: Any) -> None:
        if "a" in names:
            raise UserError("it cannot be read again")
        forget(reader, *names, **options)

    with monkeypatch.context() as patch:
        patch.setattr(hebblm.Reader, "forget", some)
        killed = opened(words, tmp_path)
    killed._stopping.set()  # it saves nothing more
    assert names(killed) == ["a", "c"]
    assert (tmp_path / HISTORY).read_bytes() == before
    again = opened(words, tmp_path)
    assert names(again) == ["c"]
    again.close()


def test_a_full_disk_ends_neither_start_nor_learning(
    words: hebblm.LanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(reader: hebblm.Reader, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    history = LearnedHistory(tmp_path / HISTORY)
    history.append(LearnedText("a", "2026-01-01T00:00:00.000000+00:00", "the a is here ."))
    history.close()
    monkeypatch.setattr(memories, "SAVED", 1)
    with monkeypatch.context() as patch:
        patch.setattr(hebblm.Reader, "save", full)
        memory = opened(words, tmp_path)
        memory.learn("the b is here .", "b")[1].result(60)
        memory.learn("the c is here .", "c")[1].result(60)
        assert names(memory) == ["a", "b", "c"]
        kept = LearnedHistory(tmp_path / HISTORY)
        assert [*present(kept.items)] == ["a", "b", "c"]
        kept.close()
    assert "cannot be saved now" in capsys.readouterr().err
    memory.close()
    assert (tmp_path / HISTORY).read_bytes() == b""


def test_too_many_documents_wait_for_none(words: hebblm.LanguageModel, tmp_path: Path) -> None:
    memory = opened(words, tmp_path, learning=2)
    long = "the function returns a list of arguments .\n" * 300
    first = memory.learn(long, "first")[1]
    while memory.waiting:
        time.sleep(0.01)
    for name in ("second", "third"):
        memory.learn("the end .", name)
    with pytest.raises(ApiError, match="wait to be learned"):
        memory.learn("the end .", "fourth")
    memory.close()
    assert not first.done() or first.exception() is None
    again = opened(words, tmp_path)
    assert names(again) == ["first", "second", "third"]
    again.close()


def test_what_cannot_be_learned_is_not_tried_again(
    words: hebblm.LanguageModel, tmp_path: Path
) -> None:
    memory = opened(words, tmp_path)
    with pytest.raises(UserError, match="no text"):
        memory.learn(" \n", "empty")
    with pytest.raises(UserError, match="surrogate"):
        memory.learn("half a \ud800", "half")
    with pytest.raises(UserError, match="not the name"):
        memory.learn("the end .", "two\nlines")
    with pytest.raises(ApiError, match="no document"):
        memory.forget("nothing")
    assert (tmp_path / HISTORY).read_bytes() == b""
    memory.close()


def test_an_address_has_some_requests_at_once_and_so_many_a_second() -> None:
    rates = Rates(Limits(rate=2, burst=3))
    assert [rates.allows("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert rates.allows("b", 0.0)
    assert [rates.allows("a", 1.0) for _ in range(3)] == [True, True, False]


def test_a_key_is_long_and_has_no_blanks(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for key in ("short", "0123456789abcdef 0123", "schlüssel0123456789"):
        path.write_text(key)
        with pytest.raises(UserError, match="at least 16"):
            read_key(path)
    path.write_text(" 0123456789abcdef\n")
    assert read_key(path) == "0123456789abcdef"
    with pytest.raises(UserError, match="can be reached by others"):
        ServeOptions(host="::")
    assert ServeOptions(host="127.0.0.2").names >= {"127.0.0.2", "localhost"}
