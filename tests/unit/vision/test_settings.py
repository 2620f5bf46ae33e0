from __future__ import annotations

import re

import pytest

from hebblm.errors import UserError
from hebblm.vision.paper import PERMUTED_PAPER, family_of, paper_values
from hebblm.vision.reading import given_values, grids
from hebblm.vision.scales import CLASS_SCALES, PERMUTED_SCALES
from hebblm.vision.settings import (
    BACKBONES,
    AdaptationSettings,
    ClassSettings,
    PermutedSettings,
    PretrainingSettings,
)
from hebblm.vision.tuning import left_to_choose


def test_paper_values_leave_nothing_to_tune() -> None:
    settings = PERMUTED_SCALES["paper"].changed(PERMUTED_PAPER)
    assert settings.ewc_lambda == (1000.0,)
    assert (settings.mbpa_rate, settings.mbpa_lambda, settings.steps) == ("absolute", (0.05,), 5)
    assert (settings.hebb_beta, settings.hebb_eta) == ((0.9,), (0.2,))
    assert not settings.tuned
    assert settings.changed({"tasks": "2"}).tasks == 2  # fewer than tuning would run through
    assert PERMUTED_SCALES["paper"].tuned


def test_paper_scale_is_the_papers() -> None:
    paper = PERMUTED_SCALES["paper"]
    assert (paper.tasks, paper.train_samples, paper.test_samples, paper.epochs) == (
        20,
        10_000,
        10_000,
        100,
    )
    assert (paper.hidden, paper.lr, paper.stored, paper.k) == (1000, 1e-3, (250, 500), 200)


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_grids_hold_the_papers_values(scale: str) -> None:
    settings = PERMUTED_SCALES[scale]  # type: ignore[index]
    for name in ("ewc_lambda", "hebb_beta", "hebb_eta"):
        assert float(PERMUTED_PAPER[name]) in getattr(settings, name)
    # EWC's best lambda depends on how many tasks follow
    assert settings.tune_tasks == settings.tasks


PERMUTED, CLASSES = PermutedSettings(), CLASS_SCALES["paper"]


