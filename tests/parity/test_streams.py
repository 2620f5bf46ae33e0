"""Streams that are read side by side give what a plain loop gives that reads each with a base of
its own.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.scenario_config import MemoryScope
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory
from hebblm.models.awd import AwdBase
from hebblm.models.base import BaseUpdate
from hebblm.online import layout as layout_module
from hebblm.online.layout import Layout
from hebblm.text import EvaluationStream

from ..support import toy

DOUBLE = torch.float64
TOKENS = 101


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_module, "BLOCK", 24)
    monkeypatch.setattr(layout_module, "READ_AHEAD", 48)
    monkeypatch.setattr(layout_module, "ROWS", 33)


def text() -> EvaluationStream:
    return toy.stream_of(np.concatenate([toy.tokens(1, 40), toy.tokens(2, 21), toy.tokens(1, 40)]))


def rules_of(settings: MethodSettings) -> dict[str, Predictor]:
    return {method: METHODS[method].predictor(toy.exact(settings)) for method in STATIC_METHODS}


def base_of(count: int = 1) -> AwdBase:
    model = toy.tiny_model().double()
    return AwdBase(model, rows=toy.NOVEL, init="uniform", update=BaseUpdate(), streams=count)


def context_of(memory: AnyMemory, *, count: int = 1) -> Context:
    """Return a context whose window is shorter than a stream."""
    stream = text()
    counts = torch.from_numpy(stream.train_counts)
    new = torch.arange(toy.WORDS) >= toy.SOURCE
    head = base_of().head
    return toy.counting(
        Context(
            head,
            memory,
            k=9,
            train_counts=counts,
            new_classes=new,
            window=17,
            fixed=True,
            streams=count,
        )
    )


def one_by_one(
    layout: Layout, predictors: dict[str, Predictor], make: toy.MemoryMaker, every: int
) -> dict[str, np.ndarray]:
    """Read chunk by chunk: every stream is predicted and scored, then all are learned from, in
    their order.
    """
    stream = text()
    inputs, targets = torch.from_numpy(stream.inputs), torch.from_numpy(stream.targets)
    bases = [base_of() for _ in layout.begins]
    contexts = [context_of(make(DOUBLE)) for _ in layout.begins]
    for context in contexts:
        context.learn_mixture_weights(predictors.values())
        if layout.scope == "shared":
            context.memory, context.observed = contexts[0].memory, contexts[0].observed
            context.ngrams = contexts[0].ngrams
    nll = {name: np.full(len(stream), np.nan) for name in predictors}
    for start in range(0, max(layout.lengths), every):
        scored = []
        for base, context, first, length in zip(
            bases, contexts, layout.begins, layout.lengths, strict=True
        ):
            place = slice(first + start, first + min(start + every, length))
            labels = targets[place]
            if not len(labels) or start >= length:
                continue
            batch = EvalBatch(
                base.read(inputs[place]), context, Block.of(labels, every, written=True)
            )
            for name, predictor in predictors.items():
                nll[name][place] = predictor.score(batch, labels).numpy()
            scored.append((context, batch.observation(labels)))
        for context, observation in scored:
            context.observe(observation)
            context.count_ngrams(observation)
    return nll


def in_parallel(
    layout: Layout, predictors: dict[str, Predictor], make: toy.MemoryMaker, every: int
) -> dict[str, np.ndarray]:
    """Read them as the evaluation does."""
    if layout.scope == "shared":
        contexts = [context_of(make(DOUBLE), count=layout.streams)]
    else:
        contexts = [context_of(make(DOUBLE)) for _ in layout.begins]
    return evaluate(
        base_of(layout.streams), contexts, predictors, text(), UnionVocabulary(),
        Schedule(every, layout=layout, read_ahead=True),
    ).nll  # fmt: skip


SCOPES: tuple[MemoryScope, ...] = ("shared", "stream")
CASES = [
    *(
        (kind, scope, settings, every)
        for kind in toy.MEMORIES
        for scope in SCOPES
        for settings, every in ((toy.SETTINGS, 7), (toy.LEARNED, 20))
    ),
    # A token at a time takes long.
    ("hybrid", "shared", toy.LEARNED, 1),
    ("flat", "stream", toy.LEARNED, 1),
]


@pytest.mark.parametrize(("kind", "scope", "settings", "every"), CASES)
def test_side_by_side_equals_one_by_one(
    kind: str, scope: MemoryScope, settings: MethodSettings, every: int
) -> None:
    make, predictors = toy.MEMORIES[kind], rules_of(settings)
    layouts = [Layout((0, 5, 60, 62), (5, 55, 2, 39), scope)]  # documents of any length
    if every > 1:
        layouts.append(Layout.of(TOKENS, 3, scope=scope))
    for layout in layouts:
        slow, fast = (read(layout, predictors, make, every) for read in (one_by_one, in_parallel))
        for method in predictors:
            np.testing.assert_allclose(
                fast[method], slow[method], rtol=1e-6, atol=1e-6, err_msg=method
            )


def test_what_is_shared_matters() -> None:
    """Else nothing above would mean much."""
    predictors = rules_of(toy.SETTINGS)
    one, shared, apart = (
        in_parallel(layout, predictors, toy.MEMORIES["flat"], 1)
        for layout in (
            Layout.of(TOKENS),
            Layout.of(TOKENS, 3),
            Layout.of(TOKENS, 3, scope="stream"),
        )
    )
    for method in predictors:
        assert np.abs(one[method] - shared[method]).max() > 1e-2, method
        if method not in ("lstm", "cache"):
            assert np.abs(apart[method] - shared[method]).max() > 1e-2, method
    assert np.array_equal(apart["cache"], shared["cache"])
