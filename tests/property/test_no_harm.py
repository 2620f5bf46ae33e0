"""Adaptation that cannot hurt: on any text the mixtures are hardly above the base, once they have
read a while.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from hebblm.adapt.methods import METHODS
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import RingMemory

from ..support import toy

HARM = 0.005  # nats a token
AFTER = 2000  # tokens
Text = Callable[[int], np.ndarray]


def own(count: int) -> np.ndarray:
    """A text that the base draws itself, of which nobody can know more than the base."""
    base, draw = toy.base_of(toy.tiny_model()), torch.Generator().manual_seed(0)
    tokens = [toy.EOS]
    with torch.no_grad():
        for _ in range(count):
            hidden = base.read(torch.tensor(tokens[-1:]))
            shares = base.head.logits(hidden)[0].softmax(0)
            tokens.append(int(torch.multinomial(shares, 1, generator=draw)))
    return np.array(tokens[1:], dtype=np.int64)


def shuffled(count: int) -> np.ndarray:
    return np.random.default_rng(1).permutation(own(count))


def uniform(count: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, toy.WORDS, count)


def changing(count: int) -> np.ndarray:
    """Another domain every 500 tokens: other words are frequent."""
    draw = np.random.default_rng(3)
    parts = []
    for _ in range(0, count, 500):
        shares = draw.dirichlet(np.full(toy.WORDS, 0.2))
        parts.append(draw.choice(toy.WORDS, 500, p=shares))
    return np.concatenate(parts)[:count]


def misleading(count: int) -> np.ndarray:
    """After every pair of words comes the one that came least often after it before."""
    seen, text = np.zeros((toy.WORDS, toy.WORDS, toy.WORDS)), [0, 1]
    draw = np.random.default_rng(4)
    while len(text) < count:
        follows = seen[text[-2], text[-1]]
        text.append(int(draw.choice(np.flatnonzero(follows == follows.min()))))
        follows[text[-1]] += 1
    return np.array(text, dtype=np.int64)


def losses(text: np.ndarray) -> dict[str, np.ndarray]:
    settings = MethodSettings()
    rules = {name: METHODS[name].predictor(settings) for name in ("lstm", "ngram", "best")}
    base = toy.base_of(toy.tiny_model())
    context = toy.context_of(base, RingMemory(toy.DIM, 2000), toy.stream_of(text), window=20_000)
    return evaluate(
        base,
        [context],
        rules,
        toy.stream_of(text),
        UnionVocabulary(),
        Schedule(50, read_ahead=True),
    ).nll


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        *((text, 4000) for text in (own, shuffled, uniform, misleading)),
        *(pytest.param(text, 12_000, marks=pytest.mark.slow) for text in (changing, misleading)),
    ],
)
def test_mixtures_are_hardly_above_the_base(text: Text, tokens: int) -> None:
    found = losses(text(tokens))
    for end in range(4000, tokens + 1, 4000):
        harm = {name: float((nll - found["lstm"])[AFTER:end].mean()) for name, nll in found.items()}
        assert max(harm.values()) < HARM, (end, harm)
