"""A reader predicts, scores and then learns; what is only asked changes nothing."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hebblm
from hebblm.errors import UserError
from hebblm.io.files import read_json, write_json
from hebblm.reader.base import BaseAndTrained
from hebblm.reader.scores import Totals

MODEL = "tiny-pydoc-raw"
TEXT = (
    "The function frobnitz returns a list .\n"
    "Call frobnitz with two arguments , and frobnitz raises an error .\n"
    "If frobnitz fails , the quux method returns None .\n"
)
METHODS = ["lstm", "cache", "mixture", "mixture+hebb"]


@pytest.fixture(scope="module")
def lm() -> hebblm.LanguageModel:
    return hebblm.load(MODEL, device=torch.device("cpu"))


def test_reading_shows_a_bar_on_a_terminal_unless_the_caller_follows_it(
    lm: hebblm.LanguageModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("hebblm.runtime.progress.BRIEF", 0.0)  # as if it took long
    reader = lm.reader("lstm")
    reader.read(TEXT)
    assert "32/32 tokens" in capsys.readouterr().err
    reader.read([TEXT, TEXT])
    assert "64/64 tokens" in capsys.readouterr().err
    seen: list[int] = []
    reader.read(TEXT, progress=lambda done, total: seen.append(done))
    assert seen[-1] == 32
    list(reader.read_pieces([TEXT]))
    monkeypatch.delenv("FORCE_COLOR")
    reader.read(TEXT)
    assert not capsys.readouterr().err


def test_unadapted_losses_are_those_of_the_model_with_new_words_as_unk(
    lm: hebblm.LanguageModel,
) -> None:
    scores = lm.reader("lstm", update_every=10).read(TEXT)
    vocabulary, model = lm.vocabulary.dictionary, lm.model.model
    words = TEXT.replace("\n", " <eos> ").split()
    known = torch.tensor([vocabulary.index(word) for word in words])
    inputs = torch.cat([torch.tensor([vocabulary.eos_index]), known[:-1]])
    with torch.no_grad():
        # Until a new word has its row it is read as <unk>; behind it the row of zeros counts in the
        # normaliser.
        out = model(inputs[None], model.initial_state(1))
        losses = -model.logits(out.hidden[0]).log_softmax(1).gather(1, known[:, None])[:, 0]
    first = words.index("frobnitz")
    torch.testing.assert_close(scores.nll[: first + 1], losses[: first + 1])
    assert scores.tokens == tuple(words)
    # The second one stands in the first interval of ten tokens too, before anything was learned.
    charged = [word for word, new in zip(words, scores.new.tolist(), strict=True) if new]
    assert charged == ["frobnitz", "frobnitz", "quux"]
    assert scores.perplexity == pytest.approx(math.exp(float(scores.nll.double().mean())))
    spelled = 8 * (2 * (len("frobnitz") + 1) + len("quux") + 1)
    bits = float(scores.nll.double().sum()) / math.log(2) + spelled
    assert scores.bits_per_byte == pytest.approx(bits / len(TEXT.encode()))


def test_a_byte_order_mark_at_the_start_of_a_string_is_no_text(lm: hebblm.LanguageModel) -> None:
    marked, plain = (lm.reader("lstm").read(text) for text in ("\ufeff" + TEXT, TEXT))
    assert (marked.tokens, marked.bytes) == (plain.tokens, plain.bytes)
    assert torch.equal(marked.nll, plain.nll)
    [document] = lm.reader("lstm").read(["\ufeff" + TEXT])
    assert document.tokens == plain.tokens
    [pieces] = lm.reader("lstm").read_pieces(["\ufeffthe list", " \n", "\ufeffof"])
    assert pieces.tokens == ("the", "list", "<eos>", "\ufeffof"), "later in the text it is"


@pytest.mark.parametrize("method", METHODS)
def test_one_text_in_two_calls_has_the_same_scores_where_each_token_is_learned_at_once(
    lm: hebblm.LanguageModel, method: str
) -> None:
    whole = lm.reader(method, update_every=1).read(TEXT)
    reader = lm.reader(method, update_every=1)
    lines = TEXT.splitlines(keepends=True)
    parts = [reader.read(line) for line in lines]
    torch.testing.assert_close(torch.cat([part.nll for part in parts]), whole.nll)
    assert sum((part.tokens for part in parts), ()) == whole.tokens
    assert whole.unadapted is not None
    torch.testing.assert_close(
        whole.unadapted.nll, lm.reader("lstm", update_every=1).read(TEXT).nll
    )


@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("method", ["mixture+hebb", "dynamic+best"])
def test_a_text_in_pieces_has_the_scores_of_one_reading_to_the_bit_and_is_not_held(
    lm: hebblm.LanguageModel, method: str, learn: bool
) -> None:
    text, ahead = TEXT * 6, 0
    whole, reader = (
        lm.reader(method, update_every=20, settings={"dynamic.rule": "sgd", "dynamic.lr": 8e-4})
        for _ in range(2)
    )
    whole.read(TEXT)
    reader.read(TEXT)
    expected = whole.read(text, learn=learn)

    def pieces() -> Iterator[str]:
        nonlocal ahead
        for piece in re.findall(r"(?s).{1,90}(?= )|.{1,90}$", text):
            ahead += 1
            yield piece

    parts, totals = [], Totals()
    for part in reader.read_pieces(pieces(), learn=learn):
        assert ahead <= 4, "the next pieces are asked for when those before them were read"
        ahead = 0
        parts.append(part)
        totals.add(part)
    assert len(parts) > 5
    assert sum((part.tokens for part in parts), ()) == expected.tokens
    for name in ("nll", "new"):
        assert torch.equal(
            torch.cat([getattr(part, name) for part in parts]), getattr(expected, name)
        )
    assert expected.unadapted is not None
    assert torch.equal(torch.cat([part.unadapted.nll for part in parts]), expected.unadapted.nll)
    assert len(reader) == len(whole)
    assert reader.suggest("Call", 3) == whole.suggest("Call", 3)
    adapted, base = expected.perplexity, expected.unadapted.perplexity
    assert str(totals) == (
        f"{len(expected)} tokens; perplexity {adapted:.1f} a token (unadapted {base:.1f}); "
        f"{expected.bits_per_byte:.2f} bits a byte (unadapted "
        f"{expected.unadapted.bits_per_byte:.2f})"
    )


def test_a_word_that_is_split_over_two_parts_counts_once() -> None:
    llama = hebblm.load("llama-wt2-small", device="cpu")
    text = "The frobnitzable quuxification of Blargenstein ,\nand a hat .\n" * 3
    whole = llama.reader("lstm").read(text)
    reader, totals, split = llama.reader("lstm", update_every=7), Totals(pieces=True), 0
    for part in reader.read_pieces(text.splitlines(keepends=True)):
        assert part.words is not None
        split += part.words.goes_on
        totals.add(part)
    assert split > 0
    assert totals.words == len(whole.by_word())
    assert totals.tokens == len(whole)
    assert (
        f"{len(whole)} pieces in {totals.words} words; perplexity {whole.perplexity:.1f} a piece"
        in str(totals)
    )
    a_word = math.exp(float(whole.nll.double().sum()) / totals.words)
    assert a_word == pytest.approx(whole.word_perplexity)
    [said] = re.findall(r", (\S+) a word; ", str(totals))
    assert float(said) == pytest.approx(a_word, rel=1e-5)
    assert f"; {whole.bits_per_byte:.2f} bits a byte (unadapted" in str(totals)


@pytest.mark.parametrize("most", [1, 8, 32])
def test_only_the_first_tokens_of_a_text_are_read(lm: hebblm.LanguageModel, most: int) -> None:
    reader, whole = lm.reader("cache", update_every=5), lm.reader("cache", update_every=5)
    expected = whole.read(TEXT)
    parts = [*reader.read_pieces(TEXT.splitlines(keepends=True), max_tokens=most)]
    read = min(most, len(expected))
    assert sum((part.tokens for part in parts), ()) == expected.tokens[:read]
    torch.testing.assert_close(torch.cat([part.nll for part in parts]), expected.nll[:read])
    assert len(reader) == read
    assert reader.vocabulary.words == [
        word for word in ("frobnitz", "quux") if word in expected.tokens[:read]
    ]
    size = sum(part.bytes for part in parts)
    share = {1: round(39 / 8), 8: 39}.get(most)
    assert size == share if share else size > 39
    assert (size == len(TEXT)) == (most >= 32)
    with pytest.raises(UserError, match="max_tokens = 0 must be at least 1"):
        list(reader.read_pieces([TEXT], max_tokens=0))


@pytest.mark.parametrize("method", METHODS[1:])
def test_later_words_leave_earlier_scores_alone_and_asking_changes_nothing(
    lm: hebblm.LanguageModel, method: str
) -> None:
    begin, _, _ = TEXT.partition("If")
    first, second = lm.reader(method), lm.reader(method)
    expected = first.read(begin + "If something else happens entirely , stop .")
    assert second.suggest("The function", 2) != []
    assert second.generate("Call", max_new_tokens=3) == second.generate("Call", max_new_tokens=3)
    entries = len(second)
    found = second.read(begin)
    assert entries == 0
    assert len(second) == len(found)
    # the last interval ends where the call does
    same = len(found) // second.update_every * second.update_every
    assert torch.equal(found.nll[:same], expected.nll[:same])


def test_a_new_word_is_expected_once_it_was_read(lm: hebblm.LanguageModel) -> None:
    reader = lm.reader()
    reader.read(TEXT)
    best = reader.suggest("Call", n=3)
    assert best[0].word == "frobnitz"
    assert best[0].probability > 100 * best[0].unadapted
    assert all(a.probability >= b.probability for a, b in itertools.pairwise(best))
    assert reader.generate("Call", max_new_tokens=1, temperature=0) == " frobnitz"
    assert "<unk>" not in [item.word for item in reader.suggest("", n=7000)]


def test_the_first_text_says_how_all_are_split_and_a_saved_reader_keeps_to_it(
    lm: hebblm.LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prose = 'The function returns a list, and "it" is called twice.'
    reader = lm.reader("cache")
    assert reader.read(prose).tokens[4:7] == ("list", ",", "and")
    assert "the text is split at punctuation as well" in capsys.readouterr().err
    reader.save(tmp_path / "known")
    again = lm.reader("cache", memory=tmp_path / "known")
    assert again.read("the list, ").tokens == ("the", "list", ",")
    other = lm.reader("cache", memory=tmp_path / "known", tokenizer="whitespace")
    assert other.read("the list, ").tokens == ("the", "list,")
    assert lm.reader("cache", tokenizer="whitespace").read(prose).tokens[4:6] == ("list,", "and")
    assert capsys.readouterr().err == ""
    # One that an earlier version saved says nothing of it, and was split at spaces.
    written = read_json(tmp_path / "known" / "reader.json")
    del written["tokenizer"]
    write_json(tmp_path / "known" / "reader.json", written, seal=True)
    assert lm.reader("cache", memory=tmp_path / "known").read(prose).tokens[4:6] == ("list,", "and")


def test_a_new_word_costs_its_spelling_where_nothing_is_learned_too(
    lm: hebblm.LanguageModel,
) -> None:
    text = "Call frobnitz with <unk> ."
    learned, only_read = lm.reader("lstm").read(text), lm.reader("lstm").read(text, learn=False)
    assert torch.equal(only_read.new, learned.new)
    assert only_read.new.tolist() == [False, True, False, False, False], (
        "<unk> itself is a word of the model"
    )
    assert only_read.bits_per_byte == learned.bits_per_byte


def test_a_reading_that_is_broken_off_leaves_a_whole_reader(
    lm: hebblm.LanguageModel, tmp_path: Path
) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    reader = lm.reader(update_every=10)
    with pytest.raises(KeyboardInterrupt):
        reader.read("the function " * 5 + "blarg frobnitz", progress=stop)
    assert reader.suggest("frobnitz", 1)
    reader.save(tmp_path / "known")
    again = lm.reader(memory=tmp_path / "known")
    assert again.vocabulary.words == [], "no row was learned"
    assert torch.equal(again.read("the frobnitz").nll, reader.read("the frobnitz").nll)


@pytest.mark.parametrize("method", ["mixture+hebb", "dynamic+best"])
def test_of_a_reading_that_is_broken_off_finished_intervals_stay_and_the_rest_is_taken_back(
    lm: hebblm.LanguageModel, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, other = (
        lm.reader(method, update_every=10, settings={"dynamic.rule": "sgd", "dynamic.lr": 8e-4})
        for _ in range(2)
    )
    plain, calls = BaseAndTrained.trained_losses, itertools.count()

    def stop(*args: Any) -> torch.Tensor:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return plain(*args)

    with monkeypatch.context() as broken:
        broken.setattr(BaseAndTrained, "trained_losses", stop)
        with pytest.raises(KeyboardInterrupt):
            reader.read(TEXT)
    other.read("The function frobnitz returns a list .\nCall frobnitz")
    found, expected = reader.read("with two arguments"), other.read("with two arguments")
    assert torch.equal(found.nll, expected.nll)
    assert torch.equal(found.unadapted.nll, expected.unadapted.nll)


@pytest.mark.parametrize("method", ["mixture+hebb", "dynamic+best"])
def test_what_is_set_of_torch_changes_nothing(lm: hebblm.LanguageModel, method: str) -> None:
    def losses(reader: hebblm.Reader) -> torch.Tensor:
        return torch.cat([each.nll for each in (reader.read(TEXT), reader.read(TEXT).by_word())])

    def opened() -> hebblm.Reader:
        return lm.reader(method, settings={"dynamic.rule": "sgd", "dynamic.lr": 8e-4})

    expected = losses(opened())
    with torch.inference_mode():
        reader = opened()
        reader.read("the function")
        reader.begin()
    with torch.inference_mode():
        assert torch.equal(losses(opened()), expected)
    assert reader.read(TEXT).nll.isfinite().all(), "a later call learns from what was made inside"
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        assert torch.equal(losses(opened()), expected)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def test_values_that_are_set_for_nothing_are_told(
    lm: hebblm.LanguageModel, capsys: pytest.CaptureFixture[str]
) -> None:
    lm.reader("mixture", settings={"hebb.beta": 0.4, "mixture.theta": 2.0})
    assert "no effect, because mixture does not read it: hebb.beta\n" in capsys.readouterr().err


def test_ids_are_read_as_words_are(lm: hebblm.LanguageModel) -> None:
    words = ["the", "function", "returns", "a", "list"]
    by_id = lm.reader().read([lm.vocabulary.dictionary.index(word) for word in words])
    by_text = lm.reader().read(" ".join(words))
    assert by_id.tokens == by_text.tokens
    assert torch.equal(by_id.nll, by_text.nll)
    assert by_id.bytes == by_text.bytes
    assert len(lm.reader().read("")) == 0


def test_documents_are_taken_from_whatever_holds_them_in_a_row(lm: hebblm.LanguageModel) -> None:
    pandas = pytest.importorskip("pandas")
    texts = ["the function", "a list", "an error"]
    column = pandas.Series(texts, index=[5, 6, 7])
    expected = lm.reader().read(texts[1:])
    for several in (column[column != texts[0]], np.array(texts[1:]), tuple(texts[1:])):
        assert [each.tokens for each in lm.reader().read(several)] == [
            each.tokens for each in expected
        ]
    assert len(lm.reader().read(pandas.Series([1, 2, 3], index=[5, 6, 7]))) == 3
    assert lm.reader().read([]) == []
    assert lm.reader().generate("the", until="a") == lm.reader().generate("the", until=["a"])
    for wrong in (pandas.DataFrame({"text": texts}), np.array("the list")):
        with pytest.raises(UserError, match="is not a text; give a string"):
            lm.reader().read(wrong)


def test_what_does_not_fit_is_refused(lm: hebblm.LanguageModel, tmp_path: Path) -> None:
    for wrong, words in (
        (lambda: hebblm.load("tiny-pydc"), "did you mean tiny-pydoc-raw"),
        (lambda: lm.reader("heb"), "did you mean hebb"),
        (lambda: lm.reader(settings={"base.lr": 0.1}), "base.lr=0.1"),
        (lambda: lm.reader(update_every=0), "update_every = 0"),
        (lambda: lm.reader(tokenizer="mose"), "did you mean moses"),
        (lambda: lm.reader().read([-1]), "id -1"),
        (lambda: lm.reader().read(3), "3 is not a text"),
        (lambda: lm.reader().read([0.5]), "[0.5] is not a text"),
        (lambda: lm.reader().read(["a list", 3]), "3 is not a text"),
        (lambda: lm.reader().suggest(["a"]), "['a'] is not a text"),
        (lambda: lm.reader().generate(3), "3 is not a text"),
        (lambda: lm.reader().generate(temperature=-1.0), "temperature = -1.0"),
        (lambda: lm.reader().log_probs([1, 2], last=3), "last = 3"),
        (lambda: lm.reader().log_probs([]), "between 0 and the number of ids, 0"),
        (lambda: lm.reader().log_probs("the list"), "'the list' is not a row of ids"),
        (lambda: lm.reader().read("the list", progress=True), "progress = True cannot be called"),
        (lambda: list(lm.reader().read_pieces("the list")), "'the list' is a text in one piece"),
        (lambda: lm.reader().generate(max_new_tokens=-1), "max_new_tokens = -1 must be at least 0"),
        (lambda: lm.reader(3), "method = 3 is not a string"),
        (lambda: lm.reader(k="5"), "k = '5' must be"),
        (lambda: lm.reader().save(None), "None is not a folder"),
        (lambda: hebblm.load(MODEL, context="a"), "context = 'a' must be at least 1"),
        (lambda: hebblm.load(torch.nn.Linear(2, 2)), "or give (model, tokenizer)"),
        (
            lambda: hebblm.load((1, 2), dtype="banana"),
            "dtype = 'banana' has no effect on a model that is open",
        ),
        (lambda: hebblm.load(MODEL, device="cpu:7"), "device = cpu:7 is not one of the 1"),
        (
            lambda: lm.reader(memory=tmp_path / "m", settings={"memory.capacity": 3}),
            "memory.capacity is set, but",
        ),
        (lambda: lm.reader().suggest(n=0), "n = 0"),
        (
            lambda: lm.reader().suggest("a \ud83d b"),
            "character 2 of the text, '\\ud83d', is half a surrogate pair",
        ),
        (lambda: lm.reader(settings=["a=1"]), "is not a dict"),
        (lambda: lm.reader(k=100_001), "k = 100001 must be at most 100,000"),
        (lambda: list(lm.reader().read_pieces(None)), "None is not a sequence of strings"),
        (lambda: lm.reader().predict(torch.zeros(2, 3)), "states of shape (2, 3) are not (N, "),
        (lambda: lm.reader(memory=tmp_path / "none"), str(tmp_path / "none")),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            wrong()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with pytest.raises(UserError, match="does not hold a reader"):
        lm.reader().save(tmp_path / "other")
    reader = lm.reader()
    reader.read("a list")
    reader.save(tmp_path / "known")
    place = tmp_path / "known" / "place.safetensors"
    place.write_bytes(place.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="was changed"):
        lm.reader(memory=tmp_path / "known")


def test_at_the_beginning_of_another_text_the_model_keeps_half_of_its_say(
    lm: hebblm.LanguageModel,
) -> None:
    reader = lm.reader("best")
    reader.read(TEXT * 4)
    ids = reader.vocabulary.encode("of the list", include=False).ids
    before = reader.log_probs(ids, last=3)
    reader.begin()
    after, plain = reader.log_probs(ids, last=3), lm.reader("lstm").log_probs(ids, last=3)
    known = plain.shape[1]  # words met on the way have no row without the text
    assert (after[:, :known].exp() >= plain.exp() / 2 - 1e-6).all()
    assert (before[:, :known].exp() < plain.exp() / 2 - 1e-3).any(), (
        "within a text that repeats it has less"
    )


@pytest.mark.parametrize("method", ["best", "mixture+mbpa"])
def test_a_text_that_is_not_learned_says_how_far_to_trust_the_memory_until_it_ends(
    lm: hebblm.LanguageModel, tmp_path: Path, method: str
) -> None:
    reader = lm.reader(method, update_every=1, settings={"best.parts": "base,medium,knn,mbpa"})
    reader.read(TEXT * 2)
    reader.begin()
    before = {
        learner: share.as_floats
        for learner, share in reader.session.context.mixture_weights.items()
    }
    ids = torch.tensor(
        reader.vocabulary.encode("a of list the call a list of in the", include=False).ids
    )
    scores = reader.read(ids, learn=False)
    assert before != {
        learner: share.as_floats
        for learner, share in reader.session.context.mixture_weights.items()
    }
    reader.save(tmp_path / "known")
    again = lm.reader(memory=tmp_path / "known")
    assert torch.equal(again.read(ids, learn=False).nll, reader.read(ids, learn=False).nll)
    for one in (reader, again):
        one.begin()
        assert {
            learner: share.as_floats
            for learner, share in one.session.context.mixture_weights.items()
        } == before
    rows = reader.log_probs([reader.vocabulary.start, *ids[:-1].tolist()], last=len(ids))
    torch.testing.assert_close(
        -rows.gather(1, ids[:, None])[1:, 0], scores.nll[1:], rtol=1e-4, atol=1e-5
    )
    assert {
        learner: share.as_floats
        for learner, share in reader.session.context.mixture_weights.items()
    } == before
