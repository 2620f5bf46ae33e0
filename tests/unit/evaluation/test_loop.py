from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as nn

from awd_lstm import detach
from hebblm.adapt import functional as F
from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.mbpa import Mbpa, MbpaAbsoluteConfig, MbpaConfig
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import FlatMemory
from hebblm.memory.found import Found
from hebblm.types import Neighbors

from ...support import toy

EXACT = toy.exact(toy.SETTINGS)


class CountingMemory(FlatMemory):
    def __init__(self) -> None:
        super().__init__(toy.DIM)
        self.searches = self.added = 0

    def find(self, queries: Tensor, k: int) -> Found:
        self.searches += 1
        return super().find(queries, k)

    def add(self, keys: Tensor, values: Tensor, log_normalizers: Tensor | None = None) -> None:
        self.added += len(values)
        super().add(keys, values, log_normalizers)


def nearest(keys: Tensor, values: Tensor, hidden: Tensor, k: int) -> Neighbors:
    """Search a list of pairs the plain way."""
    k = min(k, len(keys))
    distances, order = (hidden[:, None] - keys[None]).square().sum(2).sort(dim=1, stable=True)
    near = order[:, :k]
    return Neighbors(
        keys[near], values[near], distances[:, :k], torch.ones_like(near, dtype=torch.bool)
    )


