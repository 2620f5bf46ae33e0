from __future__ import annotations

import pytest

from hebblm.errors import UserError
from hebblm.vision.scales import CLASS_SCALES as SCALES
from hebblm.vision.scales import family_of, paper_values
from hebblm.vision.settings import BACKBONES
from hebblm.vision.tuning import left_to_choose


def test_paper_scale_is_the_papers() -> None:
    paper = SCALES["paper"]
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
def test_paper_values_leave_nothing_to_tune(backbone: str, experiment: str) -> None:
    settings = SCALES["paper"].changed(paper_values(backbone, experiment))
    lr = settings.increment.lr if experiment == "incremental" else settings.online.lr
    assert not left_to_choose(lr, settings)
    assert left_to_choose(SCALES["paper"].online.lr, settings)


def test_paper_values_of_the_narrow_variant_are_those_of_its_network() -> None:
    assert paper_values("resnet50-w16", "online") == paper_values("resnet50", "online")
    values = paper_values("densenet40-k12", "incremental")
    assert (values["increment.lr"], values["adaptation.mbpa_steps"]) == ("1e-3", "10")
    with pytest.raises(UserError, match=r"no hyper-parameters for backbone 'cnn2-w16'"):
        paper_values("cnn2-w16", "online")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"backbone": "vgg"}, "unknown backbone 'vgg'; choose from resnet50"),
        ({"old_classes": "0"}, "old_classes = 0 is out of range"),
        ({"varied": "30,30"}, "each once"),
        ({"held_out": "0"}, "held_out = 0 is out of range"),
        ({"pretraining.epochs": "1,2"}, "must be as many values"),
        ({"pretraining.schedule": "onecycle"}, "must be one value with schedule=onecycle"),
        ({"pretraining.epochs": "0,1,1"}, "pretraining.epochs = 0"),
        ({"pretraining.momentum": "1"}, "pretraining.momentum = 1.0"),
        ({"pretraining.batch_size": "1"}, "pretraining.batch_size = 1"),
        ({"increment.reported": "1,11"}, "is beyond increment.epochs = 10"),
        ({"increment.samples": "4"}, "leaves no picture at a ratio of 5:1"),
        ({"increment.lr": "1e-3,-1"}, "increment.lr = -1.0"),
        ({"online.interval": "1"}, "online.interval = 1"),
        ({"adaptation.k": "0"}, "adaptation.k = 0"),
        ({"adaptation.hebb_beta": "1"}, "adaptation.hebb_beta = 1.0"),
        ({"adaptation.mixture_gamma": "1.5"}, "adaptation.mixture_gamma = 1.5"),
        ({"adaptation.hebb_constant": "2"}, "adaptation.hebb_constant = 2.0"),
        ({"sensitivity.beta": "1"}, "sensitivity.beta = 1.0"),
        ({"timing.rounds": "0"}, "timing.rounds = 0"),
    ],
)
def test_refuses(values: dict[str, str], told: str) -> None:
    with pytest.raises(UserError) as caught:
        SCALES["paper"].changed(values)
    assert told in str(caught.value)
