"""What a toy text scores, read by one process or by several: run by ``test_processes.py`` in
processes of its own.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import torch

from hebblm.adapt.context import Context
from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.scenario_config import MemoryScope
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory, ShardedMemory
from hebblm.models.awd import AwdBase
from hebblm.online import layout as layouts
from hebblm.online.layout import Layout
from hebblm.runtime.ranks import ALONE, Ranks, end_rank, opened
from hebblm.text import EvaluationStream

from ..support import toy

TOKENS, TRAINING = 101, 23
DOUBLE = torch.float64
LAYOUTS = {
    "parts": Layout.of(TOKENS, 6),
    "documents": Layout((0, 5, 60, 62, 63), (5, 55, 2, 1, 38)),  # ranks end at different times
}
COUNTED = toy.SETTINGS.replaced(replace(toy.SETTINGS[HebbConfig], counts="memory"))
SETTINGS = {"numbers": toy.SETTINGS, "learned": toy.LEARNED, "counted": COUNTED}
CASES: list[tuple[str, str, str, int, MemoryScope]] = [
    ("parts", "hybrid", "learned", 7, "shared"),
    ("documents", "flat", "counted", 7, "shared"),
    ("documents", "hybrid", "numbers", 1, "shared"),
    ("documents", "flat", "learned", 7, "stream"),
]


def text() -> EvaluationStream:
    """Return a text whose end repeats its beginning, so that distances are equal to the bit."""
    return toy.stream_of(np.concatenate([toy.tokens(1, 40), toy.tokens(2, 21), toy.tokens(1, 40)]))


def scores(
    layout: Layout, kind: str, settings: str, every: int, ranks: Ranks
) -> dict[str, np.ndarray]:
    """Return the losses (T,) by method, read behind entries of another text; ranks share these and
    the streams.
    """
    predictors = {
        name: METHODS[name].predictor(toy.exact(SETTINGS[settings])) for name in STATIC_METHODS
    }
    stream, mine = text(), layout.part(ranks.rank, ranks.size)
    base = AwdBase(toy.tiny_model().double(), rows=toy.NOVEL, init="uniform", streams=mine.streams)
    keys, labels = (
        toy.randn(3, TRAINING, toy.DIM, dtype=DOUBLE),
        torch.from_numpy(toy.tokens(4, TRAINING)),
    )
    logs = (keys @ base.head.weight.T + base.head.bias).logsumexp(1)

    def memory() -> AnyMemory:
        own, share = (
            toy.MEMORIES[kind](DOUBLE),
            (ranks if mine.spread else ALONE).partition(TRAINING),
        )
        held = slice(share.start, share.stop)
        own.add(keys[held], labels[held], logs[held])
        own.mark_base()
        return ShardedMemory(own, ranks) if mine.spread else own

    contexts = [
        Context(
            base.head,
            memory(),
            k=9,
            train_counts=torch.from_numpy(stream.train_counts),
            new_classes=torch.arange(toy.WORDS) >= toy.SOURCE,
            window=17,
            fixed=True,
            streams=mine.streams_a_context,
        )
        for _ in range(mine.streams // mine.streams_a_context)
    ]
    found = evaluate(
        base, contexts, predictors, stream, UnionVocabulary(),
        Schedule(every, layout=layout, read_ahead=True, ranks=ranks),
    )  # fmt: skip
    return found.nll


def everything(ranks: Ranks) -> dict[str, np.ndarray]:
    """Return the losses of all cases by their names."""
    layouts.ROWS = 9  # several rounds a step
    found = {}
    for name, kind, settings, every, scope in CASES:
        placed = replace(LAYOUTS[name], scope=scope)
        for method, nll in scores(placed, kind, settings, every, ranks).items():
            found[f"{name} {kind} {settings} {every} {scope} {method}"] = nll
    return found


def main() -> None:
    with opened() as ranks:
        found = everything(ranks)
        if ranks.leads:
            np.savez(sys.argv[1], **found)
            print(ranks.size, ranks.backend)
    end_rank(0)


if __name__ == "__main__":
    main()
