from __future__ import annotations

from pathlib import Path

import pytest

from hebblm.errors import UserError
from hebblm.report.plots.drawing import save
from recipes.bench.plots import cost_figure, mbpa_curves, memory_curves
from recipes.bench.tables import row_table

from .rows import MODEL, adapt_row, evaluation_row, result, retrieve_row


def test_a_row_shows_every_cost_beside_that_of_its_plain_form() -> None:
    table = row_table(retrieve_row(1000, exact=3.0, index=0.1))
    assert table.title == "retrieve: entries 1000, dim 400, k 200, batch 100"
    assert tuple(table.cells()) == (
        ("exact", "3 (2.7 to 3.6)", None, None),
        ("index", "0.1 (0.09 to 0.12)", "30 (30 to 30)", "exact"),
    )
    assert table.notes == ("recall 0.995, build_seconds 1",)


def test_memories_of_one_vocabulary_are_drawn() -> None:
    rows = [evaluation_row(10_000, times=1.0), evaluation_row(20_000, times=1.1)]
    other = evaluation_row(1_000_000, times=1000.0, classes=33_278)
    assert set(memory_curves([*rows, other])["all methods"]) == {10_000, 20_000}


def test_curves_are_costs_by_size() -> None:
    rows = [
        retrieve_row(100_000, exact=10.0, index=0.2),
        retrieve_row(10_000, exact=1.0, index=0.1),
        *(
            adapt_row(classes, steps, naive=classes * steps / 1000, fast=steps)
            for classes in (10_000, 33_278)
            for steps in (1, 5)
        ),
        adapt_row(9_999, 1, naive=1.0, fast=1.0, source=MODEL),
    ]
    assert list(memory_curves(rows)) == ["exact search", "memory's index"]
    assert memory_curves(rows)["memory's index"] == pytest.approx({10_000: 0.1, 100_000: 0.2})
    by_classes = mbpa_curves(rows, "vocabulary", "steps", "S = {}")
    assert by_classes["naive, S = 5"] == pytest.approx({10_000: 50.0, 33_278: 166.39})
    by_steps = mbpa_curves(rows, "steps", "vocabulary", "V = {:,}")
    assert by_steps["fast, V = 33,278"] == pytest.approx({1: 1.0, 5: 5.0})


@pytest.mark.usefixtures("drawn_pictures")
def test_the_plot_has_a_panel_for_each_size_that_was_varied(tmp_path: Path) -> None:
    rows = [
        retrieve_row(10_000, exact=1.0, index=0.1),
        retrieve_row(100_000, exact=10.0, index=0.2),
    ]
    assert len(cost_figure([result(*rows)]).axes) == 1
    figure = cost_figure([result(*rows), result(adapt_row(10_000, 1, naive=20.0, fast=0.4))])
    assert [axis.get_xlabel() for axis in figure.axes] == [
        "Entries of the memory",
        "Vocabulary V",
        "Steps S",
    ]
    written = save(figure, tmp_path / "cost.png").read_bytes()
    assert written.startswith(b"\x89PNG")
    with pytest.raises(UserError, match="nothing to draw"):
        cost_figure([result()])
