"""The floors under what was measured, beside the goals: how much less time it could have taken at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hebblm.report.table import Cell, Column, Table
from recipes.bench.record import BenchResult, Row
from recipes.study.cost.floor import Floor, floors_of
from recipes.study.cost.goals import (
    ADAPTATION,
    EVALUATION,
    HEBBIAN,
    MILLION,
    NETWORK,
    PAPER_SIZE,
    SEARCH_MS,
    SEARCH_TIMES,
    hebbian_cost,
    is_paper_evaluation,
)

NOTE = (
    "Floor: bytes that have to be moved at the measured bandwidth, or operations at the measured rate, whichever takes "
    "longer; counted from the shapes, with the rates measured beside the cost, over arrays of the same size and "
    "therefore in the same caches."
)
SHOWN = 0.05  # parts of a cost that are named one by one


@dataclass(frozen=True, slots=True)
class Line:
    """A measured thing above its floor."""

    what: str  # in words
    floor: Floor  # under it
    cost: float  # milliseconds a token, measured
    goal: float | None = None  # milliseconds a token, or None where there is none

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells of the table."""
        least, work = self.floor.milliseconds, self.floor.work
        return (
            self.what,
            work.bytes / 1e6,
            (work.operations + work.exponentials) / 1e6,
            least,
            self.cost,
            self.cost / least,
            self._goal(),
            self._rest(),
        )

    def _goal(self) -> str | None:
        """Return the goal, and whether anything could reach it."""
        if self.goal is None:
            return None
        below = ", below the floor" if self.goal < self.floor.milliseconds else ""
        return f"{self.goal:.2g}{below}"

    def _rest(self) -> str:
        """Return what sets the floor, and what the measured time went to, most first."""
        if len(self.floor.phases) > 1:
            return "; ".join(
                f"{name} {_times(self.floor.parts[name], phase.milliseconds)}"
                for name, phase in self.floor.phases.items()
            )
        return f"floor set by {_bound(self.floor)}{_parts(self.floor.parts)}"


def floor_table(results: Sequence[BenchResult]) -> Table | None:
    """Return what has a floor, None where no file counts one."""
    lines = [line for result in results for line in lines_of(result.rows)]
    if not lines:
        return None
    columns = (
        Column("What"),
        Column("MB a token", "amount"),
        Column("M operations", "amount"),
        Column("Floor, ms", "amount"),
        Column("Measured, ms", "amount"),
        Column("Times the floor", "amount"),
        Column("Goal, ms"),
        Column("Where the time goes, ms"),
    )
    return Table("floors", "Floors", columns, tuple(line.cells() for line in lines), (NOTE,))


def lines_of(rows: Sequence[Row]) -> list[Line]:
    """Return a line for every floor among the rows of one result."""
    kinds = {"adapt": _adapted, "network": _network, "retrieve": _searched, "evaluation": _evaluated}
    return [line for row in rows if floors_of(row) for line in kinds[row.name](row)]


def _adapted(row: Row) -> list[Line]:
    """Return MbPA, and what Hebb adds to it."""
    case = row.case
    where = f"V = {case['vocabulary']:,}, S = {case['steps']}, d = {case['dim']}"
    fast = row.milliseconds("fast_mbpa")
    wanted = ADAPTATION.get((case["vocabulary"], case["steps"]))
    is_goal = wanted is not None and all(case[name] == value for name, value in PAPER_SIZE.items())
    return [
        Line(
            f"MbPA, {where}",
            floors_of(row)["fast_mbpa"],
            fast,
            row.milliseconds("naive_mbpa") / wanted if is_goal and wanted else None,
        ),
        Line(f"Hebb on top, {where}", floors_of(row)["hebbian"], hebbian_cost(row), HEBBIAN * fast),
    ]


def _network(row: Row) -> list[Line]:
    """Return MbPA over a network."""
    case = row.case
    what = f"MbPA over {case['pixels']}-{case['hidden']}-{case['classes']}, K = {case['k']}, S = {case['steps']}"
    return [Line(what, floors_of(row)["dual"], row.milliseconds("dual"), row.milliseconds("naive") / NETWORK)]


def _searched(row: Row) -> list[Line]:
    """Return retrieval."""
    case = row.case
    what = f"retrieval, {case['entries']:,} {case['source']['kind']} states, d = {case['dim']}"
    goal = min(SEARCH_MS, row.milliseconds("exact") / SEARCH_TIMES) if case["entries"] == MILLION else None
    return [Line(what, floors_of(row)["index"], row.milliseconds("index"), goal)]


def _evaluated(row: Row) -> list[Line]:
    """Return a whole evaluation."""
    what = f"whole evaluation, {row.case['entries']:,} entries, V = {row.case['vocabulary']:,}"
    goal = EVALUATION * row.milliseconds("lstm") if is_paper_evaluation(row) else None
    return [Line(what, floors_of(row)["all"], row.milliseconds("all"), goal)]


def _bound(floor: Floor) -> str:
    """Return what the longer side of the floor, moving or computing, is mostly made of, in milliseconds."""
    (phase,) = floor.phases.values()
    work, rates = phase.work, phase.rates
    moved = {"bytes in order": work.streamed / rates.streamed, "rows gathered": work.gathered / rates.gathered}
    computed = {"products": work.operations / rates.operations, "exponentials": work.exponentials / rates.exponentials}
    longer = max(moved, computed, key=lambda side: sum(side.values()))
    name = max(longer, key=longer.__getitem__)
    return f"{name} ({1000 * longer[name]:.2g})"


def _parts(parts: Mapping[str, float]) -> str:
    """Return the parts of a cost, largest first; small ones are left out."""
    if not parts:
        return ""
    whole = sum(parts.values())
    shown = sorted(parts.items(), key=lambda part: -part[1])
    named = ", ".join(f"{name} {cost:.2g}" for name, cost in shown if cost >= SHOWN * whole)
    return f"; measured: {named}"


def _times(cost: float, least: float) -> str:
    """Return a cost beside its floor."""
    return f"{cost:.2g} ({cost / least:.2g} times its floor of {least:.2g})"
