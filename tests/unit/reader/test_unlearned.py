"""A text that is read with learn=False leaves nothing on the disk but what the place in it
needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import hebblm
from hebblm.io.files import read_json, sha256, write_json
from hebblm.reader.history import Journal

from ...support import toy

KNOWN = "The function frobnitz returns a list .\nCall frobnitz with two arguments .\n"
PRIVATE = (
    "The jabberwock method , or Zyxel , calls the error handler when Snarkowitz fails with an "
    "assertion .\n" * 3
)
SECRET = (b"jabberwock", b"Zyxel", b"zyxel", b"Snarkowitz", b"snarkowitz", b"assertion")
LAST = 7  # ids of the longest n-gram and its token


@pytest.fixture(scope="module", params=["tiny-pydoc-raw", "llama-wt2-small"])
def lm(request: pytest.FixtureRequest) -> hebblm.LanguageModel:
    return hebblm.load(request.param, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def words() -> hebblm.LanguageModel:
    return hebblm.load("tiny-pydoc-raw", device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def _frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "now", lambda self: self.time or "2026-05-03T10:00:00+00:00")


def rows_of_ids(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Return all rows of whole numbers in a folder, by file and name."""
    for path in folder.rglob("*.safetensors"):
        for name, tensor in load_file(path).items():
            if not tensor.is_floating_point():
                yield f"{path.name} {name}", tensor.flatten().tolist()


def longest_run(row: list[int], text: list[int]) -> int:
    """Return how many ids of a text a row holds one after the other, forwards or backwards."""
    best = 0
    for ids in (text, text[::-1]):
        held = {tuple(ids[at : at + 2]) for at in range(len(ids) - 1)}
        run = 1
        for pair in pairwise(row):
            run = run + 1 if pair in held else 1
            best = max(best, run if run > 1 else 0)
    return best


@pytest.mark.parametrize("way", ["read", "pieces", "side by side", "cut"])
def test_nothing_of_a_text_that_was_not_learned_is_written(
    lm: hebblm.LanguageModel, way: str, tmp_path: Path
) -> None:
    reader, other = lm.reader("best"), lm.reader("best")
    reader.read(KNOWN, name="known")
    other.read(KNOWN, name="known")
    if way == "read":
        reader.read(PRIVATE, learn=False)
    elif way == "side by side":
        reader.read([PRIVATE, PRIVATE], learn=False)
    else:
        pieces = [line + "\n" for line in PRIVATE.splitlines()]
        list(reader.read_pieces(pieces, learn=False, max_tokens=9 if way == "cut" else None))
    reader.save(tmp_path / "standing")
    reader.begin()
    reader.save(tmp_path / "begun")
    other.begin()
    other.save(tmp_path / "other")
    files, expected = (toy.files_in(tmp_path / name) for name in ("begun", "other"))
    told = [json.loads(line) for line in files["texts.jsonl"].splitlines()]
    assert [item for item in told if item and item["type"] == "split"] == [
        {"type": "split", "name": "", "splitting": "own"}
    ]
    for name in ("texts.jsonl", "reader.json"):  # which names it, and the hash of that file
        files.pop(name), expected.pop(name)
    assert files == expected, (
        "at the beginning of a text the folder is that of a reader that never read it"
    )
    assert reader.suggest("The", 5, budget=8) == other.suggest("The", 5, budget=8)

    ids = list(lm.vocabulary.encode(PRIVATE, include=False).ids)
    for folder in ("standing", "begun"):
        for name, content in toy.files_in(tmp_path / folder).items():
            assert not [word for word in SECRET if word in content], name
    for where, row in rows_of_ids(tmp_path / "standing"):
        # which a model with attention reads again
        window = where == "place.safetensors base: state tokens"
        assert window or longest_run(row, ids) < LAST, where


def test_the_place_in_a_text_that_was_not_learned_is_saved(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader = lm.reader("best")
    reader.read(KNOWN, name="known")
    reader.read(PRIVATE, learn=False, name="letter")
    reader.save(tmp_path / "known")
    again = lm.reader(memory=tmp_path / "known")
    again.save(tmp_path / "again")
    assert toy.files_in(tmp_path / "again") == toy.files_in(tmp_path / "known")
    for one in (reader, again):
        one.read("Call Zyxel .", name="letter")  # it goes on
    asked = reader.suggest("Call", 3, budget=8), again.suggest("Call", 3, budget=8)
    for one, two in zip(*asked, strict=True):
        assert one.word == two.word
        assert one.probability == pytest.approx(two.probability, rel=1e-4)


def test_what_was_learned_after_it_begins_anew_where_another_is_forgotten(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader, other = lm.reader("best"), lm.reader("best")
    for one in (reader, other):
        one.read(KNOWN, name="known")
    reader.read("Something quux else .\n", name="gone")
    for one in (reader, other):
        one.read(PRIVATE, learn=False, name="letter")
    other.session.begin_text()
    reader.read("Call frobnitz .\n", name="letter")
    other.read("Call frobnitz .\n", name="letter")
    reader.forget("gone")
    reader.save(tmp_path / "one")
    other.save(tmp_path / "other")
    assert toy.files_in(tmp_path / "one") == toy.files_in(tmp_path / "other")
    for content in toy.files_in(tmp_path / "one").values():
        assert not [word for word in SECRET if word in content]
    reader.forget("letter")
    assert [each.name for each in reader.documents()] == ["known"]
    reader.save(tmp_path / "one")
    assert not [
        name for name, content in toy.files_in(tmp_path / "one").items() if b"letter" in content
    ]


def test_texts_that_an_earlier_version_kept_are_not_written_again(
    words: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader = words.reader("mixture")
    reader.read(KNOWN, name="known")
    reader.read(PRIVATE, learn=False, name="letter")
    reader.save(tmp_path / "known")
    kept = tmp_path / "known" / "texts.jsonl"
    old = {
        "learned": False,
        "read": "2026-05-03T10:00:00+00:00",
        "tokens": 54,
        "bytes": len(PRIVATE),
        "words": 0,
    }
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    beside = {"type": "side by side", "texts": [{"name": "b", **old, "texts": [PRIVATE]}]}
    assert lines[-1] == {"type": "passed", "name": "letter", "splitting": "own"}
    lines[-1:] = [beside, {"type": "read", "name": "letter", **old, "texts": [PRIVATE]}]
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines))
    document = read_json(tmp_path / "known" / "reader.json")
    write_json(
        tmp_path / "known" / "reader.json", {**document, "texts_sha256": sha256(kept)}, seal=True
    )
    again = words.reader(memory=tmp_path / "known")
    assert torch.equal(
        again.read(KNOWN, name="letter").nll, reader.read(KNOWN, name="letter").nll
    ), "the text goes on"
    again = words.reader(memory=tmp_path / "known")
    again.save(tmp_path / "known")
    for name, content in toy.files_in(tmp_path / "known").items():
        assert not [word for word in SECRET if word in content], name
    again.forget("known")
    assert len(again) == 0
