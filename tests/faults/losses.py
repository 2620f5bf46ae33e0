"""The mean loss of every method over one small stream, printed as JSON: what other versions and processors repeat."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.mbpa import MbpaAbsoluteConfig
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import FlatMemory

from ..support import toy

TOKENS = 600
SETTINGS = replace(toy.LEARNED, mbpa_absolute=MbpaAbsoluteConfig(lr=0.01))  # at the default rate it diverges here


def losses() -> dict[str, float]:
    """Return the mean loss by method, nats, and under "seconds" the processor time of all."""
    started, found = time.process_time(), {}
    stream = toy.stream_of(toy.tokens(0, TOKENS))
    for moving in (False, True):
        base = toy.base_of(toy.tiny_model(), lr=1e-3 if moving else 0.0)
        context = toy.context_of(base, FlatMemory(toy.DIM), stream)
        rules = {name: m.rule(SETTINGS) for name, m in METHODS.items() if m.moving == moving}
        scores = evaluate(base, [context], rules, stream, UnionVocabulary(), Schedule(20))
        found |= {name: float(nll.mean()) for name, nll in scores.nll.items()}
    return {**found, "seconds": time.process_time() - started}


if __name__ == "__main__":
    print(json.dumps(losses()))
