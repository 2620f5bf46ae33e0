"""The sampler is that of transformers, and a stream of its tokens is the text that they write."""

from __future__ import annotations

import pytest
import torch

import hebblm
from hebblm.errors import UserError
from hebblm.online.drawing import Answer, Drawn, Sampling, draw_steps

from ...support.pieces import tokenizer_of
from ..models.architectures import random_model

transformers = pytest.importorskip("transformers")

GRID = [
    (temperature, top_k, top_p)
    for temperature in (0.3, 1.0, 2.5)
    for top_k in (None, 1, 5, 200)
    for top_p in (1.0, 0.9, 0.4, 1e-6)
]


def warped(scores: torch.Tensor, temperature: float, top_k: int | None, top_p: float) -> object:
    ids = torch.zeros(len(scores), 1, dtype=torch.int64)
    scores = transformers.TemperatureLogitsWarper(temperature)(ids, scores)
    if top_k is not None:
        scores = transformers.TopKLogitsWarper(top_k)(ids, scores)
    if top_p < 1:
        scores = transformers.TopPLogitsWarper(top_p)(ids, scores)
    return scores.softmax(-1)


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), GRID)
def test_the_probabilities_are_those_of_transformers(
    temperature: float, top_k: int | None, top_p: float
) -> None:
    scores = torch.randn(20, 50, generator=torch.Generator().manual_seed(3)).double()
    if top_p == 1:  # which of several equal ones it leaves out is anyone's choice
        scores[:5] = scores[:5].round()
    sampling = Sampling(temperature, 0, top_k, top_p)
    own = torch.stack([sampling.kept(sampling.weights(row)) for row in scores.log_softmax(1)])
    torch.testing.assert_close(own, warped(scores, temperature, top_k, top_p))


def test_temperature_0_takes_the_most_probable_and_a_seed_repeats() -> None:
    weights = torch.tensor([0.2, 0.5, 0.3])
    assert Sampling(0.0, top_k=2, top_p=0.1).chooser()(weights) == 1
    one, other = ([choose(weights) for _ in range(50)] for choose in
                  (Sampling(seed=4).chooser(), Sampling(seed=4).chooser()))  # fmt: skip
    assert one == other
    assert set(one) == {0, 1, 2}
    choose = Sampling(seed=4, top_k=2).chooser()
    assert {choose(weights) for _ in range(50)} == {1, 2}


@pytest.mark.parametrize("value", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_what_cannot_be_drawn_is_refused(value: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(value))):
        Sampling(**value)


@pytest.fixture(scope="module")
def pieces() -> hebblm.LanguageModel:
    tokenizer = tokenizer_of("byte-level")
    return hebblm.load(
        (random_model("Llama", vocab_size=len(tokenizer)), tokenizer), context=64, stride=32
    )


class Letters(Answer):
    """An answer whose tokens are letters of a text."""

    lasts = True

    def __init__(self, vocabulary: object, text: str) -> None:
        super().__init__(vocabulary)  # type: ignore[arg-type]
        self._all = text

    def text(self, drawn: list[int]) -> str:  # type: ignore[override]
        return self._all[: len(drawn)]


def letters(text: str, until: tuple[str, ...], most: int = 99) -> list[Drawn]:
    """Return the steps of an answer that spells a text."""

    class Vocabulary:
        unknown, end = None, None

    answer = Letters(Vocabulary(), text)
    found = draw_steps(
        lambda ids: torch.zeros(3), torch.zeros(1, dtype=torch.int64), answer,
        most=min(most, len(text)), sampling=Sampling(0.0), until=until,
    )  # fmt: skip
    return [*found]


def test_what_may_begin_a_string_that_ends_the_answer_waits() -> None:
    steps = letters("a </b> c </d> e", ("</d>",))
    assert [step.text for step in steps][:4] == ["a", " ", "", ""]
    assert "".join(step.text for step in steps) == "a </b> c "
    assert steps[-1].end == "stop"
    steps = letters("a </", ("</d>",))
    assert "".join(step.text for step in steps) == "a </"
    assert steps[-1].end == "length"
    shown = ""
    for step in letters("xaab", ("aab", "b")):
        shown += step.text
        assert shown in ("", "x")


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_is_the_generated_text_and_never_ends_within_a_character(
    pieces: hebblm.LanguageModel, seed: int
) -> None:
    reader = pieces.reader("best")
    reader.read("né 東京 👩‍👧 the end of the list né 東京 👩‍👧\n" * 3)
    reader.begin()
    controls = Sampling(1.3, seed, 40, 0.98)
    for prompt in ("", "the end of the", "né 東"):
        steps = [*reader.stream(prompt, max_new_tokens=30, sampling=controls, top=4)]
        text = reader.generate(
            prompt, max_new_tokens=30, temperature=1.3, seed=seed, top_k=40, top_p=0.98
        )
        assert "".join(step.text for step in steps) == text
        assert not any("\ufffd" in step.text for step in steps)
        assert [step.end for step in steps[:-1]] == [None] * (len(steps) - 1)
        for step in steps[:-1]:
            assert [value for _, value in step.top] == sorted(
                (value for _, value in step.top), reverse=True
            )
            if step.token in dict(step.top):
                assert step.log_prob == dict(step.top)[step.token]


def test_log_probabilities_of_a_stream_are_those_of_the_text(pieces: hebblm.LanguageModel) -> None:
    reader = pieces.reader("best")
    reader.read("the cat sat on the mat . the dog sat on the log .\n" * 4)
    reader.begin()
    ids = [*reader.vocabulary.encode("the cat sat on the", include=False).ids]
    answer = [*reader.stream("the cat sat on the ", max_new_tokens=25, top=0,
                             sampling=Sampling(0.0))]  # fmt: skip
    drawn = [step.token for step in answer if step.token is not None]
    every = reader.log_probs([reader.vocabulary.start, *ids, *drawn], last=len(drawn) + 1)[:-1]
    expected = every.gather(1, torch.tensor(drawn)[:, None])[:, 0]
    found = torch.tensor([step.log_prob for step in answer if step.token is not None])
    # the first id is a word of n-grams in one of them, and not in the other
    torch.testing.assert_close(found[1:], expected[1:].float(), atol=2e-2, rtol=0)


@pytest.mark.parametrize("method", ["best", "mixture+mbpa", "base"])
def test_log_probabilities_do_not_depend_on_how_many_are_asked_for(
    pieces: hebblm.LanguageModel, method: str
) -> None:
    reader = pieces.reader(method)
    reader.read("the cat sat on the mat . the dog sat on the log .\n" * 4)
    reader.begin()
    ids = [*reader.vocabulary.encode("the cat sat on the log . " * 4, include=False).ids][:61]
    every = reader.log_probs(ids, last=len(ids))
    for last in (1, 7, 25, 60):
        torch.testing.assert_close(
            reader.log_probs(ids, last=last), every[-last:], atol=2e-4, rtol=0
        )
    for length in (12, 33, 60):  # shorter texts see nothing of what comes later
        torch.testing.assert_close(
            reader.log_probs(ids[:length]), every[length - 1 : length], atol=2e-4, rtol=0
        )
