"""The floors under what hebblm-bench measures, taken beside each row while its input is still there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hebblm.adapt.solvers.fast import RANK
from hebblm.bench.adapt_cost import Adapted
from hebblm.bench.evaluate import method_settings
from hebblm.bench.harness import Harness
from hebblm.bench.network import AdaptedNetwork
from hebblm.bench.record import Row
from hebblm.bench.retrieve import Searched
from hebblm.bench.timing import Timing
from recipes.study.cost.breakdown import ELEMENTS, breakdown
from recipes.study.cost.evaluation_floor import evaluation_floor
from recipes.study.cost.floor import Floor, Phase
from recipes.study.cost.rates import measure_rates
from recipes.study.cost.record import FlooredRow
from recipes.study.cost.search_floor import search_phase
from recipes.study.cost.work import ACTIVE, base_work, descent_work, hebbian_work, network_work


def with_floors(row: Row, measured: Adapted | AdaptedNetwork | Searched | Harness) -> Row:
    """Return a row with the floors under its timings, as the machine is now.

    Args:
        row: just measured.
        measured: on this.
    """
    match measured:
        case Adapted():
            floors = _adaptation(row, measured)
        case AdaptedNetwork():
            floors = {"dual": _network(row, measured)}
        case Searched():
            phase = search_phase(measured.memory, measured.queries, row.case["k"])
            floors = {} if phase is None else {"index": Floor({"retrieval": phase}, _search_parts(row))}
        case Harness():
            steps, parts = method_settings().mbpa.steps, _evaluation_parts(measured, row.timings["all"])
            floor = evaluation_floor(measured, parts, batch=row.case["batch"], steps=steps)
            floors = {} if floor is None else {"all": floor}
    return FlooredRow.of(row, floors)


def _adaptation(row: Row, measured: Adapted) -> dict[str, Floor]:
    """Return the floors under the fast form of MbPA and under what Hebb adds to it."""
    head, device = measured.batch.head, measured.batch.hidden.device
    (classes, dim), (count, k) = head.weight.shape, measured.batch.neighbors.values.shape
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
            breakdown(measured.turns[name], row.milliseconds(name), device),
        )
        for name, (work, table) in works.items()
    }
    parts = floors["hebbian"].parts  # what MbPA does as well is no part of it
    rest = parts[ELEMENTS] - row.milliseconds("addition")
    floors["hebbian"] = replace(floors["hebbian"], parts={**parts, ELEMENTS: max(0.0, rest)})
    return floors


def _network(row: Row, measured: AdaptedNetwork) -> Floor:
    """Return the floor under MbPA over a network."""
    sizes = {name: row.case[name] for name in ("pixels", "hidden", "classes", "k", "steps")}
    work, k = network_work(**sizes), sizes["k"]
    shapes = [(k + 1, sizes["pixels"], k), (k + 1, k, sizes["hidden"])]
    rates = measure_rates(measured.keys, shapes, streamed=row.case["together"] * work.streamed)
    parts = breakdown(measured.dual, row.milliseconds("dual"), measured.keys.device)
    return Floor({"adaptation": Phase(work, rates)}, parts)


def _search_parts(row: Row) -> Mapping[str, float]:
    """Return what a search is spent on, milliseconds a token."""
    cost = {name: row.milliseconds(name) for name in row.timings}
    found = {"copying the neighbours": cost["index"] - cost["ranking"]}
    if "proposals" not in cost:
        return {"comparing with every entry": cost["ranking"], **found}
    exact = {"exact distances of the candidates": cost["ranking"] - cost["proposals"]}
    return {"comparing codes": cost["proposals"], **exact, **found}


def _evaluation_parts(bench: Harness, timing: Timing) -> Mapping[str, float]:
    """Return what an evaluation of all methods is spent on, milliseconds a token, as its last round was."""
    base, retrieval = bench.scores.base_seconds, bench.scores.retrieval_seconds
    rest = timing.seconds[-1] - base - retrieval
    scale = timing.milliseconds().median / timing.seconds[-1]
    parts = {"base": base, "retrieval": retrieval, "methods": rest}
    return {name: scale * seconds for name, seconds in parts.items()}
