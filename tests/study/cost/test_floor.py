from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipes.bench.record import BenchResult, Row
from recipes.study.cost.floor import Floor, FlooredRow, Phase, Rates, Work, load
from recipes.study.cost.floors import floor_table, lines_of

from ..bench.rows import adapt_row, result, retrieve_row

RATES = Rates(streamed=1e9, gathered=1e8, operations=1e10, exponentials=1e9)


def floor(milliseconds: float, **parts: float) -> Floor:
    """Return a floor that computing sets."""
    work = Work(streamed=100, operations=milliseconds * 1e7)
    return Floor({"adaptation": Phase(work, RATES)}, parts)


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (Work(streamed=1e9), 1.0),
        (Work(streamed=1e9, gathered=1e8), 2.0),
        (Work(streamed=1e9, operations=5e9, exponentials=4e8), 1.0),
        (Work(streamed=1e9, operations=2e10, exponentials=1e9), 3.0),
    ],
)
def test_moving_and_computing_go_on_at_once(work: Work, seconds: float) -> None:
    assert RATES.seconds(work) == pytest.approx(seconds)


def test_phases_follow_one_another() -> None:
    phases = {"first": Phase(Work(streamed=1e6), RATES), "second": Phase(Work(operations=2e7), RATES)}
    found = Floor(phases)
    assert found.milliseconds == pytest.approx(1.0 + 2.0)
    assert found.work == Work(streamed=1e6, operations=2e7)


def test_a_floor_comes_back_from_its_file(tmp_path: Path) -> None:
    plain = adapt_row(10_000, 1, naive=20.0, fast=0.4)
    row = FlooredRow.of(plain, {"fast_mbpa": floor(0.1, products=0.2)})
    path = tmp_path / "bench.json"
    result(row).save(path)
    stored = json.loads(path.read_text())["rows"][0]["floors"]["fast_mbpa"]
    assert stored["ms_per_token"] == pytest.approx(0.1)
    assert load(path).rows == (row,)
    assert BenchResult.load(path).rows == (plain,)


def test_files_of_recipes_bench_have_none(tmp_path: Path) -> None:
    made = result(adapt_row(10_000, 1, naive=20.0, fast=0.4))
    path = tmp_path / "bench.json"
    made.save(path)
    assert floor_table([load(path)]) is None
    assert BenchResult.load(path) == made


@pytest.mark.parametrize(("least", "goal"), [(0.1, "0.44"), (0.5, "0.44, below the floor")])
def test_a_goal_below_the_floor_is_called_so(least: float, goal: str) -> None:
    floors = {"fast_mbpa": floor(least), "hebbian": floor(0.001)}
    table = floor_table([result(FlooredRow.of(adapt_row(10_000, 1, naive=20.0, fast=0.8), floors))])
    assert table is not None
    mbpa, hebb = table.rows
    assert mbpa[0] == "MbPA, V = 10,000, S = 1, d = 400"
    assert mbpa[3:7] == (pytest.approx(least), pytest.approx(0.8), pytest.approx(0.8 / least), goal)
    assert hebb[4] == pytest.approx(0.003)  # the term less the plain sum
    assert hebb[6] == "0.008"


def test_another_case_has_no_goal() -> None:
    floors = {"fast_mbpa": floor(0.1), "hebbian": floor(0.001)}
    for row in (
        adapt_row(10_000, 2, naive=20.0, fast=0.8),
        adapt_row(10_000, 1, naive=20.0, fast=0.8, case={"k": 100}),
    ):
        assert lines_of([FlooredRow.of(row, floors)])[0].goal is None


def test_the_table_says_what_sets_a_floor_and_where_the_time_went() -> None:
    row = FlooredRow.of(
        retrieve_row(1_000_000, exact=9.0, index=0.8), {"index": floor(0.2, codes=0.5, ranking=0.29, copying=0.01)}
    )
    (line,) = lines_of([row])
    assert line.cells()[-1] == "floor set by products (0.2); measured: codes 0.5, ranking 0.29"
    assert line.goal == pytest.approx(0.25)
    moved = Floor({"retrieval": Phase(Work(streamed=1e5, gathered=1e5, operations=1e6), RATES)})
    (line,) = lines_of([FlooredRow.of(retrieve_row(1000, exact=9.0, index=0.8), {"index": moved})])
    assert line.cells()[-1] == "floor set by rows gathered (1)"
    assert line.goal is None


def test_a_whole_evaluation_is_told_phase_by_phase() -> None:
    phases = {"base": Phase(Work(streamed=8e5), RATES), "methods": Phase(Work(operations=2e6), RATES)}
    case = {"entries": 100_000, "vocabulary": 10_000, "architecture": {"hidden_dim": 1150}}
    made = adapt_row(10_000, 1, naive=1.0, fast=2.4)
    timings = {"lstm": made.timings["naive_mbpa"], "all": made.timings["fast_mbpa"]}
    floors = {"all": Floor(phases, {"base": 1.0, "methods": 1.4})}
    row = FlooredRow.of(Row("evaluation", case, timings), floors)
    (line,) = lines_of([row])
    assert line.goal == pytest.approx(2.0)
    assert line.cells()[3] == pytest.approx(1.0)
    assert line.cells()[-1] == "base 1 (1.2 times its floor of 0.8); methods 1.4 (7 times its floor of 0.2)"
