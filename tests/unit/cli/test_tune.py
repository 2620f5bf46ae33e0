from __future__ import annotations

from hebblm.adapt.grid import Grid
from hebblm.cli.tune import TuneConfig, evaluation, tuned_table
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.tuning.points import BestPoint
from hebblm.tuning.search import Search


def test_methods_are_called_by_their_labels() -> None:
    best = {"lstm": BestPoint(loss=5.0), "mixture+hebb": BestPoint(loss=4.0)}
    table = tuned_table(Search(Hyperparameters(), Grid(), set(), {}, best))
    assert [row[0] for row in table.cells()] == ["Base", "Mixture+Hebb"]


def test_a_best_value_at_an_end_is_marked() -> None:
    best = BestPoint(
        loss=4.0, values={"mbpa.lr": 8.0}, tried=[{"mbpa.lr": lr, "nll": 4.0} for lr in (6.0, 8.0)]
    )
    table = tuned_table(Search(Hyperparameters(), Grid(), set(), {}, {"mbpa": best}))
    assert table.cells()[0][-1] == "mbpa.lr=8*"
    assert table.notes == ("* the least or the largest value tried: a better one may lie beyond",)


def test_the_command_for_the_values_found_changes_none_of_them() -> None:
    best = {
        "base": BestPoint(values={"base.lr": 0.01}),
        "mixture+hebb": BestPoint(values={"mixture_hebb.weight": 0.5}),
    }
    found = Search(Hyperparameters(), Grid(), set(), {}, best)
    config = TuneConfig(
        cross_domain="wt2-to-ptb", set=["base.lr=1", "mixture+hebb.weight=0.5", "cache.window=300"]
    )
    assert evaluation(config, found) == (
        "hebblm-eval --cross-domain wt2-to-ptb --config results/tuned/config.json --set "
        "cache.window=300"
    )
    within = TuneConfig(intra_domain="ptb", set=["mixture_hebb.weight=0.5"])
    assert evaluation(within, found).endswith("config.json")
