"""A seat that keeps the text of the last question answers as one that begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hebblm
from hebblm.models.huggingface.base import HuggingFaceBase
from hebblm.online.drawing import Sampling
from hebblm.online.effort import SearchEffort

pytest.importorskip("starlette")

from hebblm.reader.own_text import TextStart
from hebblm.reader.seat import Seat
from hebblm.reader.suggest import suggest
from hebblm.serve.seats import Seats

from ...support.pieces import tokenizer_of
from ..models.architectures import random_model

NOTES = "the end of the list , the list is long . of the war , the end of the war .\n" * 3
CONTEXTS = ("the", "the end", "the end of the", "the end of", "of the war , the end of the list is",
            "of the war , the list", "the end of the")  # fmt: skip


def model(kind: str) -> hebblm.LanguageModel:
    if kind == "words":
        return hebblm.load("tiny-pydoc-raw", device="cpu")
    tokenizer = tokenizer_of("byte-level")
    made = random_model(kind, vocab_size=len(tokenizer))
    return hebblm.load((made, tokenizer), context=64, stride=32)


@pytest.fixture(params=["words", "Llama", "Mamba"])
def reader(request: pytest.FixtureRequest) -> hebblm.Reader:
    reader = model(request.param).reader("best")
    reader.read(NOTES, name="notes")
    reader.begin()
    return reader


def test_a_text_goes_on_from_what_it_shares_with_the_one_before(reader: hebblm.Reader) -> None:
    session = reader.session.snapshot()
    seat = Seat(session.another())
    for context in CONTEXTS:
        ids = session.ids(context).tolist()
        with seat.text(ids) as kept, TextStart(session.another()).text(ids) as fresh:
            assert kept.ids == fresh.ids == ids
            torch.testing.assert_close(kept.log_probs(0), fresh.log_probs(0), atol=2e-3, rtol=0)


def test_suggestions_of_a_seat_are_those_of_the_reader(reader: hebblm.Reader) -> None:
    seats = Seats(reader.session.snapshot())
    for context in CONTEXTS:
        expected = reader.suggest(context, 4, budget=20)
        with seats.take(seats.session.ids(context).tolist()) as seat:
            found = suggest(
                seat.session, context, 4, typed="", effort=SearchEffort(20), beginning=seat
            )
        assert [one.word for one in found] == [one.word for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.probability == pytest.approx(other.probability, rel=1e-3)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of what the base reads for one text; continuations come several at a time."""
    read: list[int] = []
    states = HuggingFaceBase._states

    def counted(base: HuggingFaceBase, ids: torch.Tensor) -> torch.Tensor:
        if len(ids) == 1:
            read.append(ids.shape[1])
        return states(base, ids)

    monkeypatch.setattr(HuggingFaceBase, "_states", counted)
    return read


def test_a_letter_more_reads_no_token_again(passes: list[int]) -> None:
    reader = model("Llama").reader("best")
    reader.read(NOTES)
    reader.begin()
    seats = Seats(reader.session.snapshot())
    ids = seats.session.ids("the end of the list , the list is").tolist()
    for more in ([], [], ids[1:3], []):
        passes.clear()
        with seats.take([*ids, *more]) as seat, seat.text([*ids, *more]):
            pass
        if more:
            assert sum(passes) == len(more)
    passes.clear()
    with seats.take(ids) as seat, seat.text(ids):
        pass
    assert sum(passes) == 0


def test_an_answer_reads_its_prompt_once(passes: list[int]) -> None:
    reader = model("Llama").reader("best")
    reader.read(NOTES)
    reader.begin()
    prompt = "the end of the list , the list is the li"
    tokens = len(reader.session.ids(prompt))
    passes.clear()
    text = reader.generate(prompt, max_new_tokens=1, temperature=0)
    assert tokens - 5 < sum(passes) < tokens + 5
    passes.clear()
    assert (
        "".join(
            step.text
            for step in reader.stream(prompt, max_new_tokens=1, sampling=Sampling(temperature=0))
        )
        == text
    )
    assert tokens - 5 < sum(passes) < tokens + 5


def test_what_is_learned_later_does_not_change_a_snapshot(reader: hebblm.Reader) -> None:
    session = reader.session.snapshot()
    ids = session.ids("the end of the").tolist()

    def asked() -> torch.Tensor:
        with TextStart(session.another()).text(ids) as text:
            return text.log_probs(0)

    before = asked()
    reader.read("the zork of the zork is the end zork .\n" * 4, name="more")
    reader.begin()
    assert torch.equal(asked(), before)
    assert len(session.vocabulary) == before.shape[1]


def test_a_question_that_fails_leaves_a_seat_that_works(reader: hebblm.Reader) -> None:
    seat = Seat(reader.session.snapshot().another())
    ids = seat.session.ids("the end of the list").tolist()
    with seat.text(ids) as text:
        expected = text.log_probs(0)

    def fail() -> None:
        with seat.text(ids[:2]) as text:
            text.read(ids[2:])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with seat.text(ids) as text:
        torch.testing.assert_close(text.log_probs(0), expected, atol=2e-3, rtol=0)


def test_a_method_that_changes_the_weights_has_no_copy(tmp_path: Path) -> None:
    reader = model("words").reader("dynamic", settings={"dynamic.rule": "sgd", "dynamic.lr": 1e-3})
    with pytest.raises(hebblm.errors.UserError, match="changes the weights"):
        reader.session.snapshot()


@pytest.mark.parametrize(
    ("kind", "method", "kept"),
    [("Llama", "best", True), ("Llama", "dynamic+best", False), ("words", "best", False)],
)
def test_keys_keep_their_exact_normalisers_where_the_head_stays(
    kind: str, method: str, kept: bool
) -> None:
    reader = model(kind).reader(method)
    reader.read(NOTES)
    memory, head = reader.session.memory, reader.session.context.head
    (entries,) = memory.segments()
    assert (entries.log_normalizers is not None) == kept
    if entries.log_normalizers is not None:
        exact = head.logits(memory.states_of(entries.keys).float()).double().logsumexp(1)
        torch.testing.assert_close(entries.log_normalizers.double(), exact, rtol=0, atol=1e-4)
