"""A reader that was saved goes on; what stands in a folder is neither lost nor taken for something else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

import hebblm
from hebblm.errors import UserError
from hebblm.files import atomic_path
from hebblm.locks import held
from hebblm.memory import FlatMemory, save_memory

from .test_reader import MODEL, TEXT


@pytest.fixture(scope="module")
def lm() -> hebblm.LanguageModel:
    return hebblm.load(MODEL, device=torch.device("cpu"))


@pytest.mark.parametrize("method", ["cache", "mixture+hebb", "best"])
def test_a_saved_reader_goes_on_to_the_same_numbers(lm: hebblm.LanguageModel, method: str, tmp_path: Path) -> None:
    reader = lm.reader(method)
    reader.read(TEXT)
    reader.save(tmp_path / "known")
    reader.save(tmp_path / "known")  # replaces its own
    again = lm.reader(method, memory=tmp_path / "known")
    assert len(again) == len(reader)
    assert again.suggest("The quux", 4) == reader.suggest("The quux", 4)
    rest = "Then frobnitz calls quux and blarg .\n"
    first, second = reader.read(rest), again.read(rest)
    assert torch.equal(first.nll, second.nll)
    assert torch.equal(first.new, second.new)
    assert first.new.sum() == 1
    numbers = {"cache.gamma": 0.2, "mixture.gamma": 0.2, "mixture_hebb.weight": 0.2, "best.rate": 0.0}
    other = lm.reader(method, memory=tmp_path / "known", settings=numbers)
    assert not torch.equal(other.read(rest).nll, first.nll), "what is learned elsewhere fits a reader of other shares"


def test_a_folder_that_another_process_writes_is_left_to_it(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    reader = lm.reader("cache")
    reader.read(TEXT)
    with held(tmp_path / "known", "this memory"), pytest.raises(UserError, match="is at work on this memory"):
        reader.save(tmp_path / "known")
    assert not (tmp_path / "known").exists()


def test_a_text_that_no_file_holds_leaves_a_reader_that_can_be_saved(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
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
        (tmp_path / "memory", lambda place: save_memory(memory, place, model_hash="a", dictionary_hash="b")),
    ):
        (place / "chapter.txt").write_text("mine")
        with pytest.raises(UserError, match=r"holds other files \(chapter.txt\), which would be lost"):
            save(place)
        assert (place / "chapter.txt").read_text() == "mine"


def test_a_memory_of_another_reader_is_refused(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    for name in ("one", "two"):
        reader = lm.reader("knn")
        reader.read(f"the {name} list returns another {name}")
        reader.save(tmp_path / name)
    shutil.rmtree(tmp_path / "one" / "memory")
    shutil.copytree(tmp_path / "two" / "memory", tmp_path / "one" / "memory")
    with pytest.raises(UserError, match=r"one/memory/manifest.json was changed since it was written; read the text"):
        lm.reader("knn", memory=tmp_path / "one")


def test_a_reader_that_was_put_aside_by_a_killed_save_is_found(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    reader, folder = lm.reader("knn"), tmp_path / "known"
    reader.read("the Frobnitz list")
    with atomic_path(folder) as temporary:
        pass
    folder.unlink()
    reader.save(folder)
    folder.rename(tmp_path / f"{temporary.name.replace(f'-{os.getpid()}.', f'-{2**22 + 1}.')}.former")
    assert lm.reader("knn", memory=folder).vocabulary.words == ["Frobnitz"]


def test_labels_that_are_no_words_are_refused(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    memory = FlatMemory(lm.model.key_width)
    memory.add(torch.ones(1, lm.model.key_width), torch.tensor([lm.vocabulary.known]))
    save_memory(memory, tmp_path / "m", model_hash=lm.model.sha256, dictionary_hash=lm.vocabulary.hash())
    with pytest.raises(UserError, match="labels of words that are not beside it"):
        lm.reader(memory=tmp_path / "m")
