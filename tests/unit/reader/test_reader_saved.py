"""A reader that was saved goes on; what stands in a folder is neither lost nor taken for something
else.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import hebblm
from hebblm.adapt.methods import METHODS
from hebblm.adapt.settings import MethodSettings
from hebblm.errors import UserError
from hebblm.io.files import atomic_path, read_json, sha256, write_json
from hebblm.io.groups import prefixed, under
from hebblm.io.locks import file_lock
from hebblm.io.tensors import read_tensors, write_tensors
from hebblm.memory import FlatMemory, save_memory

from .test_reader import MODEL, TEXT

REST = "Then frobnitz calls quux and blarg .\n"


@pytest.fixture(scope="module")
def lm() -> hebblm.LanguageModel:
    return hebblm.load(MODEL, device=torch.device("cpu"))


@pytest.mark.parametrize("method", ["cache", "mixture+hebb", "best"])
def test_a_saved_reader_goes_on_to_the_same_numbers(
    lm: hebblm.LanguageModel, method: str, tmp_path: Path
) -> None:
    reader = lm.reader(method, update_every=10)
    reader.read(TEXT)
    reader.save(tmp_path / "known")
    reader.save(tmp_path / "known")  # replaces its own
    again = lm.reader(method, memory=tmp_path / "known")
    assert len(again) == len(reader)
    assert again.suggest("The quux", 4) == reader.suggest("The quux", 4)
    first, second = reader.read(REST), again.read(REST)
    assert torch.equal(first.nll, second.nll)
    assert torch.equal(first.new, second.new)
    assert first.new.sum() == 1
    numbers = {"cache.gamma": 0.2, "mixture.gamma": 0.2, "mixture_hebb.weight": 0.2, "best.lr": 0.0}
    other = lm.reader(method, memory=tmp_path / "known", settings=numbers)
    assert not torch.equal(other.read(REST).nll, first.nll), (
        "what is learned elsewhere fits a reader of other shares"
    )


def test_a_folder_that_another_process_writes_is_left_to_it(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader = lm.reader("cache")
    reader.read(TEXT)
    with (
        file_lock(tmp_path / "known", "this memory"),
        ThreadPoolExecutor(1) as other,
        pytest.raises(UserError, match="is at work on this memory"),
    ):
        other.submit(reader.save, tmp_path / "known").result()
    assert not (tmp_path / "known").exists()


def test_a_text_that_no_file_holds_leaves_a_reader_that_can_be_saved(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader = lm.reader("cache")
    reader.read("the list")
    for text in ("the \ud83d list", ["a list", "the \ud83d list"]):
        with pytest.raises(UserError, match="half a surrogate pair"):
            reader.read(text)
    reader.read("the Frobnitz list")
    reader.save(tmp_path / "known")
    assert lm.reader("cache", memory=tmp_path / "known").vocabulary.words == ["Frobnitz"]


def test_what_else_stands_in_a_folder_is_not_lost(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    folder, memory = tmp_path / "known", FlatMemory(lm.model.key_width)
    reader = lm.reader("knn")
    save_memory(memory, tmp_path / "memory", model_hash="a", dictionary_hash="b")
    save_memory(memory, tmp_path / "memory", model_hash="a", dictionary_hash="b")
    for _ in range(2):
        reader.save(folder)
    for place, save in (
        (folder, reader.save),
        (
            tmp_path / "memory",
            lambda place: save_memory(memory, place, model_hash="a", dictionary_hash="b"),
        ),
    ):
        (place / "chapter.txt").write_text("mine")
        with pytest.raises(
            UserError, match=r"holds other files \(chapter.txt\), which would be overwritten"
        ):
            save(place)
        assert (place / "chapter.txt").read_text() == "mine"


def test_a_memory_of_another_reader_is_refused(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    for name in ("one", "two"):
        reader = lm.reader("knn")
        reader.read(f"the {name} list returns another {name}")
        reader.save(tmp_path / name)
    shutil.rmtree(tmp_path / "one" / "memory")
    shutil.copytree(tmp_path / "two" / "memory", tmp_path / "one" / "memory")
    with pytest.raises(
        UserError, match=r"one/memory/manifest.json was changed since it was written; read the text"
    ):
        lm.reader("knn", memory=tmp_path / "one")


def test_a_reader_that_was_put_aside_by_a_killed_save_is_found(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader, folder = lm.reader("knn"), tmp_path / "known"
    reader.read("the Frobnitz list")
    with atomic_path(folder) as temporary:
        pass
    folder.unlink()
    reader.save(folder)
    folder.rename(
        tmp_path / f"{temporary.name.replace(f'-{os.getpid()}.', f'-{2**22 + 1}.')}.former"
    )
    assert lm.reader("knn", memory=folder).vocabulary.words == ["Frobnitz"]


def test_labels_that_are_no_words_are_refused(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    memory = FlatMemory(lm.model.key_width)
    memory.add(torch.ones(1, lm.model.key_width), torch.tensor([lm.vocabulary.known]))
    save_memory(
        memory, tmp_path / "m", model_hash=lm.model.sha256, dictionary_hash=lm.vocabulary.hash()
    )
    with pytest.raises(UserError, match="labels of words that are not in it"):
        lm.reader(memory=tmp_path / "m")


OF_FIRST = "context 0: 0 weights: "


def place_of(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "place.safetensors", "hebblm-place", "")[0]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return under(OF_FIRST, {n: t for n, t in place_of(folder).items() if n.startswith(OF_FIRST)})


def with_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Replace the mixture weights of a saved reader."""
    path = folder / "place.safetensors"
    others = {n: t for n, t in place_of(folder).items() if not n.startswith(OF_FIRST)}
    write_tensors(path, {**others, **prefixed(OF_FIRST, weights)}, "hebblm-place")
    with_changes(folder, place_sha256=sha256(path))


