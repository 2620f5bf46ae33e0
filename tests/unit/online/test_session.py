"""The loop body of every reading: what an interval does, what it keeps, and where it goes on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.work import clock_of
from hebblm.evaluation.scores import EvaluationScores, Timing
from hebblm.memory import FlatMemory
from hebblm.models.awd import AwdBase
from hebblm.online.session import Losses, OnlineSession, Unit
from hebblm.online.text import TextSource
from hebblm.online.vocabulary import UnknownVocabulary

from ...support import toy

EVERY, TOKENS = 7, 42
Session = OnlineSession[TextSource]


def text() -> tuple[Tensor, Tensor]:
    """Return inputs and labels (T,) of a text whose new words have numbers in their order."""
    ids = toy.tokens(3, TOKENS)
    ids[4::9] = toy.SOURCE + np.arange(len(ids[4::9])) % toy.NOVEL
    ids = torch.from_numpy(toy.by_first_appearance(ids))
    return torch.cat([torch.tensor([toy.EOS]), ids[:-1]]), ids


def session_of(memory: FlatMemory | None = None) -> Session:
    base = toy.base_of(toy.tiny_model(), rows=0)
    counts = torch.arange(toy.SOURCE)
    memory = FlatMemory(toy.DIM) if memory is None else memory
    context = Context(base.head, memory, k=5, train_counts=counts, window=9)
    predictors = {name: METHODS[name].predictor(toy.LEARNED) for name in STATIC_METHODS}
    return OnlineSession(TextSource(base, UnknownVocabulary(toy.UNK)), [context], predictors)


def unit_of(session: Session, number: int) -> Unit:
    """Let the base read an interval, and return its mini-batch."""
    inputs, labels = (ids[number * EVERY : (number + 1) * EVERY] for ids in text())
    block = Block.of(labels, EVERY, written=True)
    hidden = session.source.read(inputs)
    return Unit(EvalBatch(hidden, session.contexts[0], block), labels)


def losses_of(session: Session, number: int, *, learn: bool = True) -> Losses:
    found: Losses = {}
    session.interval([unit_of(session, number)], lambda unit, own: found.update(own), learn=learn)
    return found


def kept(session: Session) -> list[Tensor]:
    """Return what a session has learned."""
    context = session.contexts[0]
    stream = context.stream_states[0]
    mixture_weights = stream.mixture_weights if stream.learned is None else stream.learned
    assert context.ngrams is not None
    numbers = [each for share in mixture_weights.values() for each in share.as_floats]
    counted = [torch.from_numpy(each) for each in context.ngrams.state_dict().values()]
    return [
        *(part.keys.clone() for part in context.memory.segments()),
        context.observed.clone(),
        *(part.clone() for part in context.recent.latest(9)),
        torch.tensor(numbers, dtype=torch.float64),
        *counted,
        session.source.head.weight.detach().clone(),
    ]


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def test_all_units_of_an_interval_are_scored_before_any_is_learned() -> None:
    session, seen = session_of(), []
    losses_of(session, 0)

    def record(unit: Unit, losses: Losses) -> None:
        seen.append((len(session.contexts[0].memory), len(session.source.head.weight)))

    rows = len(session.source.head.weight)
    session.interval((unit_of(session, number) for number in (1, 2)), record)
    assert seen == [(EVERY, rows)] * 2
    assert len(session.contexts[0].memory) == 3 * EVERY
    assert len(session.source.head.weight) == int(text()[1][: 3 * EVERY].max()) + 1 > rows


def test_a_word_without_a_row_costs_unk_until_it_is_observed() -> None:
    session = session_of()
    unit = unit_of(session, 0)
    new = unit.labels >= toy.SOURCE
    assert new.any(), "the first interval has a new word"
    as_unk = Unit(unit.batch, unit.labels.masked_fill(new, toy.UNK))
    for name, losses in session.score(unit).items():
        assert torch.equal(losses, session.score(as_unk)[name]), name


def test_without_learning_weights_and_ngrams_follow_and_nothing_is_kept() -> None:
    session, other = session_of(), session_of()
    for number in (0, 1):
        losses_of(session, number)
        losses_of(other, number)
    before = kept(session)
    first, learned = losses_of(session, 2, learn=False), losses_of(other, 2)
    assert all(torch.equal(first[name], learned[name]) for name in first)
    assert equal(kept(session), before)
    assert not equal(kept(other), before)
    histories = [each.contexts[0].stream_states[0].history.tolist() for each in (session, other)]
    assert histories[0] == histories[1], "both stand behind the same tokens"
    session.contexts[0].restore_learned_weights()
    assert equal(kept(session), before)


def test_another_session_goes_on_to_the_bit() -> None:
    session = session_of()
    for number in range(3):
        losses_of(session, number)
    state = {name: value.clone() for name, value in session.state_dict().items()}
    memory = FlatMemory(toy.DIM)
    for part in session.contexts[0].memory.segments():
        memory.add(part.keys.clone(), part.values.clone())
    other = session_of(memory)
    other.source.base.grow(len(session.source.head.weight) - len(other.source.head.weight))
    other.load_state_dict(state)
    assert other.contexts[0].ngrams is not None
    counts = session.contexts[0].ngrams.state_dict()
    other.contexts[0].ngrams.load_state_dict(counts)
    for number in range(3, TOKENS // EVERY):
        expected, found = losses_of(session, number), losses_of(other, number)
        for name, losses in expected.items():
            assert torch.equal(losses, found[name]), name


def test_a_session_over_another_source_observes_into_the_same_contexts() -> None:
    session = session_of()
    losses_of(session, 0)
    source = TextSource(
        AwdBase(toy.tiny_model(), rows=len(session.source.head.weight) - toy.SOURCE, init="zero"),
        session.source.vocabulary,
    )
    other = session.over(source)
    losses_of(other, 1)
    assert len(session.contexts[0].memory) == 2 * EVERY
    assert other.checks is session.checks


def test_a_profiler_sees_every_part_once() -> None:
    scores = EvaluationScores({name: torch.zeros(0).numpy() for name in STATIC_METHODS})
    session = session_of()
    session.profiler = Timing(scores, clock_of(torch.device("cpu")))
    plain = [losses_of(session_of(), 0)]
    timed = losses_of(session, 0)
    assert all(torch.equal(timed[name], plain[0][name]) for name in timed)
    assert set(scores.own_seconds) == set(STATIC_METHODS)
    assert min(scores.base_seconds, scores.retrieval_seconds, scores.ngram_seconds) > 0


@pytest.mark.parametrize("unk", [toy.UNK, None])
def test_ids_with_rows_stay_the_same_tensor(unk: int | None) -> None:
    """What is computed of a tensor is kept by its identity."""
    ids = torch.tensor([3, 9, 4])
    vocabulary = UnknownVocabulary(unk)
    assert vocabulary.readable(ids, 10) is ids
    expected = [3, 9, 4] if unk is None else [3, toy.UNK, 4]
    assert vocabulary.readable(ids, 9).tolist() == expected
    assert ids.tolist() == [3, 9, 4]
