"""The floors under what recipes.bench measures, taken beside each row while its input is still there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.solvers.fast import RANK
from hebblm.memory import AnyMemory
from recipes.bench.evaluate import method_settings
from recipes.bench.harness import Harness
from recipes.bench.record import Row
from recipes.bench.source import Batch
from recipes.bench.timing import Timing, Turn
from recipes.study.cost.breakdown import ELEMENTS, breakdown
from recipes.study.cost.evaluation_floor import evaluation_floor
from recipes.study.cost.floor import Floor, Phase
from recipes.study.cost.rates import measure_rates
from recipes.study.cost.record import FlooredRow
from recipes.study.cost.search_floor import search_phase
from recipes.study.cost.work import ACTIVE, base_work, descent_work, hebbian_work, network_work


def with_floors(row: Row) -> FlooredRow:
    """Return a row that was just measured with the floors under its timings, as the machine is now."""
    known: dict[str, Callable[..., Mapping[str, Floor | None]]] = {
        "adapt": _adaptation,
        "network": _network,
        "retrieve": _retrieval,
        "evaluation": _evaluation,
    }
    found = known[row.name](row, **row.measured) if row.name in known else {}
    return FlooredRow.of(row, {name: floor for name, floor in found.items() if floor is not None})


def _adaptation(row: Row, batch: Batch, turns: Mapping[str, Turn]) -> dict[str, Floor]:
    """Return the floors under the fast form of MbPA and under what Hebb adds to it."""
    head, device = batch.head, batch.hidden.device
    (classes, dim), (count, k) = head.weight.shape, batch.neighbors.values.shape
    active = min(ACTIVE, classes)
    descent = descent_work(dim=dim, classes=classes, k=k, steps=row.case["steps"], active=active, rank=RANK)
    shapes = [(count, dim, classes), (k, dim, active)]
    works = {
        "fast_mbpa": (base_work(dim=dim, classes=classes, batch=count) + descent, head.weight),
        "hebbian": (hebbian_work(k=k), head.weight[:, :1].contiguous()),  # rows of a single number
    }
    floors = {
        name: Floor(
            {"adaptation": Phase(work, measure_rates(table, shapes, streamed=count * work.streamed))},
            breakdown(turns[name], row.milliseconds(name), device),
        )
        for name, (work, table) in works.items()
    }
    parts = floors["hebbian"].parts  # what MbPA does as well is no part of it
    rest = parts[ELEMENTS] - row.milliseconds("addition")
    floors["hebbian"] = replace(floors["hebbian"], parts={**parts, ELEMENTS: max(0.0, rest)})
    return floors


def _network(row: Row, keys: Tensor, dual: Callable[[], object]) -> dict[str, Floor]:
    """Return the floor under MbPA over a network."""
    sizes = {name: row.case[name] for name in ("pixels", "hidden", "classes", "k", "steps")}
    work, k = network_work(**sizes), sizes["k"]
    shapes = [(k + 1, sizes["pixels"], k), (k + 1, k, sizes["hidden"])]
    rates = measure_rates(keys, shapes, streamed=row.case["together"] * work.streamed)
    parts = breakdown(dual, row.milliseconds("dual"), keys.device)
    return {"dual": Floor({"adaptation": Phase(work, rates)}, parts)}


def _retrieval(row: Row, memory: AnyMemory, queries: Tensor) -> dict[str, Floor | None]:
    """Return the floor under a search of the memory, None for an index whose work is not known."""
    phase = search_phase(memory, queries, row.case["k"])
    return {"index": None if phase is None else Floor({"retrieval": phase}, _search_parts(row))}


def _search_parts(row: Row) -> Mapping[str, float]:
    """Return what a search is spent on, milliseconds a token."""
    cost = {name: row.milliseconds(name) for name in row.timings}
    found = {"copying the neighbours": cost["index"] - cost["ranking"]}
    if "proposals" not in cost:
        return {"comparing with every entry": cost["ranking"], **found}
    exact = {"exact distances of the candidates": cost["ranking"] - cost["proposals"]}
    return {"comparing codes": cost["proposals"], **exact, **found}


def _evaluation(row: Row, bench: Harness) -> dict[str, Floor | None]:
    """Return the floor under an evaluation of all methods."""
    parts = _evaluation_parts(bench, row.timings["all"])
    steps = method_settings()[MbpaConfig].steps
    return {"all": evaluation_floor(bench, parts, batch=row.case["batch"], steps=steps)}


def _evaluation_parts(bench: Harness, timing: Timing) -> Mapping[str, float]:
    """Return what an evaluation of all methods is spent on, milliseconds a token, as its last round was."""
    base, retrieval = bench.scores.base_seconds, bench.scores.retrieval_seconds
    rest = timing.seconds[-1] - base - retrieval
    scale = timing.milliseconds().median / timing.seconds[-1]
    parts = {"base": base, "retrieval": retrieval, "methods": rest}
    return {name: scale * seconds for name, seconds in parts.items()}
