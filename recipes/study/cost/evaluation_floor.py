"""The least time of a whole evaluation: reading, retrieval and every method, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hebblm.adapt.solvers.fast import RANK
from hebblm.layout import Pace
from recipes.bench.harness import Harness
from recipes.study.cost.floor import Floor, Phase
from recipes.study.cost.rates import measure_rates
from recipes.study.cost.search_floor import search_phase
from recipes.study.cost.work import (
    ACTIVE,
    Work,
    base_work,
    cache_work,
    descent_work,
    hebbian_work,
    reading_work,
)


def evaluation_floor(bench: Harness, parts: Mapping[str, float], *, batch: int, steps: int) -> Floor | None:
    """Return the floor under an evaluation of all methods, None where that of the memory's index is not known.

    Args:
        bench: its memory is filled.
        parts: milliseconds a token that were spent on ``base``, ``retrieval`` and ``methods``.
        batch: tokens that are predicted together.
        steps: of MbPA.
    """
    head = bench.source.head
    classes, dim = head.weight.shape
    retrieval = search_phase(bench.memory, bench.source.queries(batch)[0], bench.k)
    if retrieval is None:
        return None
    layers = bench.model.config.layer_sizes()
    ahead = Pace.of(batch, ahead=True).ahead
    reading = reading_work(layers, ahead=ahead)
    distribution = base_work(dim=dim, classes=classes, batch=batch)
    methods = methods_work(
        bench.rules, dim=dim, classes=classes, k=bench.k, steps=steps, batch=batch, window=bench.window
    )
    shapes = [(batch, dim, classes), *((ahead, inputs, 4 * width) for inputs, width in layers)]
    adapting = [(batch, dim, classes), (bench.k, dim, min(ACTIVE, classes))]
    return Floor(
        {
            # A token goes through the recurrent matrices, which are the same ones for the next token.
            "base": Phase(reading + distribution, measure_rates(head.weight, shapes, streamed=reading.streamed)),
            "retrieval": retrieval,
            "methods": Phase(methods, measure_rates(head.weight, adapting, streamed=batch * methods.streamed)),
        },
        parts,
    )


def methods_work(names: Iterable[str], *, dim: int, classes: int, k: int, steps: int, batch: int, window: int) -> Work:
    """Count what methods do to the base's distribution and the neighbours, each shared part once.

    Args:
        names: of the methods; whatever is not known to need more counts for nothing.
        dim: D.
        classes: V.
        k: K.
        steps: S of MbPA.
        batch: tokens that are predicted together.
        window: of the continuous cache.
    """
    parts = {part for name in names for part in name.split("+")}
    hebbian = any(part.startswith("hebb") for part in parts)
    work = Work()
    if "cache" in parts:
        work += cache_work(window=window, dim=dim, batch=batch)
    work += Work(exponentials=float(k * len(parts & {"knn", "mixture"})))
    if "mbpa" in parts or hebbian:
        descent = descent_work(dim=dim, classes=classes, k=k, steps=steps, active=ACTIVE, rank=RANK)
        work += descent + Work(exponentials=float(classes))  # and the normaliser of the changed logits
    if hebbian:
        work += hebbian_work(k=k)
    return work
