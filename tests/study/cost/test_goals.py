from __future__ import annotations

import dataclasses

import pytest

from hebblm.report.render.table import to_markdown
from recipes.bench.record import Row
from recipes.study.cost.goals import goals
from recipes.study.cost.tables import cost_tables, goal_table

from ..bench.rows import MODEL, adapt_row, evaluation_row, result, retrieve_row, timing


def verdicts(*rows: Row) -> dict[str, str]:
    """Return the last column by the goal's first words, of goals that were measured."""
    table = goal_table([result(*rows)])
    return {str(goal): str(met) for goal, _, met in table.cells() if met != "-"}


def test_without_rows_nothing_is_called_met() -> None:
    table = goal_table([result()])
    assert len(table.cells()) == len(goals())
    assert {row[1:] for row in table.cells()} == {("not measured", "-")}


@pytest.mark.parametrize(("fast", "met"), [(0.4, "yes"), (0.5, "no")])
def test_adaptation_is_judged_by_its_ratio(fast: float, met: str) -> None:
    found = verdicts(adapt_row(10_000, 1, naive=20.0, fast=fast))
    assert found.pop("Hebb on top of MbPA: at most 1 %") == "yes"
    assert list(found.values()) == [met]
    assert "V = 10,000, S = 1" in next(iter(found))


def finding(*rows: Row, goal: str) -> str:
    """Return what the goal table says was measured for the goal that begins so."""
    (text,) = (
        text for name, text, _ in goal_table([result(*rows)]).cells() if str(name).startswith(goal)
    )
    return str(text)


def test_goals_say_how_far_above_its_floor_a_cost_is() -> None:
    older = adapt_row(10_000, 1, naive=20.0, fast=0.4)
    row = dataclasses.replace(older, floors={"fast_mbpa": 0.1, "hebbian": 0.1})
    assert finding(row, goal="MbPA and Hebb, V = 10,000, S = 1").endswith(
        "; 0.4 ms a token, 4 times the floor of 0.1"
    )
    assert finding(row, goal="Hebb on top").endswith(
        "; 0.0015 ms a token, 0.015 times the floor of 0.1"
    )
    older = dataclasses.replace(older, timings={**older.timings, "products": timing(0.12)})
    assert finding(older, goal="MbPA and Hebb, V = 10,000, S = 1").endswith(
        "that cannot be spared 0.12"
    )
    assert "floor" not in finding(older, goal="Hebb on top")
    searched = dataclasses.replace(
        retrieve_row(1_000_000, exact=7.0, index=0.2), floors={"index": 0.1}
    )
    assert finding(searched, goal="retrieval, 1 M").endswith(", 2 times the floor of 0.1")


def network_row(naive: float, dual: float, **case: object) -> Row:
    return Row(
        "network",
        {"pixels": 784, "hidden": 1000, "classes": 10, "k": 50, "steps": 5, **case},
        {"naive": timing(naive), "dual": timing(dual), "single": timing(2 * dual)},
        {"dual": "naive", "single": "naive"},
        {"difference_max": 1e-13},
    )


@pytest.mark.parametrize(("dual", "met"), [(0.4, "yes"), (0.6, "no")])
def test_a_whole_network_is_judged_by_the_worst_number_of_steps(dual: float, met: str) -> None:
    rows = [network_row(10.0, dual), network_row(10.0, 0.2, steps=1)]
    assert list(verdicts(*rows).values()) == [met]
    assert finding(*rows, goal="MbPA over").startswith(f"S = 5: {10 / dual:.3g}x")
    assert verdicts(network_row(10.0, 0.2, hidden=100)) == {}


def test_another_width_is_not_the_papers() -> None:
    row = adapt_row(10_000, 1, naive=20.0, fast=0.1)
    assert verdicts(dataclasses.replace(row, case={**row.case, "dim": 200})) == {}


@pytest.mark.parametrize(
    ("values", "met"),
    [
        ({}, "yes"),
        ({"error_mean": 2e-4}, "no"),
        ({"kl": 2e-6}, "no"),
        ({"perplexity_bias_percent": -0.02}, "no"),
    ],
)
def test_errors_are_those_on_real_states(values: dict[str, float], met: str) -> None:
    name = next(goal.text for goal in goals() if goal.text.startswith("error"))
    assert name not in verdicts(adapt_row(10_000, 1, naive=20.0, fast=0.1, **values))
    fine = adapt_row(10_000, 1, naive=20.0, fast=0.1, source=MODEL)
    assert (
        verdicts(fine, adapt_row(10_000, 5, naive=20.0, fast=0.1, source=MODEL, **values))[name]
        == met
    )


