"""One stream has the numbers of the plainest loop to the bit, and a document beside others those
that it has alone.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import Block
from hebblm.adapt.context import Context
from hebblm.adapt.methods import DYNAMIC_METHODS, METHODS, STATIC_METHODS
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.scenario_config import MemoryScope
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory
from hebblm.models.awd import AwdBase
from hebblm.models.base import BaseUpdate, StreamBase
from hebblm.models.dynamic import DynamicBase, DynamicConfig
from hebblm.online import layout as layouts
from hebblm.online.layout import Layout
from hebblm.text import EvaluationStream

from ..support import toy

BLOCK = 24


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "BLOCK", BLOCK)
    monkeypatch.setattr(layouts, "READ_AHEAD", 2 * BLOCK)


def text() -> EvaluationStream:
    """Return a text that repeats itself, so that states and labels recur."""
    return toy.stream_of(np.concatenate([toy.tokens(1, 30), toy.tokens(2, 15), toy.tokens(1, 30)]))


def rules_of(methods: tuple[str, ...], settings: MethodSettings) -> dict[str, Predictor]:
    return {method: METHODS[method].predictor(settings) for method in methods}


def context_of(base: StreamBase, memory: AnyMemory) -> Context:
    """Return a context whose window is shorter than the text."""
    counts = torch.from_numpy(text().train_counts)
    new = torch.arange(toy.WORDS) >= toy.SOURCE
    return toy.counting(
        Context(
            base.head,
            memory,
            k=9,
            train_counts=counts,
            new_classes=new,
            window=17,
            fixed=not base.trains_online,
        )
    )


def trained(dtype: torch.dtype = torch.float32, *, lr: float = 0.0, streams: int = 1) -> AwdBase:
    model = toy.tiny_model().to(dtype)
    return AwdBase(model, rows=toy.NOVEL, init="uniform", update=BaseUpdate(lr=lr), streams=streams)


def dynamic(predictor: str) -> DynamicBase:
    squares = [toy.randn(7, *p.shape).square() for p in toy.tiny_model().parameters()]
    return DynamicBase(trained(), DynamicConfig(predictor, lr=0.05), squares)  # type: ignore[arg-type]


@torch.no_grad()
def plainly(
    base: StreamBase, memory: AnyMemory, predictors: dict[str, Predictor], every: int, ahead: int
) -> dict[str, np.ndarray]:
    """Losses (T,) in nats, as the description of the loop has it: an interval is predicted, scored,
    then learned from.

    An interval has ``every`` tokens; ``ahead`` are read by the base at once.
    """
    stream, context = text(), context_of(base, memory)
    inputs, targets = torch.from_numpy(stream.inputs), torch.from_numpy(stream.targets)
    context.learn_mixture_weights(predictors.values())
    nll: dict[str, list[torch.Tensor]] = {name: [] for name in predictors}
    for begin in range(0, len(stream), ahead):
        states = base.read(inputs[begin : begin + ahead])
        for hidden, labels in zip(
            states.split(every), targets[begin : begin + ahead].split(every), strict=True
        ):
            batch = EvalBatch(hidden, context, Block.of(labels, every, written=True))
            for name, predictor in predictors.items():
                nll[name].append(predictor.score(batch, labels))
            observation = batch.observation(labels)
            with torch.enable_grad():
                base.learn(labels)
            context.set_head(base.head)
            context.observe(observation)
            context.count_ngrams(observation)
    return {name: torch.cat(losses).numpy() for name, losses in nll.items()}


def as_evaluated(
    base: StreamBase,
    memory: AnyMemory,
    predictors: dict[str, Predictor],
    every: int,
    scope: MemoryScope,
    *,
    ahead: bool,
) -> dict[str, np.ndarray]:
    """Read as the evaluation does, as one stream."""
    stream = text()
    layout = Layout.of(len(stream), 1, scope=scope)
    return evaluate(
        base, [context_of(base, memory)], predictors, stream, UnionVocabulary(),
        Schedule(every, layout=layout, read_ahead=ahead),
    ).nll  # fmt: skip


def same_bits(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for method, losses in expected.items():
        assert found[method].dtype == losses.dtype == np.float32
        assert found[method].tobytes() == losses.tobytes(), method


SINGLY, BY_SEVEN = (1, 1), (7, 7)  # tokens of an interval, and how many the base reads at once
BLOCKS, LONGER = (BLOCK, 2 * BLOCK), (BLOCK + 6, BLOCK + 6)


@pytest.mark.parametrize(
    ("kind", "settings", "scope", "paces"),
    [
        ("flat", toy.SETTINGS, "shared", (BY_SEVEN, BLOCKS, LONGER)),
        ("flat", toy.LEARNED, "stream", (SINGLY, BY_SEVEN, BLOCKS, LONGER)),
        ("ring", toy.LEARNED, "shared", (BY_SEVEN, BLOCKS)),
        ("hybrid", toy.LEARNED, "shared", (BY_SEVEN, LONGER)),
    ],
)
def test_every_method_over_a_fixed_base(
    kind: str, settings: MethodSettings, scope: MemoryScope, paces: tuple[tuple[int, int], ...]
) -> None:
    """With blocks of several intervals it is but for rounding: test_block_contract."""
    make, predictors = toy.MEMORIES[kind], rules_of(STATIC_METHODS, settings)
    for every, ahead in paces:
        found = as_evaluated(
            trained(), make(torch.float32), predictors, every, scope, ahead=every >= BLOCK
        )
        same_bits(found, plainly(trained(), make(torch.float32), predictors, every, ahead))


@pytest.mark.parametrize(
    ("predictor", "settings", "every"),
    [
        ("sgd", toy.SETTINGS, 7),
        ("sgd", toy.SETTINGS, 50),
        ("rms", toy.LEARNED, 1),
        ("rms", toy.LEARNED, 50),
    ],
)
def test_every_method_over_dynamic_evaluation(
    settings: MethodSettings, predictor: str, every: int
) -> None:
    predictors = rules_of(DYNAMIC_METHODS, settings)
    found = as_evaluated(
        dynamic(predictor),
        toy.MEMORIES["flat"](torch.float32),
        predictors,
        every,
        "shared",
        ahead=False,
    )
    same_bits(
        found,
        plainly(dynamic(predictor), toy.MEMORIES["flat"](torch.float32), predictors, every, every),
    )


def test_every_method_over_a_base_that_learns() -> None:
    predictors = rules_of(STATIC_METHODS, toy.LEARNED)
    found = as_evaluated(
        trained(lr=0.1), toy.MEMORIES["flat"](torch.float32), predictors, 7, "shared", ahead=False
    )
    same_bits(
        found, plainly(trained(lr=0.1), toy.MEMORIES["flat"](torch.float32), predictors, 7, 7)
    )


LENGTHS = (37, 5, 60, 2, 37)


def documents(changed: int | None = None) -> list[np.ndarray]:
    """Return texts that end with an ``<eos>``, the first and the last alike; one of them is
    exchanged for another.
    """
    seeds = [1, 2, 3, 4, 1]
    return [
        np.append(toy.tokens(seed + 10 * (index == changed), length - 1), toy.EOS)
        for index, (seed, length) in enumerate(zip(seeds, LENGTHS, strict=True))
    ]


def in_parallel(
    texts: list[np.ndarray], make: toy.MemoryMaker, settings: MethodSettings, every: int
) -> list[dict[str, np.ndarray]]:
    """Return the losses of documents that are read side by side, of each by method."""
    begins = np.cumsum([0, *map(len, texts)])
    layout = Layout(tuple(begins[:-1].tolist()), tuple(map(len, texts)), "stream")
    base = trained(torch.float64, streams=len(texts))
    contexts = [context_of(base, make(torch.float64)) for _ in texts]
    nll = evaluate(
        base, contexts, rules_of(STATIC_METHODS, toy.exact(settings)),
        toy.stream_of(np.concatenate(texts)),
        UnionVocabulary(), Schedule(every, layout=layout, read_ahead=True),
    ).nll  # fmt: skip
    return [
        {name: losses[begin:end] for name, losses in nll.items()} for begin, end in pairwise(begins)
    ]


@pytest.mark.parametrize(
    ("kind", "settings", "every"),
    [
        ("flat", toy.LEARNED, 1),
        ("ring", toy.SETTINGS, 7),
        ("hybrid", toy.SETTINGS, 7),
        ("hybrid", toy.LEARNED, 30),
    ],
)
def test_documents_that_remember_for_themselves_are_as_alone(
    kind: str, settings: MethodSettings, every: int
) -> None:
    make, texts = toy.MEMORIES[kind], documents()
    found = in_parallel(texts, make, settings, every)
    for ids, losses in zip(texts, found, strict=True):
        base = trained(torch.float64)
        alone = evaluate(
            base, [context_of(base, make(torch.float64))], rules_of(STATIC_METHODS,
            toy.exact(settings)),
            toy.stream_of(ids), UnionVocabulary(), Schedule(every, read_ahead=True),
        ).nll  # fmt: skip
        for method in STATIC_METHODS:
            np.testing.assert_allclose(
                losses[method], alone[method], rtol=1e-6, atol=1e-6, err_msg=method
            )
    # Whatever stands beside a document, the same is computed of it.
    others = in_parallel(documents(changed=2), make, settings, every)
    for index in (0, 1, 3, 4):
        same_bits(others[index], found[index])
