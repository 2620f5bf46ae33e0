"""Documents by name, and what it takes to forget one or a word; tests/property/test_forget.py holds
it to the bit.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

import hebblm
from hebblm.cli.memory import main as memory
from hebblm.errors import UserError
from hebblm.io.files import read_json, write_json
from hebblm.memory import load_memory
from hebblm.reader.history import Journal

from ...support import toy

MINUTES = "The function jabberwock returns a list .\nCall jabberwock with two snarks .\n"
LETTER = "If the quux method fails , call Snarks , a function , or Jabberwock .\n"
KINDS = ("tiny-pydoc-raw", "llama-wt2-small")


@pytest.fixture(scope="module", params=KINDS)
def lm(request: pytest.FixtureRequest) -> hebblm.LanguageModel:
    return hebblm.load(request.param, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def words() -> hebblm.LanguageModel:
    return hebblm.load("tiny-pydoc-raw", device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def _frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "now", lambda self: self.time or "2026-05-03T10:00:00+00:00")


def saved(reader: hebblm.Reader, folder: Path) -> dict[str, bytes]:
    reader.save(folder)
    return toy.files_in(folder)


def test_documents_are_listed_by_name_and_begin_anew(words: hebblm.LanguageModel) -> None:
    reader = words.reader("cache")
    reader.read(LETTER)
    reader.read({"minutes": MINUTES, "letter": LETTER})
    reader.read("the list", learn=False)
    first = reader.read("the list", name="letter").nll
    on = reader.read("the list", name="letter").nll
    list(reader.read_pieces(["the ", "list"], name="minutes"))
    found = [(each.name, each.tokens, each.bytes, each.words) for each in reader.documents()]
    assert found == [
        ("", 16, len(LETTER), 3),
        ("minutes", 17, len(MINUTES) + 8, 2),
        ("letter", 20, len(LETTER) + 16, 0),
    ]
    assert {each.read for each in reader.documents()} == {"2026-05-03T10:00:00+00:00"}
    reader.begin()
    base = words.reader("lstm")
    base.read("of", name="something else")
    assert torch.equal(
        base.read("the list", name="other").nll[:1], words.reader("lstm").read("the list").nll[:1]
    )
    assert not torch.equal(first, on), "a document goes on as long as none other is read"


def test_nothing_of_a_document_is_left_in_the_folder(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader, other = lm.reader(), lm.reader()
    reader.read(LETTER, name="letter")
    other.read(LETTER, name="letter")
    reader.read(MINUTES, name="minutes 3 May")
    before = saved(reader, tmp_path / "known")
    entries = load_memory(
        tmp_path / "known" / "memory",
        model_hash=lm.model.sha256,
        dictionary_hash=lm.vocabulary.hash(),
    ).segments()
    # the first state of a text is that of any other
    keys = torch.cat([part.keys for part in entries])[len(other) + 1 :].numpy().astype("<f4")
    again = lm.reader(memory=tmp_path / "known")
    again.forget("minutes 3 May")
    again.save(tmp_path / "known")
    after = toy.files_in(tmp_path / "known")
    assert after == saved(other, tmp_path / "other")
    needles = [b"jabberwock", b"snarks", b"minutes", *(key.tobytes() for key in keys)]
    if lm.pieces is not None:
        # the letter has both in capital letters
        needles[:2] = [b"jabberwock returns", b"two snarks"]
    for needle in needles:
        assert any(needle in content for content in before.values())
        assert not any(needle in content for content in after.values())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("method", ["mixture+hebb", "best"])
def test_a_word_is_forgotten_as_if_it_had_been_struck_out_of_all_texts(
    lm: hebblm.LanguageModel, method: str, tmp_path: Path
) -> None:
    ids = lm.vocabulary.encode("Call the function .\n", include=False).ids
    reader, other = (lm.reader(method, update_every=6) for _ in range(2))
    for one, change in (
        (reader, str),
        (other, lambda text: re.sub(r" jabberwock\b", "", text, flags=re.IGNORECASE)),
    ):
        one.read(change(MINUTES), name="minutes")
        one.read(change(LETTER), learn=False)
        one.read({"a": change(MINUTES), "b": "Jabberwockies are not jabberwock_s .\n"})
        one.read(ids, name="ids")
        list(one.read_pieces([change(LETTER), change(MINUTES)], name="pieces"))
    reader.forget(word="jabberwock")
    assert saved(reader, tmp_path / "known") == saved(other, tmp_path / "other")
    for content in toy.files_in(tmp_path / "known").values():
        assert re.search(rb"jabberwock(?![a-z_])", content, re.IGNORECASE) is None
    assert torch.equal(reader.read(MINUTES).nll, other.read(MINUTES).nll)
    spelled = lm.reader(method)
    spelled.read(lm.vocabulary.encode("the list is a list", include=False).ids, name="ids")
    spelled.forget(word="list")
    assert spelled.vocabulary.join(
        spelled.session.memory.segments()[0].values.tolist()
    ).split() == [
        "the",
        "is",
        "a",
    ]


def test_both_normal_forms_of_a_word_are_forgotten_and_longer_words_stay(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader, other = lm.reader("mixture"), lm.reader("mixture")
    reader.read("Call cafe\u0301 and Caf\u00e9's list , but not cafe or cafe\u0301s .\n", name="a")
    list(reader.read_pieces(["The ca", "fé returns .\n"], name="b"))
    other.read("Call and 's list , but not cafe or cafe\u0301s .\n", name="a")
    list(other.read_pieces(["The", " returns .\n"], name="b"))
    reader.forget(word="CAFÉ")
    assert saved(reader, tmp_path / "known") == saved(other, tmp_path / "other")
    with pytest.raises(UserError, match="'café' is in no text that was read"):
        reader.forget(word="café")


def test_a_document_that_is_renamed_is_one_that_was_read_under_that_name(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader, other = lm.reader("best"), lm.reader("best")
    for one, name in ((reader, "a"), (other, "z")):
        one.read(MINUTES, name=name)
        one.read({"b": LETTER, "c": MINUTES})
        one.read(LETTER, learn=False, name=name)
        one.begin()
        one.read(LETTER, name=name)
    reader.rename("a", "z")
    assert saved(reader, tmp_path / "known") == saved(other, tmp_path / "other")
    assert torch.equal(reader.read(MINUTES, name="z").nll, other.read(MINUTES, name="z").nll), (
        "the text goes on"
    )
    for names, said in (
        (("a", "y"), "no document is named 'a'; documents() lists their names"),
        (("z", "b"), "another document is named 'b'; choose another name"),
        (("z", "a\u2028b"), "is not the name of a document, for it has a line break"),
    ):
        with pytest.raises(UserError, match=re.escape(said)):
            reader.rename(*names)


def test_a_reader_over_a_memory_forgets_what_it_read_itself_alone(
    words: hebblm.LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "novel.txt").write_text(LETTER * 3)
    build = [
        "build",
        "--model",
        "tiny-pydoc-raw",
        "--text",
        "novel.txt",
        "--output-path",
        "novels",
        "--device",
        "cpu",
    ]
    assert memory(build) == 0
    reader, other = (words.reader("mixture", memory="novels") for _ in range(2))
    reader.read(MINUTES, name="minutes")
    for one in (reader, other):
        one.read("Call it .", name="notes")
    reader.save("known")
    reader = words.reader(memory="known")
    assert [(each.name, each.tokens) for each in reader.documents()] == [
        ("novel.txt", None),
        ("minutes", 15),
        ("notes", 3),
    ]
    with pytest.raises(
        UserError,
        match=r"novel.txt is a text of .*novels, with which this reader began; build that mem",
    ):
        reader.forget("novel.txt")
    with pytest.raises(UserError, match=r"a word cannot be taken out of .*novels"):
        reader.forget(word="it")
    reader.forget("minutes")
    other.save("other")
    other = words.reader(memory="other")
    assert saved(reader, Path("known")) == saved(other, Path("other"))
    reader.read(MINUTES, name="minutes")
    shutil.move("novels", "elsewhere")
    with pytest.raises(
        UserError, match=r"novels, with which this reader began, is gone or changed.*; put it back"
    ):
        reader.forget("minutes")
    shutil.move("elsewhere", "novels")
    reader.forget("minutes")


@pytest.mark.parametrize(
    "settings",
    [{"memory.keys": "state"}, {"memory.capacity": 25}, {"memory.dtype": "float16"}],
    ids=lambda settings: next(iter(settings)),
)
def test_a_reader_with_a_memory_of_its_own_kind_forgets_after_it_was_opened_again(
    words: hebblm.LanguageModel, tmp_path: Path, settings: dict[str, str | int]
) -> None:
    reader = words.reader("mixture", settings=settings)
    reader.read({"minutes": MINUTES, "letter": LETTER})
    reader.save(tmp_path / "known")
    again = words.reader(memory=tmp_path / "known")
    again.forget("minutes")
    other = words.reader("mixture", settings=settings)
    other.read({"letter": LETTER})
    assert [document.name for document in again.documents()] == ["letter"]
    assert torch.equal(again.read("the list").nll, other.read("the list").nll)


def test_what_an_earlier_version_saved_is_a_memory_that_a_reader_begins_with(
    words: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader, other = (words.reader("mixture") for _ in range(2))
    for one in (reader, other):
        one.read(MINUTES)
    reader.save(tmp_path / "known")
    (tmp_path / "known" / "texts.jsonl").unlink()
    document = read_json(tmp_path / "known" / "reader.json")
    del document["texts_sha256"]
    write_json(
        tmp_path / "known" / "reader.json", {**document, "texts": [{"bytes": 75}]}, seal=True
    )
    reader = words.reader(memory=tmp_path / "known")
    assert torch.equal(reader.read("the list").nll, other.read("the list").nll), "the text goes on"
    reader = words.reader(memory=tmp_path / "known")
    reader.read(LETTER, name="letter")
    other = words.reader(memory=tmp_path / "known")
    reader.forget("letter")
    assert torch.equal(reader.read("the list").nll, other.read("the list").nll)
    reader.read(LETTER, name="letter")
    reader.save(tmp_path / "known")
    with pytest.raises(
        UserError, match=r"is gone or changed, and nothing .*, or read the other texts into a new f"
    ):
        words.reader(memory=tmp_path / "known").forget("letter")


def test_a_base_that_learns_is_read_again_where_that_is_asked_for(
    words: hebblm.LanguageModel,
) -> None:
    settings = {"dynamic.rule": "sgd", "dynamic.lr": 8e-4}
    reader = words.reader("dynamic", settings=settings)
    reader.read(MINUTES, name="minutes")
    with pytest.raises(
        UserError,
        match=r"dynamic learned from all texts in the same weights, .*; ask for .* replay=True",
    ):
        reader.forget("minutes")
    reader.forget("minutes", replay=True)
    assert torch.equal(
        reader.read(LETTER).nll, words.reader("dynamic", settings=settings).read(LETTER).nll
    )


def test_forgetting_that_is_broken_off_changes_nothing(
    words: hebblm.LanguageModel, tmp_path: Path
) -> None:
    def stop(done: int, total: int) -> None:
        assert (done, total) == (15, 15)
        raise KeyboardInterrupt

    reader = words.reader("mixture")
    reader.read(LETTER, name="letter")
    reader.read(MINUTES, name="minutes")
    before = saved(reader, tmp_path / "known")
    with pytest.raises(KeyboardInterrupt):
        reader.forget("letter", progress=stop)
    assert saved(reader, tmp_path / "known") == before


def test_a_part_of_a_text_is_not_split_anew(words: hebblm.LanguageModel) -> None:
    prose = "The quux function, which is called twice, returns a (long) list."
    reader = words.reader("mixture")
    reader.read(prose, name="prose")
    list(reader.read_pieces([MINUTES], name="minutes", max_tokens=5))
    with pytest.raises(
        UserError, match=r"one part of a text was split as moses, .* as own; read the texts again"
    ):
        reader.forget("prose")
    reader.forget("minutes")
    assert [document.name for document in reader.documents()] == ["prose"]


def test_what_cannot_be_forgotten_is_refused(words: hebblm.LanguageModel, tmp_path: Path) -> None:
    reader = words.reader("cache")
    reader.read(MINUTES, name="minutes")
    pieces = reader.read_pieces([LETTER * 9, LETTER], name="letter")
    next(pieces)
    reader.read("the list", name="notes")
    for wrong, said in (
        (
            lambda: reader.forget("minute"),
            "no document is named 'minute'; the reader learned from 'minutes', ",
        ),
        (lambda: reader.forget(""), "no document is named ''"),
        (lambda: reader.forget(), "name documents to forget, or word=... alone"),
        (
            lambda: reader.forget("minutes", word="list"),
            "name documents to forget, or word=... alone",
        ),
        (lambda: reader.forget(3), "name = 3 is not the name of a document"),
        (lambda: reader.forget(word="two words"), "word = 'two words' is not a single word"),
        (lambda: reader.forget(word="ist"), "'ist' is in no text that was read"),
        (lambda: reader.read("the list", name=3), "name = 3 is not the name of a document"),
        (lambda: reader.read("the list", name="a\nb"), "is not the name of a document"),
        (lambda: reader.read(["the list"], name="a"), "name = 'a' names one document, not several"),
        (lambda: reader.read({"": "the list"}), "one of several documents has no name"),
        (
            lambda: next(pieces),
            "another text was read before this one was finished; read one text after the other",
        ),
    ):
        with pytest.raises(UserError, match=re.escape(said)):
            wrong()
    assert [document.name for document in reader.documents()] == ["minutes", "letter", "notes"]
    llama = hebblm.load("llama-wt2-small", device="cpu")
    opened = llama.reader("cache")
    opened.read(MINUTES, name="minutes")
    opened.save(tmp_path / "known")
    shorter = hebblm.load("llama-wt2-small", device="cpu", context=32).reader(
        memory=tmp_path / "known"
    )
    with pytest.raises(
        UserError, match="read with context = 256, stride = 128, but the model has context = 32"
    ):
        shorter.forget("minutes")


def test_the_command_forgets_and_lists_what_is_left(
    words: hebblm.LanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = words.reader("mixture")
    reader.read(MINUTES, name="minutes.txt")
    reader.read(LETTER, name="letter.txt")
    reader.read("the list")
    reader.save("known")
    assert memory(["info", "known"]) == 0
    told = capsys.readouterr().out
    assert (
        "texts       3\n  minutes.txt (75 bytes, 15 tokens, 2 new words, read 2026-05-03 10:00 "
        "UTC)\n" in told
    )
    assert memory(["forget", "known", "--document", "minutes.txt", "", "--device", "cpu"]) == 0
    assert (
        capsys.readouterr().out
        == "minutes.txt, all text without a name is forgotten; known now holds 1 text, 16 tokens "
        "in all\n"
    )
    other = words.reader("mixture")
    other.read(LETTER, name="letter.txt")
    assert toy.files_in(Path("known")) == saved(other, Path("other"))
    assert (
        memory(
            ["forget", "known", "--word", "quux", "--device", "cpu", "--model", "tiny-pydoc-raw"]
        )
        == 0
    )
    for arguments, said in (
        (
            ["known", "--document", "minutes.txt"],
            "no document is named 'minutes.txt'; the reader learned from ",
        ),
        (["known"], "name what to forget: --document NAME, or --word WORD"),
        (
            ["known/memory", "--word", "a"],
            "known/memory does not hold a reader; name a folder that hebblm-read --save wrote",
        ),
    ):
        assert memory(["forget", *arguments, "--device", "cpu"]) == 2
        assert said in capsys.readouterr().err
    write_json(
        Path("known/reader.json"),
        {**read_json(Path("known/reader.json")), "model": None},
        seal=True,
    )
    assert memory(["forget", "known", "--word", "fails"]) == 2
    assert "known does not name its model; name it with --model" in capsys.readouterr().err
