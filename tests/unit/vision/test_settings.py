from __future__ import annotations

import pytest

from hebblm.errors import UserError
from hebblm.vision.scales import PERMUTED_PAPER as PAPER
from hebblm.vision.scales import PERMUTED_SCALES as SCALES
from hebblm.vision.settings import PermutedSettings


def test_paper_values_leave_nothing_to_tune() -> None:
    settings = SCALES["paper"].changed(PAPER)
    assert settings.ewc_lambda == (1000.0,)
    assert (settings.mbpa_rate, settings.mbpa_lambda, settings.steps) == ("absolute", (0.05,), 5)
    assert (settings.hebb_beta, settings.hebb_eta) == ((0.9,), (0.2,))
    assert not settings.tuned
    assert settings.changed({"tasks": "2"}).tasks == 2  # fewer than tuning would run through
    assert SCALES["paper"].tuned


def test_paper_scale_is_the_papers() -> None:
    paper = SCALES["paper"]
    assert (paper.tasks, paper.train_samples, paper.test_samples, paper.epochs) == (20, 10_000, 10_000, 100)
    assert (paper.hidden, paper.lr, paper.stored, paper.k) == (1000, 1e-3, (250, 500), 200)


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_grids_hold_the_papers_values(scale: str) -> None:
    settings = SCALES[scale]  # type: ignore[index]
    for name in ("ewc_lambda", "hebb_beta", "hebb_eta"):
        assert float(PAPER[name]) in getattr(settings, name)
    assert settings.tune_tasks == settings.tasks  # EWC's best lambda depends on how many tasks follow


def test_changes_by_name() -> None:
    settings = PermutedSettings().changed({"epochs": "3", "fisher": "predictions", "mbpa_lambda": "0.1,2"})
    assert settings.epochs == 3
    assert settings.fisher == "predictions"
    assert settings.mbpa_lambda == (0.1, 2.0)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"epoch": "3"}, "unknown setting 'epoch'"),
        ({"epochs": "0"}, "epochs = 0 is out of range"),
        ({"epochs": "many"}, "epochs=many must be a value of type int"),
        ({"lr": "nan"}, "lr = nan is out of range"),
        ({"fisher": "guess"}, "fisher = 'guess' is unknown"),
        ({"hebb_beta": "1"}, "hebb_beta = 1.0 is out of range"),
        ({"mbpa_lambda": "0.1,-1"}, "-1.0 is out of range"),
        ({"mbpa_lambda": "0.1,0.1"}, "each once"),
        ({"mbpa_lambda": ""}, "mbpa_lambda= must be a value"),
        ({"stored": "20000"}, "stored = 20000 is more than train_samples"),
        ({"curve_samples": "20000"}, "curve_samples = 20000 is more than test_samples = 10000"),
        ({"tune_tasks": "21"}, "tune_tasks = 21 is more than tasks = 20"),
        ({"tune_samples": "2000"}, "tune_samples = 2000 is more than held_out"),
    ],
)
def test_refuses(values: dict[str, str], told: str) -> None:
    with pytest.raises(UserError) as caught:
        PermutedSettings().changed(values)
    assert told in str(caught.value)
