"""A text of a question: mixture weights follow it, in whatever parts it comes."""

from __future__ import annotations

import pytest
import torch

import hebblm
from hebblm.adapt.block import STEP
from hebblm.errors import UserError
from hebblm.reader import own_text as module
from hebblm.reader.own_text import OwnText, TextStart

from ...support.pieces import tokenizer_of
from ..models.architectures import random_model

NOTES = "the end of the list , the list is long . of the war , the end of the war .\n" * 3
TEXT = "the list is long . the end of the war , of the list . " * 6


def reader_of(kind: str, update_every: int) -> hebblm.Reader:
    model = hebblm.load("tiny-pydoc-raw", device="cpu")
    if kind == "pieces":
        tokenizer = tokenizer_of("byte-level")
        network = random_model("Llama", vocab_size=len(tokenizer))
        model = hebblm.load((network, tokenizer), context=64, stride=32)
    reader = model.reader("best", update_every=update_every)
    reader.read(NOTES)
    reader.begin()
    return reader


def floats(text: OwnText) -> list[list[float]]:
    """Everything that mixture weights have learned, by interval."""
    numbers = []
    for states in text._marks:
        (state,) = states
        learned = state.mixture_weights.values()
        numbers.append([number for weights in learned for number in weights.as_floats])
    return numbers


@pytest.mark.parametrize("kind", ["words", "pieces"])
@pytest.mark.parametrize("update_every", [STEP, 4])
def test_intervals_computed_together_are_those_computed_one_by_one(
    kind: str, update_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = reader_of(kind, update_every).session
    ids = session.ids(TEXT).tolist()[: 10 * STEP + 3]
    results = []
    for together in (1, 3, 8):
        monkeypatch.setattr(module, "AT_ONCE", together * STEP)
        with TextStart(session).text(ids) as text:
            history = [states[0].history.tolist() for states in text._marks]
            results.append((floats(text), history, text.log_probs(0)))
    first = results[0]
    assert len(first[0]) == 1 + (len(ids) - 1) // update_every
    assert first[0][0] != first[0][-1], "the weights follow the text"
    for weights, history, log_probs in results[1:]:
        for numbers, expected in zip(weights, first[0], strict=True):
            assert numbers == pytest.approx(expected, rel=1e-4, abs=1e-3)
        assert history == first[1]
        torch.testing.assert_close(log_probs, first[2], atol=1e-3, rtol=0)


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_the_parts_in_which_a_text_comes_change_nothing(kind: str) -> None:
    session = reader_of(kind, STEP).session
    ids = session.ids(TEXT).tolist()[:75]
    with TextStart(session).text(ids) as text:
        weights, log_probs = floats(text), text.log_probs(0)
    for cuts in ([1, 9, 33, 34], [*range(1, 75)], [50]):
        with TextStart(session).text(ids[: cuts[0]]) as text:
            for begin, end in zip(cuts, [*cuts[1:], len(ids)], strict=True):
                text.read(ids[begin:end])
            for numbers, expected in zip(floats(text), weights, strict=True):
                assert numbers == pytest.approx(expected, rel=1e-4, abs=1e-3)
            torch.testing.assert_close(text.log_probs(0), log_probs, atol=1e-3, rtol=0)


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_losses_of_tokens_are_those_of_their_log_probabilities(kind: str) -> None:
    reader = reader_of(kind, STEP)
    ids = reader.session.ids(TEXT)[:47]
    log_probs = reader.log_probs(ids, last=len(ids))
    expected = -log_probs[:-1].gather(1, ids[1:, None]).squeeze(1)
    torch.testing.assert_close(reader.token_losses(ids), expected.double())
    assert reader.token_losses(ids[:1]).shape == (0,)
    with pytest.raises(UserError, match="ids are empty"):
        reader.token_losses([])
    for begin in (1, 13, 20, 46):  # to the bit: an interval is predicted from its first row on
        assert torch.equal(reader.log_probs(ids, last=len(ids) - begin), log_probs[begin:])


@pytest.mark.parametrize("least", [-0.1, 1.0])
def test_a_least_probability_that_is_none_is_refused(least: float) -> None:
    reader = reader_of("pieces", STEP)
    for ask in (reader.suggest, reader.explain):
        with pytest.raises(UserError, match=f"least = {least} must be a probability below 1"):
            ask("the end", 3, least=least)