def with_changes(folder: Path, **changes: object) -> None:
    """Change what a saved reader says of itself, None to leave a key out."""
    document = read_json(folder / "reader.json") | changes
    write_json(
        folder / "reader.json",
        {name: value for name, value in document.items() if value is not None},
        seal=True,
    )


def test_a_model_of_pieces_counts_after_six_of_them_and_keeps_an_order_that_was_saved(
    tmp_path: Path,
) -> None:
    llama = hebblm.load("llama-wt2-small", device="cpu")
    assert llama.reader("best").session.context.ngrams.order == 6  # type: ignore[union-attr]
    reader = llama.reader("ngram", settings={"ngram.order": 3})
    reader.read(TEXT)
    reader.save(tmp_path / "known")
    with_changes(tmp_path / "known", settings=None)  # an early version did not write them
    again = llama.reader(memory=tmp_path / "known")
    assert again.session.context.ngrams.order == 3  # type: ignore[union-attr]
    torch.testing.assert_close(again.read(REST).nll, reader.read(REST).nll, rtol=0, atol=1e-3)


def test_names_of_shares_tell_those_of_a_method_apart_and_hold_no_settings() -> None:
    names: dict[str, set[str]] = {}
    for name, method in METHODS.items():
        mixture_weights = [
            each.learned_as
            for each in method.predictor(MethodSettings()).requirements.mixture_weights
        ]
        assert len(set(mixture_weights)) == len(mixture_weights)
        names[name] = set(mixture_weights)
    assert names["mixture+hebb"] == {
        "shares of mixture/1",
        "weight of mbpa/1",
        "shares of mixture+hebb/1",
    }
    assert (
        names["best"]
        == names["dynamic+best"]
        == {"gate of base,short,medium,long,knn,mbpa,ngram/3", "weight of mbpa/1"}
    )
    assert names["hebb"] == names["mbpa"] == {"weight of mbpa/1"}


