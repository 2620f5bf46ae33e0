"""The mixture of all components beside the plainest form: features, shares and their learning, one
token at a time.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.best import (
    COMPONENTS,
    FEATURES,
    BestConfig,
    best_predictor,
    gate_features,
)
from hebblm.adapt.methods.gate import Gated
from hebblm.adapt.settings import MethodSettings
from hebblm.errors import UserError
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import FlatMemory
from hebblm.types import OutputHead

from ..support import toy
from ..support.adapters import adapter_of
from ..support.toy import DIM, randn
from .reference import entries_of, label_distribution, relative

CLASSES = 30
EVERY = 7


def settings_of(**changes: object) -> MethodSettings:
    return toy.exact(toy.SETTINGS).replaced(BestConfig(short=5, medium=15, long=30, **changes))  # type: ignore[arg-type]


def context_of(entries: int) -> Context:
    head = OutputHead(
        randn(0, CLASSES, DIM, dtype=torch.float64), randn(1, CLASSES, dtype=torch.float64)
    )
    counts = torch.arange(CLASSES)
    context = Context(
        head, FlatMemory(DIM, dtype=torch.float64), k=9, train_counts=counts, window=40
    )
    if entries:
        labels = torch.arange(entries) * 7 % 5
        toy.observe(context, randn(2, entries, DIM, dtype=torch.float64), labels)
    return context


def plain_features(context: Context, query: Tensor) -> list[float]:
    """Return the features of one query, every quantity written out."""
    base = context.head.logits(query).softmax(0)
    favourite = int(base.argmax())
    found = dict.fromkeys(FEATURES, 0.0) | {
        "one": 1.0,
        "base entropy": -sum(float(p) * math.log(float(p)) for p in base) / 5,
        "base peak": math.log(float(base.max())) / 5,
        "base's word in training": math.log1p(int(context.train_counts[favourite])) / 10,
        "tokens of the stream": math.log1p(int(context.observed.sum())) / 10,
    }
    keys, labels, _ = entries_of(context.memory.search(query[None], context.k), 0)
    if len(labels):
        q = label_distribution((2 * relative(keys @ query)).exp(), labels, CLASSES)
        label = int(q.argmax())
        nearest = min(float((key - query).square().sum()) for key in keys)
        found |= {
            "label entropy": -sum(float(p) * math.log(float(p)) for p in q if p > 0) / 5,
            "nearest entry": math.log(1e-3 + nearest / float(query.square().sum())) / 5,
            "top label's mass": float(q.max()),
            "base of the top label": math.log(float(base[label])) / 5,
            "top label is the base's": float(label == favourite),
            "top label in the stream": math.log1p(int(context.observed[label])) / 10,
        }
    return list(found.values())


@pytest.mark.parametrize("entries", [0, 1, 4, 60])
def test_features_equal_the_plain_form(entries: int) -> None:
    context = context_of(entries)
    hidden = randn(3, 6, DIM, dtype=torch.float64)
    expected = torch.tensor(
        [plain_features(context, query) for query in hidden], dtype=torch.float64
    )
    torch.testing.assert_close(
        gate_features(EvalBatch(hidden, context)), expected, rtol=0, atol=1e-10
    )


def reference(
    evidence: np.ndarray, weights: np.ndarray, rate: float, anchor: int | None
) -> np.ndarray:
    """Return the losses (T,) of the mixture, token by token, from losses and features (T, C + F)
    and W (C, 2F).
    """
    parts, weights, found = len(weights), weights.copy(), []
    squares, odds = np.zeros_like(weights), math.log(9)
    for start in range(0, len(evidence), EVERY):
        step, gain = np.zeros_like(weights), 0.0
        for row in evidence[start : start + EVERY]:
            given, z = np.exp(-row[:parts]), row[parts:]
            x = np.concatenate([z, 0 * z])  # nothing was read before this text
            mixture_weights = np.exp(weights @ x)
            mixture_weights /= mixture_weights.sum()
            mixed = mixture_weights @ given
            trust = 1.0
            if anchor is not None and rate:
                trust = 1 / (1 + math.exp(-odds))
                gain += math.log(mixed) - math.log(given[anchor])
            found.append(
                -math.log(trust * mixed + (1 - trust) * (0 if anchor is None else given[anchor]))
            )
            change = np.outer(mixture_weights * given / mixed - mixture_weights, x)
            step += change
            squares += change**2
        weights += rate * step / np.sqrt(1 + squares)
        odds = max(-math.log(1999), min(math.log(1999), odds + gain))
    return np.array(found)


class Noted:
    """Notes what the gate learns from; see ``Observer``."""

    def __init__(self, predictor: Gated) -> None:
        self.predictor = predictor
        self.rows: list[Tensor] = []

    def watch(self, batch, targets: Tensor) -> None:  # type: ignore[no-untyped-def]
        self.rows.append(self.predictor.evidence(batch, targets))


@pytest.mark.parametrize("ahead", [True, False], ids=["blocks", "intervals"])
@pytest.mark.parametrize("parts", [",".join(COMPONENTS), "base,short,mbpa", "mbpa"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_losses_are_those_of_the_formula(rate: float, parts: str, ahead: bool) -> None:
    predictor = best_predictor(settings_of(lr=rate, parts=parts))
    assert isinstance(predictor, Gated)
    stream = toy.stream_of(np.concatenate([toy.tokens(1, 40), toy.tokens(1, 40)]))
    base = toy.base_of(toy.tiny_model().double())
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)
    noted = Noted(predictor)
    found = evaluate(
        base, [context], {"best": predictor}, stream, UnionVocabulary(),
        Schedule(EVERY, read_ahead=ahead), Hooks([noted]),
    ).nll["best"]  # fmt: skip
    weights, anchor = np.array(predictor.weights), 0 if parts.startswith("base") else None
    expected = reference(torch.cat(noted.rows).numpy(), weights, rate, anchor)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    if rate and "," in parts:
        assert (
            np.abs(expected - reference(torch.cat(noted.rows).numpy(), weights, 0.0, anchor)).max()
            > 0.01
        )


def test_a_label_that_no_component_gives_anything_is_infinite_and_teaches_nothing() -> None:
    gate = F.LearnedGate(
        torch.tensor([[1.0, 2.0, 0.3, 0.1], [0.5, -1.0, 0.2, 0.0]], dtype=torch.float64), 0.5
    )
    impossible = [math.inf, math.inf, 1.0, 0.3]
    nothing = gate.after([impossible, [math.nan] * 4])
    assert nothing.as_floats == replace(gate, place=gate.place + 2).as_floats
    told = [1.0, math.inf, 1.0, 0.3]
    assert torch.equal(gate.after([impossible, told]).weights, gate.after([told]).weights)
    mixture_weights = F.log_softmax_weights(
        gate.placed(torch.tensor([[1.0, 0.3]]).double()), gate.weights[None]
    )
    assert (
        F.gated_losses(torch.tensor([[math.inf, math.inf]]).double(), mixture_weights).item()
        == math.inf
    )
    assert gate.after([told] * 50).weights[0, 0] > gate.weights[0, 0]


def test_another_text_begins_with_half_of_the_weights_and_the_odds_of_earlier_beginnings() -> None:
    first = torch.tensor([[1.0, 2.0, 0.3, 0.1], [0.5, -1.0, 0.2, 0.4]], dtype=torch.float64)
    gate = F.LearnedGate(first, 0.5, 0).at_text_start
    assert (gate.odds, gate.place, gate.squares) == (0, 0, None)
    rows = [[1.5, 1.0, 1.0, 0.3]] * 5
    read = gate.after(rows).after(rows)
    expected, place = 0.0, 0
    for step in (gate, gate.after(rows)):  # what gate and anchor gave the first ten tokens
        x = np.array([1.0, 0.3, *(np.array([1.0, 0.3]) * math.exp(-place / F.FADING))])
        mixture_weights = np.exp(step.weights.numpy() @ x)
        expected += 5 * (
            1.5 + math.log(mixture_weights / mixture_weights.sum() @ np.exp([-1.5, -1.0]))
        )
        place += 5
    assert read.gain == pytest.approx(expected, rel=1e-12)
    begun, helped = read.at_text_start, 1 / (1 + math.exp(-expected))
    assert begun.odds == pytest.approx(math.log((8 + helped) / (8 + 1 - helped)), rel=1e-12)
    assert torch.equal(begun.weights, torch.cat([read.weights[:, :2], first[:, 2:]], 1))
    assert read.squares is not None
    assert begun.squares is not None
    assert torch.equal(
        begun.squares, torch.cat([read.squares[:, :2], torch.zeros(2, 2).double()], 1)
    )
    assert (begun.place, begun.gain, read.place) == (0, 0, 10)
    assert begun.from_floats(read.as_floats).as_floats == read.as_floats
    assert begun.from_floats(read.as_floats).at_text_start.as_floats == begun.as_floats


def test_only_the_first_tokens_tell_of_a_beginning_and_texts_add_up() -> None:
    gate = (
        F.LearnedGate(torch.zeros(2, 2, dtype=torch.float64), 0.1, 0)
        .after([[1.0, 5.0, 1.0]] * 10)
        .at_text_start
    )
    assert gate.odds == 0, "the first text of all does not count"
    for _ in range(5):
        gate = gate.after([[5.0, 1.0, 1.0]] * 10)
    assert gate.gain == gate.after([[1.0, 9.0, 1.0]] * 10).gain
    odds = []
    for _ in range(3):
        gate = gate.at_text_start
        odds.append(gate.odds)
        gate = gate.after([[5.0, 1.0, 1.0]] * 10)
    assert odds == pytest.approx([math.log((8 + n) / 8) for n in (1, 2, 3)], abs=1e-3)


def numbers_of(context: Context) -> list[tuple[float, ...]]:
    return [learned.as_floats for learned in context.mixture_weights.values()]


def test_what_was_learned_is_kept_and_recalled() -> None:
    settings = settings_of(lr=0.2)
    contexts = [context_of(0), context_of(0)]
    adapters = [adapter_of(context, METHODS["best"].predictor(settings)) for context in contexts]
    hidden, labels = randn(5, 20, DIM, dtype=torch.float64), torch.arange(20) % 5
    untouched = numbers_of(contexts[0])
    adapters[0].update(hidden, labels)
    assert numbers_of(contexts[0]) != untouched
    toy.observe(contexts[1], hidden, labels)
    assert contexts[1].load_state_dict(contexts[0].state_dict()) == []
    assert numbers_of(contexts[1]) == numbers_of(contexts[0])
    assert torch.equal(adapters[0].predict(hidden), adapters[1].predict(hidden))


@pytest.mark.parametrize("wrong", ["base,lstm", "base,base", ""])
def test_components_are_known_and_named_once(wrong: str) -> None:
    with pytest.raises(UserError, match=r"best\.parts"):
        BestConfig(parts=wrong)