@pytest.mark.parametrize(
    ("settings", "values", "told"),
    [
        (PERMUTED, {"epoch": "3"}, "unknown setting 'epoch'"),
        (PERMUTED, {"epochs": "0"}, "epochs = 0 must be a whole number at least 1"),
        (PERMUTED, {"epochs": "many"}, "epochs = many must be a whole number at least 1"),
        (PERMUTED, {"lr": "nan"}, "lr = nan must be a number"),
        (PERMUTED, {"fisher": "guess"}, "fisher = guess must be one of labels, predictions"),
        (
            PERMUTED,
            {"mbpa_lambda": "0.1,-1"},
            "mbpa_lambda = 0.1,-1 must be a number at least 0, or several of them with commas",
        ),
        (PERMUTED, {"mbpa_lambda": "0.1,0.1"}, "each value once"),
        (PERMUTED, {"mbpa_lambda": ""}, "mbpa_lambda = must be a number at least 0"),
        (PERMUTED, {"stored": "20000"}, "stored = 20000 is more than train_samples"),
        (
            PERMUTED,
            {"curve_samples": "20000"},
            "curve_samples = 20000 is more than test_samples = 10000",
        ),
        (PERMUTED, {"tune_tasks": "21"}, "tune_tasks = 21 is more than tasks = 20"),
        (CLASSES, {"backbone": "vgg"}, "backbone = vgg must be one of resnet50, "),
        (CLASSES, {"old_classes": "0"}, "old_classes = 0 must be a whole number at least 1"),
        (CLASSES, {"varied": "30,30"}, "each value once"),
        (CLASSES, {"pretraining.epochs": "1,2"}, "must have equally many values"),
        (CLASSES, {"pretraining.schedule": "onecycle"}, "must be one value with schedule=onecycle"),
        (
            CLASSES,
            {"pretraining.epochs": "0,1,1"},
            "pretraining.epochs = 0,1,1 must be a whole number at least 1",
        ),
        (
            CLASSES,
            {"pretraining.momentum": "1"},
            "pretraining.momentum = 1 must be a number at least 0 and below 1",
        ),
        (CLASSES, {"increment.reported": "1,11"}, "is beyond increment.epochs = 10"),
        (CLASSES, {"increment.reported": "1,3"}, "must have the last epoch, 10; add it"),
        (
            CLASSES,
            {"increment.schedule": "onecycle", "increment.warm_up": "5"},
            "set increment.warm_up=0",
        ),
        (CLASSES, {"online.norms": "thawed"}, "online.norms = thawed must be one of batch, frozen"),
        (CLASSES, {"increment.samples": "4"}, "leaves no picture at a ratio of 5:1"),
        (CLASSES, {"adaptation.hebb_beta": "1"}, "adaptation.hebb_beta = 1 must be"),
        (CLASSES, {"adaptation.mixture_gamma": "1.5"}, "adaptation.mixture_gamma = 1.5"),
    ],
)
def test_refuses(
    settings: PermutedSettings | ClassSettings, values: dict[str, str], told: str
) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        settings.changed(values)


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        (
            PermutedSettings,
            {"epochs": 0},
            "epochs = 0 must be a whole number at least 1",
        ),
        (PermutedSettings, {"ewc_lambda": ()}, "must have at least one value"),
        (
            PretrainingSettings,
            {"momentum": 1.0},
            "momentum = 1.0 must be a number at least 0 and below 1",
        ),
        (
            AdaptationSettings,
            {"hebb_beta": (0.5, 1.0)},
            r"hebb_beta = \(0.5, 1.0\) must be a number at least 0 and below 1",
        ),
        (ClassSettings, {"backbone": "vgg"}, "backbone = vgg must be one of resnet50"),
    ],
)
def test_refuses_in_python_too(kind: type, values: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        kind(**values)


def test_of_classes_paper_scale_is_the_papers() -> None:
    paper = CLASS_SCALES["paper"]
    assert (paper.backbone, paper.old_classes, paper.varied) == ("resnet50", 50, (30, 50, 70))
    training = paper.pretraining
    assert (training.epochs, training.lr) == ((150, 100, 100), (0.1, 0.01, 0.001))
    assert (training.batch_size, training.momentum, training.weight_decay) == (128, 0.9, 5e-4)
    assert (training.padding, training.flip, training.schedule) == (4, True, "steps")
    assert paper.pretrainings == "own"
    assert (paper.increment.ratios, paper.increment.reported) == ((1, 2, 5), (1, 3, 10))
    assert (paper.online.interval, paper.online.streamed) == (100, 10_000)
    assert (paper.adaptation.k, paper.adaptation.rings) == (200, (250, 500))
    assert paper.increment.lr == paper.online.lr == (5e-5, 1e-4, 5e-4, 1e-3)


@pytest.mark.parametrize("backbone", [name for name in BACKBONES if family_of(name)])
@pytest.mark.parametrize("experiment", ["incremental", "online"])
def test_of_classes_paper_values_leave_nothing_to_tune(backbone: str, experiment: str) -> None:
    settings = CLASS_SCALES["paper"].changed(paper_values(backbone, experiment))
    section = settings.increment if experiment == "incremental" else settings.online
    assert not left_to_choose(section.network, settings)
    assert left_to_choose(CLASS_SCALES["paper"].online.network, settings)


@pytest.mark.parametrize("experiment", ["incremental", "online"])
def test_paper_values_are_its_optimizer_too_whatever_the_scale_has(experiment: str) -> None:
    settings = CLASS_SCALES["small"].changed(paper_values("resnet50-w16", experiment))
    section = settings.increment if experiment == "incremental" else settings.online
    assert (section.optimizer, section.warm_up, section.new_rows) == ("rmsprop", 0, "pretrained")
    own = {"schedule": "constant"} if experiment == "incremental" else {"steps": (1,)}
    assert {name: getattr(section, name) for name in own} == own


def test_of_the_network_several_numbers_are_chosen() -> None:
    settings = CLASS_SCALES["paper"].changed({"online.steps": "1,5", "online.head": "1,10"})
    grid = settings.online.network
    assert grid == {"lr": (5e-5, 1e-4, 5e-4, 1e-3), "head": (1.0, 10.0), "steps": (1, 5)}
    assert grids(grid, settings.adaptation)["parametric"] == grid
    first = given_values(grid, settings.adaptation)["parametric"]
    assert first == {"lr": 5e-5, "head": 1.0, "steps": 1}


def test_paper_values_of_the_narrow_variant_are_those_of_its_network() -> None:
    assert paper_values("resnet50-w16", "online") == paper_values("resnet50", "online")
    values = paper_values("densenet40-k12", "incremental")
    assert (values["increment.lr"], values["adaptation.mbpa_steps"]) == ("1e-3", "10")
    with pytest.raises(UserError, match=r"no hyper-parameters for backbone 'cnn2-w16'"):
        paper_values("cnn2-w16", "online")


def test_changes_by_dotted_name() -> None:
    before = CLASS_SCALES["paper"]
    after = before.changed(
        {"old_classes": "3", "pretraining.flip": "false", "pretraining.lr": "2e-3,1,1"}
    )
    assert (after.old_classes, after.pretraining.flip, after.pretraining.lr) == (
        3,
        False,
        (2e-3, 1.0, 1.0),
    )
    assert after.pretraining.epochs == before.pretraining.epochs
    assert before.changed({}) == before != after