def test_shares_that_do_not_fit_are_told_of_and_begin_anew(
    lm: hebblm.LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = lm.reader("cache", update_every=10)
    reader.read(TEXT)
    reader.save(tmp_path / "known")
    [[name, numbers]] = weights_of(tmp_path / "known").items()
    assert name == "shares of cache/1"
    plain = lm.reader(memory=tmp_path / "known").read(REST)
    assert capsys.readouterr().err == ""
    for changed, told in (
        ({"shares of cache/2": numbers}, "cache/2"),
        ({name: numbers[1:]}, "cache/1"),
    ):
        with_weights(tmp_path / "known", changed)
        found = lm.reader(memory=tmp_path / "known").read(REST)
        said = (
            f"{tmp_path / 'known'} holds learned shares that cache does not use here: shares of "
            f"{told}\n"
        )
        assert capsys.readouterr().err == said
        assert not torch.equal(found.nll, plain.nll)


def test_a_reader_is_opened_as_it_was_saved_unless_another_is_asked_for(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    assert (lm.reader().method, lm.reader().update_every) == ("best", 50)
    reader = lm.reader("knn", k=7, update_every=9, settings={"knn.temperature": 0.5})
    reader.read(TEXT)
    reader.save(tmp_path / "known")
    again = lm.reader(memory=tmp_path / "known")
    assert (again.method, again.update_every) == ("knn", 9)
    kept = {"knn.temperature": 0.5, "knn.gamma": "online", "knn.scale": "relative"}
    assert read_json(tmp_path / "known" / "reader.json")["settings"] == kept
    expected = reader.read(REST)
    assert torch.equal(again.read(REST).nll, expected.nll)
    again.save(tmp_path / "known")
    other = lm.reader(
        "mixture", memory=tmp_path / "known", k=3, update_every=50, settings={"mixture.theta": 1.0}
    )
    assert (other.method, other.update_every) == ("mixture", 50)
    for changes in ({"k": 2}, {"update_every": 1}, {"settings": {"knn.temperature": 0.9}}):
        other = lm.reader(memory=tmp_path / "known", **changes)  # type: ignore[arg-type]
        assert not torch.equal(
            other.read(REST).nll, lm.reader(memory=tmp_path / "known").read(REST).nll
        )


def test_settings_that_are_no_longer_there_are_told_of(
    lm: hebblm.LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm.reader("knn").save(tmp_path / "known")
    with_changes(tmp_path / "known", settings={"knn.warmth": 1.0, "knn.temperature": 0.5})
    lm.reader(memory=tmp_path / "known")
    assert (
        "was saved with settings that this version does not have: knn.warmth\n"
        in capsys.readouterr().err
    )


def test_a_saved_reader_of_an_unknown_method_opens_with_another(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    reader = lm.reader("hebb")
    reader.read(TEXT)
    reader.save(tmp_path / "known")
    with_changes(
        tmp_path / "known",
        method="hebb-learned",
        settings={"hebb_learned.eta": 3.0, "hebb.eta": 8.0},
    )
    with pytest.raises(UserError, match=r"^unknown method 'hebb-learned'"):
        lm.reader(memory=tmp_path / "known")
    assert torch.equal(
        lm.reader("hebb", memory=tmp_path / "known").read(REST).nll, reader.read(REST).nll
    )


def test_model_and_texts_are_recorded(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    reader = lm.reader("cache")
    reader.read(TEXT)
    reader.read(["the list", "a list"])
    reader.read(REST, learn=False)
    parts = [*reader.read_pieces(["a list\n", "of lists\n"], name="notes.txt")]
    assert len(parts) == 1
    reader.save(tmp_path / "known")
    again = lm.reader(memory=tmp_path / "known")
    again.read(REST)
    again.save(tmp_path / "known")
    document = read_json(tmp_path / "known" / "reader.json")
    assert document["model"] == MODEL
    first = len(TEXT) + len("the list") + len("a list")
    found = [
        (text.get("path"), text["bytes"], text["tokens"], text["words"])
        for text in document["texts"]
    ]
    assert found == [(None, first + len(REST), 44, 3), ("notes.txt", 16, 6, 0)]
    (tmp_path / "known" / "texts.jsonl").unlink()
    with_changes(tmp_path / "known", texts=None, texts_sha256=None, model=None)
    lm.reader(memory=tmp_path / "known").save(tmp_path / "later")
    document = read_json(tmp_path / "later" / "reader.json")
    assert document["texts"] == [{"path": str(tmp_path / "known")}], (
        "an earlier version recorded none"
    )


@pytest.mark.parametrize("method", ["cache", "dynamic"])
def test_the_state_of_a_session_is_enough_to_go_on_to_the_bit(method: str) -> None:
    """The method keeps nothing in the memory, whose entries are not part of that state."""
    lm = hebblm.load("tiny-pydoc-raw", device=torch.device("cpu"))
    settings = {"dynamic.rule": "stream"} if method == "dynamic" else {}
    one, other = (lm.reader(method, update_every=4, settings=settings) for _ in range(2))
    one.read("The function frobnitz returns a snark .\nCall frobnitz .\n")
    other.vocabulary.split("whitespace")
    other.vocabulary.include(one.vocabulary.words)
    other.session.base.grow(len(one.vocabulary.words))
    state = {name: value.clone() for name, value in one.session.online.state_dict().items()}
    other.session.online.load_state_dict(state)
    other.session.last = one.session.last
    more = "The snark calls frobnitz with a wug .\n"
    encoded = [one.vocabulary.encode(more, include=True)]
    other.vocabulary.encode(more, include=True)
    first, second = (
        each.session.read(encoded, [len(more)], lambda done, total: None, learn=True)[0]
        for each in (one, other)
    )
    assert torch.equal(first.nll, second.nll)
    assert first.unadapted is not None
    assert second.unadapted is not None
    assert torch.equal(first.unadapted.nll, second.unadapted.nll)
    assert not torch.equal(first.nll, first.unadapted.nll)