@pytest.mark.parametrize(
    ("exact", "index", "recall", "met"),
    [
        (7.0, 0.2, 0.995, "yes"),
        (9.0, 0.26, 0.995, "no"),
        (7.0, 0.2, 0.98, "no"),
        (5.0, 0.2, 0.995, "no"),
    ],
)
def test_retrieval_needs_cost_recall_and_ratio(
    exact: float, index: float, recall: float, met: str
) -> None:
    row = retrieve_row(1_000_000, exact=exact, index=index, recall=recall)
    assert list(verdicts(row).values()) == [met]


def test_retrieval_of_a_narrower_model_stands_beside_but_does_not_decide() -> None:
    slow = retrieve_row(1_000_000, exact=9.0, index=0.5)
    real = retrieve_row(1_000_000, exact=9.0, index=0.1, recall=0.998, source=MODEL, dim=200)
    (finding,) = (
        goal.measure([real, slow]) for goal in goals() if goal.text.startswith("retrieval, 1 M")
    )
    assert finding is not None
    assert not finding.met
    assert finding.text.startswith("synthetic states, d = 400: 0.5 ms")
    assert "model states, d = 200: 0.1 ms, recall 0.9980" in finding.text


def test_growth_is_the_slope_over_sizes() -> None:
    rows = [
        retrieve_row(10_000, exact=1.0, index=0.1),
        retrieve_row(100_000, exact=10.0, index=0.2),
    ]
    assert list(verdicts(*rows).values()) == ["yes"]
    rows[1] = retrieve_row(100_000, exact=10.0, index=1.01)
    assert list(verdicts(*rows).values()) == ["no"]


def test_growth_compares_memories_of_one_vocabulary() -> None:
    rows = [evaluation_row(10_000, times=1.0), evaluation_row(20_000, times=1.1)]
    other = evaluation_row(1_000_000, times=1000.0, classes=33_278)
    found = [
        line
        for line in goal_table([result(*rows, other)]).cells()
        if "evaluation sub-linear" in str(line[0])
    ]
    assert found[0][1:] == ("entries^0.14 from 10,000 to 20,000", "yes")


def currency_row(times: float, difference: float) -> Row:
    values = {"times": times, "times_min": times, "times_max": times}
    return Row(
        "currency",
        {},
        values={**values, "difference_mean": difference, "difference_max": 2 * difference},
    )


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (evaluation_row(100_000, times=1.9), "yes"),
        (evaluation_row(100_000, times=2.1), "no"),
        (evaluation_row(2_400_000, times=3.0, classes=33_278), "yes"),
        (evaluation_row(2_400_000, times=3.0, classes=33_278, peak=9 * 2.0**30), "no"),
        (currency_row(1.2, 1e-6), "yes"),
        (currency_row(1.4, 1e-6), "no"),
        (currency_row(1.2, 1e-4), "no"),
        (Row("stream", {"tokens": 100}, values={"last_over_first": 1.05}), "yes"),
        (Row("stream", {"tokens": 100}, values={"last_over_first": 1.3}), "no"),
        (
            Row("neighbors", {}, {"50": timing(1.0), "200": timing(4.0)}, {}, {"exponent": 1.0}),
            "yes",
        ),
        (
            Row("neighbors", {}, {"50": timing(1.0), "200": timing(9.0)}, {}, {"exponent": 1.6}),
            "no",
        ),
    ],
)
def test_the_other_goals(row: Row, met: str) -> None:
    assert list(verdicts(row).values()) == [met]


@pytest.mark.parametrize(
    ("cost", "difference", "met"), [(0.005, 1e-7, "yes"), (0.1, 1e-7, "no"), (0.005, 1e-4, "no")]
)
def test_the_cache_needs_speed_and_the_same_numbers(
    cost: float, difference: float, met: str
) -> None:
    timings = {"classic": timing(1.2), "cache": timing(cost)}
    row = Row(
        "cache",
        {"vocabulary": 10_000, "window": 500},
        timings,
        {"cache": "classic"},
        {"difference_max": difference},
    )
    assert list(verdicts(row).values()) == [met]


def test_markdown_says_where_the_numbers_come_from() -> None:
    text = to_markdown(
        goal_table([result(adapt_row(10_000, 1, naive=20.0, fast=0.4), complete=False)])
    )
    assert "MbPA 50x (50 to 50)" in text
    assert "python -m recipes.bench adapt: commit 0123456789ab, torch 2.13.0, a processor" in text
    assert "interrupted" in text


def test_goals_stand_alone_without_a_training() -> None:
    row = adapt_row(10_000, 1, naive=20.0, fast=0.4)
    assert [table.name for table in cost_tables([result(row)])] == ["goals"]
