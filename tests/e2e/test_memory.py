"""hebblm-memory: texts are remembered once, go on after an interruption, and can be read with and
merged.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hebblm
from hebblm.cli.memory import main
from hebblm.cli.read import main as read
from hebblm.errors import UserError
from hebblm.memory import load_memory, save_memory
from hebblm.memory.base import signed_sqrt
from hebblm.memory.ngram_rows import NGramRows, contexts_of
from hebblm.memory.ngrams import NGrams
from hebblm.memory.persistence import read_about, read_ngrams
from hebblm.models.awd import AwdModel
from hebblm.models.base import Segment
from hebblm.reader import corpora as corpus_memory
from hebblm.reader.corpora import merge

from ..unit.models.architectures import random_model, tokenizer
from .conftest import sentences

MODEL = "tiny-pydoc-raw"
FIRST = "The function frobnitz returns a list .\nCall frobnitz with two arguments .\n"
SECOND = "If quux fails , the frobnitz method returns None .\n"
EXACT = ["--set", "memory.index=exact", "--device", "cpu"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts" / "more").mkdir(parents=True)
    (tmp_path / "texts" / "a.txt").write_text(FIRST)
    (tmp_path / "texts" / "more" / "b.txt").write_text(SECOND)
    (tmp_path / "texts" / "c.png").write_bytes(b"\xff")
    return tmp_path


def build(text: str, out: str, *options: str, model: str = MODEL) -> None:
    assert (
        main(["build", "--model", model, "--text", text, "--output-path", out, *EXACT, *options])
        == 0
    )


def held(folder: str) -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...]]:
    """Return keys, labels and new words of a folder."""
    found = corpus_memory.SavedMemory.of(Path(folder))
    manifest = found.manifest
    owner = {"model_hash": manifest.model_hash, "dictionary_hash": manifest.dictionary_hash}
    [part] = load_memory(found.folder, **owner).segments()
    return part.keys, part.values, found.words


def test_a_reader_would_have_remembered_the_same(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "The function returns a list .\nIf it fails , the method returns None .\n"
    (place / "known.txt").write_text(text)
    build("known.txt", "built")
    reader = hebblm.load(MODEL, device="cpu").reader("lstm", settings={"memory.index": "exact"})
    reader.read(text)
    reader.save(place / "read")
    (keys, labels, words), (wanted, ids, _) = held("built"), held("read")
    torch.testing.assert_close(keys, wanted, rtol=1e-4, atol=1e-5)
    assert torch.equal(labels, ids)
    assert words == ()
    assert "is replaced" not in capsys.readouterr().err
    build("texts", "built")
    assert (
        "built holds a memory of other texts or settings; it is replaced" in capsys.readouterr().err
    )


def test_a_model_of_transformers_remembers(place: Path) -> None:
    random_model("Llama").save_pretrained(place / "model")
    tokenizer().save_pretrained(place / "model")
    text = "\n".join(sentences(3, 1, 40)) + "\n"
    (place / "known.txt").write_text(text)
    build("known.txt", "built", "--context", "32", "--stride", "8", model="model")
    lm = hebblm.load(place / "model", device="cpu", context=32, stride=8)
    reader = lm.reader("knn", memory=place / "built")
    assert len(reader) == len(lm.vocabulary.encode(text, include=False).ids)
    keys, labels, _ = held("built")
    assert torch.equal(labels, torch.tensor(lm.vocabulary.encode(text, include=False).ids))
    base = lm.model.base()
    inputs = torch.cat([torch.tensor([lm.vocabulary.start]), labels[:-1]])
    torch.testing.assert_close(keys[:20], signed_sqrt(base.read(inputs[:20])), rtol=1e-3, atol=1e-4)


def test_what_was_remembered_is_expected_and_stays_as_it_is_when_only_read(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build("texts", "known")
    before = {path.name: path.read_bytes() for path in (place / "known").iterdir()}
    identity = str(read_about(place / "known")["identity"])
    left = [place / f".{name}.lock" for name in ("known", f".known.{identity[:12]}.parts")]
    for lock in left:  # as of a process that was killed when all was written
        lock.touch()
    left.append(place / f".known.{identity[:12]}.parts")
    left[-1].mkdir()
    (left[-1] / "part-00000.safetensors").touch()
    build("texts", "known")
    assert not any(path.exists() for path in left)
    assert "already holds this memory" in capsys.readouterr().err
    reader = hebblm.load(MODEL, device="cpu").reader("mixture+hebb", memory="known")
    assert reader.vocabulary.words == ["frobnitz", "quux"]
    assert "frobnitz" in [word for word, _, _ in reader.suggest("Call", 3)]
    # What a memory holds was observed: Hebb's term counts it.
    hebb, mbpa = (
        hebblm.load(MODEL, device="cpu").reader(name, memory="known") for name in ("hebb", "mbpa")
    )
    assert hebb.suggest("Call", 1) != mbpa.suggest("Call", 1)
    ask = [MODEL, "texts/a.txt", "--memory", "known", "--device", "cpu"]
    assert read([*ask, "--read-only"]) == 0
    assert read([*ask, "--save", "grown"]) == 0
    assert len(held("known")[1]) < len(held("grown")[1])
    assert {path.name: path.read_bytes() for path in (place / "known").iterdir()} == before


@pytest.mark.parametrize(
    ("call", "end", "splitting"), [(1, " .", "own"), (3, " .", "own"), (3, ".", "moses")]
)
def test_an_interrupted_build_goes_on_to_the_same_bytes(
    place: Path,
    call: int,
    end: str,
    splitting: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (place / "texts" / "a.txt").write_text(FIRST.replace(" .", end))
    monkeypatch.setattr(corpus_memory, "PART_SIZE", 20)
    build("texts", "whole")
    original, calls = corpus_memory._entries, itertools.count(1)

    def entries(*arguments: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(corpus_memory, "_entries", entries)
    arguments = ["build", "--model", MODEL, "--text", "texts", "--output-path", "cut", *EXACT]
    assert main(arguments) == 130
    assert not (place / "cut").exists()
    capsys.readouterr()
    assert main(arguments) == 0
    assert (f"going on from piece {call}" in capsys.readouterr().err) == (call > 1)
    assert next(calls) == 6, "two pieces of each text, and the interrupted one"
    for path in (place / "whole").iterdir():
        assert (place / "cut" / path.name).read_bytes() == path.read_bytes(), path.name
    assert {path.name for path in place.iterdir()} == {"texts", "whole", "cut"}
    assert corpus_memory.SavedMemory.of(place / "cut").about["tokenizer"] == splitting


def test_a_build_goes_on_within_a_piece(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "long.txt").write_text(FIRST * 60)
    build("long.txt", "whole")
    original, read = AwdModel.segments, []

    def segments(*arguments: Any) -> Iterator[Segment]:
        for segment in original(*arguments):
            if len(read) == 2:
                read.append("interrupted")
                raise KeyboardInterrupt
            read.append("segment")
            yield segment

    monkeypatch.setattr(AwdModel, "segments", segments)
    arguments = ["build", "--model", MODEL, "--text", "long.txt", "--output-path", "cut", *EXACT]
    assert main(arguments) == 130
    assert main(arguments) == 0
    assert read == ["segment", "segment", "interrupted", "segment", "segment"]
    for path in (place / "whole").iterdir():
        assert (place / "cut" / path.name).read_bytes() == path.read_bytes(), path.name
    assert {path.name for path in place.iterdir()} == {"texts", "long.txt", "whole", "cut"}


def test_prose_is_remembered_as_a_reader_reads_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prose = 'The function returns a list, and "it" is called twice.\n' * 3
    (place / "prose.txt").write_text(prose)
    build("prose.txt", "built")
    assert "prose.txt is split at punctuation as well: " in (told := capsys.readouterr().err)
    assert "warning" not in told
    lm = hebblm.load(MODEL, device="cpu")
    vocabulary = (reader := lm.reader("lstm")).vocabulary
    tokens = reader.read(prose).tokens
    assert tokens[4:6] == ("list", ",")
    assert held("built")[1].tolist() == list(vocabulary.encode(prose, include=False).ids)
    assert lm.reader("lstm", memory="built").read("a list, ").tokens == ("a", "list", ",")

    capsys.readouterr()
    build("prose.txt", "built", "--tokenizer", "whitespace")
    told = capsys.readouterr().err
    assert "split at punctuation" not in told
    assert (
        "of the tokens of prose.txt are outside the model's vocabulary, most often 'list,', "
        in told
    )
    assert "already holds this memory" not in told
    assert set(held("built")[2]) == {"list,", '"it"', "twice."}
    assert lm.reader("lstm", memory="built").read(prose).tokens[4] == "list,"


def test_the_first_text_with_words_says_how_all_are_split(place: Path) -> None:
    (place / "texts" / "0.txt").write_text("\n" * 9)
    (place / "texts" / "prose.txt").write_text("Call list, twice.\n")
    build("texts", "tokenised")
    build("texts/prose.txt", "prose")
    assert held("tokenised")[2] == ("frobnitz", "quux", "list,", "twice.")
    assert main(["merge", "tokenised", "prose", "--output-path", "both"]) == 0
    assert main(["merge", "prose", "prose", "--output-path", "twice"]) == 0
    lm = hebblm.load(MODEL, device="cpu")
    found = [
        lm.reader("lstm", memory=name).vocabulary.splitting
        for name in ("tokenised", "prose", "both", "twice")
    ]
    assert found == ["own", "moses", None, "moses"]
    # One that an earlier version built says nothing of it, and was split at spaces.
    one = corpus_memory.SavedMemory.of(Path("prose"))
    about = {name: value for name, value in one.about.items() if name != "tokenizer"}
    owner = {"model_hash": one.manifest.model_hash, "dictionary_hash": one.manifest.dictionary_hash}
    save_memory(load_memory(one.folder, **owner), Path("earlier"), **owner, about=about)
    assert lm.reader("lstm", memory="earlier").vocabulary.splitting == "own"


@pytest.mark.parametrize("index", ["exact", "auto"])
def test_merged_memories_hold_both_with_one_number_a_word(
    place: Path, index: str, capsys: pytest.CaptureFixture[str]
) -> None:
    build("texts/a.txt", "one", "--set", f"memory.index={index}")
    build("texts/more", "two")
    reader = hebblm.load(MODEL, device="cpu").reader("lstm", memory="two")
    reader.read("Call quux .")
    reader.save(place / "read")
    assert main(["merge", "one", "read", "--output-path", "both"]) == 0
    (first, labels, words), (second, others, other_words), (keys, values, merged) = map(
        held, ("one", "read", "both")
    )
    assert (words, other_words, merged) == (
        ("frobnitz",),
        ("quux", "frobnitz"),
        ("frobnitz", "quux"),
    )
    assert torch.equal(keys, torch.cat([first, second]))
    known = hebblm.load(MODEL, device="cpu").vocabulary.known
    swapped = others.clone()
    swapped[others == known], swapped[others == known + 1] = known + 1, known
    assert torch.equal(values, torch.cat([labels, swapped]))
    capsys.readouterr()
    assert main(["info", "both"]) == 0
    told = capsys.readouterr().out
    assert f"{len(keys)} of width" in told
    assert "new words   2\n" in told
    assert "tokenizer   the model's own" in told
    assert "texts/a.txt" in told
    assert MODEL in told
    assert "texts without a name (11 bytes, 3 tokens, " in told, "what the reader read"


def counts_of(folder: str) -> NGrams:
    ngrams = NGrams()
    ngrams.load_state_dict(read_ngrams(corpus_memory.SavedMemory.of(Path(folder)).folder))
    return ngrams


def expected_of(*texts: list[int]) -> NGrams:
    ngrams = NGrams(3)
    for text in texts:
        ngrams.add_text(np.array(text))
    return ngrams


def assert_same_counts(found: NGrams, wanted: NGrams, *texts: list[int]) -> None:
    """Each token of texts is as probable, and so is every other after it."""
    assert (found.tokens, found.state_dict()["counts"].sum()) == (
        wanted.tokens,
        wanted.state_dict()["counts"].sum(),
    )
    for text in texts:
        rows = NGramRows.of(contexts_of(np.array(text), 0, 3), np.array(text))
        np.testing.assert_allclose(
            found.distributions(rows, 9000), wanted.distributions(rows, 9000), atol=1e-12
        )


def test_ngrams_are_counted_in_the_order_of_each_text(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # an n-gram goes on from piece to piece, not from text to text
    monkeypatch.setattr(corpus_memory, "PART_SIZE", 20)
    build("texts", "known")
    lm = hebblm.load(MODEL, device="cpu")
    first, second = (list(lm.vocabulary.encode(text, include=True).ids) for text in (FIRST, SECOND))
    assert_same_counts(counts_of("known"), expected_of(first, second), first, second)
    assert main(["info", "known"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    size = (place / "known" / "ngrams.safetensors").stat().st_size / 1e6
    assert f"of {len(first) + len(second)} tokens, after up to 3 words, {size:,.1f} MB" in told
    build("texts", "short", "--set", "ngram.capacity=4")
    assert "the n-grams of the first 4 tokens are counted" in capsys.readouterr().err
    assert counts_of("short").tokens == 4


def test_pieces_are_counted_after_six_of_them(place: Path) -> None:
    build("texts/a.txt", "pieces", model="llama-wt2-small")
    assert counts_of("pieces").order == 6
    build("texts/a.txt", "fewer", "--set", "ngram.order=3", model="llama-wt2-small")
    reader = hebblm.load("llama-wt2-small", device="cpu").reader("ngram", memory="fewer")
    reader.save(place / "grown")
    assert counts_of("grown").order == 3


def test_a_reader_counts_on_from_those_of_a_memory(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm, asked = hebblm.load(MODEL, device="cpu"), "Call frobnitz with two"
    build("texts/a.txt", "known")
    fixed = {"ngram.lr": 0.0}
    itself = lm.reader("ngram", settings=fixed)
    itself.read(FIRST)
    itself.begin()
    reader = lm.reader("ngram", memory="known", settings=fixed)
    assert reader.read(asked, learn=False).nll.tolist() == pytest.approx(
        itself.read(asked, learn=False).nll.tolist()
    )
    reader.begin()
    reader.read(SECOND)
    reader.save(place / "grown")
    first, second = (
        list(reader.vocabulary.encode(text, include=True).ids) for text in (FIRST, SECOND)
    )
    assert_same_counts(counts_of("grown"), expected_of(first, second), first, second)

    build("texts/a.txt", "longer", "--set", "ngram.order=4")
    with pytest.raises(
        UserError, match=r"ngram.order = 3, but the saved counts have order 4; leave it out"
    ):
        lm.reader("best", memory="longer", settings={"ngram.order": 3})
    lm.reader("best", memory="longer").save(place / "best")
    assert counts_of("best").order == 4
    # One that an earlier version built has no counts.
    one = corpus_memory.SavedMemory.of(Path("known"))
    owner = {"model_hash": one.manifest.model_hash, "dictionary_hash": one.manifest.dictionary_hash}
    save_memory(load_memory(one.folder, **owner), Path("earlier"), **owner, about=one.about)
    assert lm.reader("best", memory="earlier").read(asked).tokens[1] == "frobnitz"
    assert main(["info", "earlier"]) == 0
    assert "n-grams     none" in capsys.readouterr().out


def test_merged_ngrams_are_those_of_both_texts(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "c.txt").write_text("Call quux or frobnitz , never quux with frobnitz .\n" * 2)
    build("texts/a.txt", "one")  # its frobnitz is the first new word, and the other's second
    build("c.txt", "two")
    assert main(["merge", "one", "two", "--output-path", "both"]) == 0
    vocabulary = hebblm.load(MODEL, device="cpu").vocabulary
    first, second = (
        list(vocabulary.encode(p.read_text(), include=True).ids)
        for p in (place / "texts/a.txt", place / "c.txt")
    )
    assert_same_counts(counts_of("both"), expected_of(first, second), first, second)

    build("c.txt", "longer", "--set", "ngram.order=4")
    capsys.readouterr()
    assert main(["merge", "one", "longer", "--output-path", "all"]) == 2
    told = capsys.readouterr().err
    assert (
        "one counts n-grams with ngram.order=3 and longer with 4; build longer again with "
        "--set ngram.order=3" in told
    )
    build("c.txt", "longer", "--set", "ngram.order=3")
    assert main(["merge", "one", "longer", "--output-path", "all"]) == 0
    reader = hebblm.load(MODEL, device="cpu").reader("lstm", memory="one")
    reader.save(place / "uncounted")
    assert main(["merge", "one", "uncounted", "--output-path", "half"]) == 0
    assert (
        "only the n-grams of one are there; build the other memory anew" in capsys.readouterr().err
    )
    assert counts_of("half").tokens == len(first)


def test_the_memory_within_a_reader_is_not_merged_without_its_words(tmp_path: Path) -> None:
    reader = hebblm.load("tiny-pydoc-raw").reader("cache")
    reader.read("Frobnitz and quux .\n")
    reader.save(tmp_path / "reader")
    with pytest.raises(UserError, match=f"name {tmp_path / 'reader'}"):
        merge(tmp_path / "reader", tmp_path / "reader" / "memory", tmp_path / "both")
    assert len(merge(tmp_path / "reader", tmp_path / "reader", tmp_path / "both")) == 2 * len(
        reader
    )


def test_a_memory_on_disk_is_built_merged_and_read_with(place: Path) -> None:
    disk = ["--set", "memory.store=disk", "memory.index=IVF2,PQ8x4", "--device", "cpu"]
    for text in ("a.txt", "more"):
        assert (
            main(
                [
                    "build",
                    "--model",
                    MODEL,
                    "--text",
                    f"texts/{text}",
                    "--output-path",
                    f"on-{text}",
                    *disk,
                ]
            )
            == 0
        )
    assert main(["merge", "on-a.txt", "on-more", "--output-path", "both"]) == 0
    assert corpus_memory.SavedMemory.of(Path("both")).config().store == "disk"
    keys = [held(name)[0] for name in ("on-a.txt", "on-more", "both")]
    assert torch.equal(keys[2], torch.cat(keys[:2]))
    reader = hebblm.load(MODEL, device="cpu").reader("mixture+hebb", memory="both")
    assert "frobnitz" in [word for word, _, _ in reader.suggest("Call", 3)]


def test_info_tells_a_file_with_a_flipped_bit(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build("texts", "known")
    for path in sorted((place / "known").iterdir()):
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        capsys.readouterr()
        assert main(["info", "known"]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        [line] = told.err.splitlines()
        assert line.startswith("hebblm-memory: error: ")
        assert path.name in line
        path.write_bytes(whole)
    assert main(["info", "known"]) == 0


def test_a_second_writer_is_refused_and_a_killed_one_holds_nobody_up(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import sys, time; from pathlib import Path; from hebblm.io.locks import file_lock\n"
        "with file_lock(Path('known'), 'this memory'): print('held', flush=True); time.sleep(100)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "held\n"
    arguments = ["build", "--model", MODEL, "--text", "texts", "--output-path", "known", *EXACT]
    assert main(arguments) == 2
    assert "is at work on this memory (known); wait until it ends" in capsys.readouterr().err
    writer.kill()
    writer.wait()
    assert main(arguments) == 0