@pytest.mark.parametrize("every", [1, 100])
def test_equals_the_plainest_loop(every: int) -> None:
    stream = toy.stream_of(toy.tokens(0, 120 if every == 1 else 250))
    base = toy.base_of(toy.tiny_model().double())
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)
    predictors = {name: METHODS[name].predictor(EXACT) for name in ("lstm", "mixture", "hebb")}
    found = evaluate(
        base, [context], predictors, stream, UnionVocabulary(), Schedule(every, read_ahead=True)
    )

    base.reset()
    model, state = base.model, base.model.initial_state(1)
    keys, values = torch.zeros(0, toy.DIM, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
    counts = torch.from_numpy(stream.train_counts)
    new = torch.arange(toy.WORDS) >= toy.SOURCE
    expected: dict[str, list[float]] = {name: [] for name in predictors}
    for start in range(0, len(stream), every):
        inputs, targets = (
            torch.from_numpy(x[start : start + every]) for x in (stream.inputs, stream.targets)
        )
        with torch.no_grad():
            out = model(inputs[None], state)
        state, hidden = out.state, out.hidden[0]
        head = base.head
        base_logits = head.logits(hidden)
        logits = {"lstm": base_logits, "mixture": base_logits, "hebb": base_logits}
        if len(keys):
            near = nearest(keys, values, hidden, context.k)
            logits["mixture"] = F.mixture_log_probs(
                hidden, near, head, theta=0.8, gamma=0.25, scale="relative"
            )
            logits["hebb"] = F.hebb_logits(
                hidden, near, head, lr=0.3, steps=3, eta=0.4, beta=0.6, eps=3e-3,
                hebbian_classes=new, scale="relative",
                lr_units="relative", counts=counts + torch.bincount(values, minlength=toy.WORDS),
            )  # fmt: skip
        for name, scores in logits.items():
            expected[name] += nn.cross_entropy(scores, targets, reduction="none").tolist()
        keys, values = torch.cat([keys, hidden]), torch.cat([values, targets])
    for name in predictors:
        np.testing.assert_allclose(found.nll[name], expected[name], rtol=1e-6, atol=1e-6)


def test_a_moving_base_is_plain_gradient_descent_after_scoring() -> None:
    stream = toy.stream_of(toy.tokens(1, 230))
    trained = toy.tiny_model().double()
    base = toy.base_of(trained, lr=0.3)
    start = copy.deepcopy(base.model)
    context = toy.context_of(base, FlatMemory(toy.DIM, dtype=torch.float64), stream)
    predictors = {name: METHODS[name].predictor(EXACT) for name in ("lstm", "mixture")}
    found = evaluate(base, [context], predictors, stream, UnionVocabulary(), Schedule(50))

    model, optimizer, state, expected = (
        start,
        torch.optim.SGD(start.parameters(), 0.3),
        start.initial_state(1),
        [],
    )
    for first in range(0, len(stream), 50):
        inputs, targets = (
            torch.from_numpy(x[first : first + 50]) for x in (stream.inputs, stream.targets)
        )
        out = model(inputs[None], detach(state))
        state = out.state
        losses = nn.cross_entropy(model.logits(out.hidden[0]), targets, reduction="none")
        expected += losses.tolist()
        optimizer.zero_grad()
        losses.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
    np.testing.assert_allclose(found.nll["lstm"], expected, rtol=1e-6)
    for name, parameter in base.model.named_parameters():
        assert torch.allclose(parameter, model.get_parameter(name), atol=1e-12), name
    assert torch.equal(context.head.weight, base.model.embedding), (
        "methods must adapt the base as it has become"
    )
    assert torch.equal(trained.embedding, toy.tiny_model().double().embedding), (
        "the trained model must stay"
    )


def test_one_forward_pass_and_one_retrieval_serve_every_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = toy.stream_of(toy.tokens(2, 95))
    base, memory = toy.base_of(toy.tiny_model()), CountingMemory()
    reads: list[int] = []
    read = base.read
    monkeypatch.setattr(base, "read", lambda inputs: reads.append(len(inputs)) or read(inputs))
    context = toy.context_of(base, memory, stream)
    predictors = {name: METHODS[name].predictor(toy.SETTINGS) for name in STATIC_METHODS}
    scores = evaluate(base, [context], predictors, stream, UnionVocabulary(), Schedule(20))
    assert reads == [20, 20, 20, 20, 15]
    assert memory.searches == 5
    assert memory.added == len(memory) == 95
    assert set(scores.nll) == set(scores.seconds) == set(STATIC_METHODS)
    assert all(scores.seconds[name] >= scores.base_seconds for name in STATIC_METHODS)


def test_without_retrieval_the_memory_is_never_searched() -> None:
    stream = toy.stream_of(toy.tokens(2, 50))
    base, memory = toy.base_of(toy.tiny_model()), CountingMemory()
    predictors = {name: METHODS[name].predictor(toy.SETTINGS) for name in ("lstm", "cache")}
    context = toy.context_of(base, memory, stream)
    evaluate(base, [context], predictors, stream, UnionVocabulary(), Schedule(20, write=False))
    assert memory.searches == memory.added == 0


@pytest.mark.parametrize(
    ("filled", "write"), [(True, False), (False, True), (True, True)], ids=["train", "test", "both"]
)
def test_the_memory_holds_what_was_asked_for(filled: bool, write: bool) -> None:
    stream = toy.stream_of(toy.tokens(3, 60))
    base, memory = toy.base_of(toy.tiny_model()), FlatMemory(toy.DIM)
    if filled:
        memory.add(toy.randn(0, 30, toy.DIM), torch.randint(0, toy.SOURCE, (30,)))
        memory.mark_base()
    context = toy.context_of(base, memory, stream)
    predictors = {
        "mixture": METHODS["mixture"].predictor(toy.SETTINGS),
        "lstm": METHODS["lstm"].predictor(toy.SETTINGS),
    }
    nll = evaluate(
        base, [context], predictors, stream, UnionVocabulary(), Schedule(20, write=write)
    ).nll
    assert len(memory) == 30 * filled + 60 * write
    assert np.allclose(nll["mixture"][:20], nll["lstm"][:20], rtol=1e-6) == (not filled)
    assert int(context.observed.sum()) == 60


def test_progress_counts_every_token_once() -> None:
    stream = toy.stream_of(toy.tokens(4, 450))
    base, done = toy.base_of(toy.tiny_model()), []
    context = toy.context_of(base, FlatMemory(toy.DIM), stream)
    evaluate(
        base,
        [context],
        {"lstm": METHODS["lstm"].predictor(EXACT)},
        stream,
        UnionVocabulary(),
        Schedule(30, read_ahead=True),
        Hooks(progress=done.append),
    )
    assert sum(done) == 450
    assert max(done) == 90, "intervals shorter than a block are predicted together"


def test_queries_whose_loss_rises_are_counted_and_finite() -> None:
    stream = toy.stream_of(np.tile(toy.tokens(5, 20), 6))  # repetition makes near-duplicate keys
    for lr in (1e-4, 1e4):
        base = toy.base_of(toy.tiny_model())
        context = toy.context_of(base, FlatMemory(toy.DIM), stream)
        mbpa = replace(toy.SETTINGS[MbpaConfig], lr=lr)
        settings = toy.SETTINGS.replaced(mbpa, MbpaAbsoluteConfig(lr=lr))
        predictors = {name: METHODS[name].predictor(settings) for name in STATIC_METHODS}
        predictors["guarded"] = Mbpa(
            replace(settings[MbpaAbsoluteConfig].over(mbpa), lr_units="guarded")
        )
        scores = evaluate(
            base, [context], predictors, stream, UnionVocabulary(), Schedule(20), Hooks(check=True)
        )
        assert all(np.isfinite(losses).all() for losses in scores.nll.values())
        quiet = {"lstm", "cache", "knn", "mixture", "ngram", "hebb-v1"}
        assert {name for name in predictors if scores.loss_increased[name] == 0} == (
            quiet if lr > 1 else set(predictors)
        )
        again = {name for name in predictors if scores.retried[name]}
        assert again == ({"guarded"} if lr > 1 else set())
        assert scores.retried["guarded"] == scores.loss_increased["guarded"]
        own = {"mbpa-absolute", "guarded"}
        assert (
            len({scores.loss_increased[name] for name in predictors if name not in quiet | own})
            == 1
        )


def test_nothing_is_checked_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hebblm.adapt.methods.mbpa.MEASURED", 1)
    stream = toy.stream_of(np.tile(toy.tokens(5, 20), 6))
    predictors = {
        "mbpa": METHODS["mbpa"].predictor(
            toy.SETTINGS.replaced(replace(toy.SETTINGS[MbpaConfig], lr=1e4))
        )
    }
    found = {}
    for check in (False, True):
        base = toy.base_of(toy.tiny_model())
        context = toy.context_of(base, FlatMemory(toy.DIM), stream)
        found[check] = evaluate(
            base, [context], predictors, stream, UnionVocabulary(), Schedule(20), Hooks(check=check)
        )
    assert np.array_equal(found[False].nll["mbpa"], found[True].nll["mbpa"])
    assert (found[False].loss_increased, found[False].errors) == ({}, {})
    assert found[True].loss_increased["mbpa"] > 0
    assert len(found[True].errors["mbpa"]) == 120
