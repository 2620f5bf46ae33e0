"""``hebblm-vision``: the paper's image experiments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from hebblm.cli.common import guarded, parse
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import parse_settings
from hebblm.files import check_writable
from hebblm.models.device import pick_device
from hebblm.provenance import command_line, provenance
from hebblm.text.download import cache_dir, data_dirs
from hebblm.vision import document as permuted
from hebblm.vision.cifar import load_cifar100
from hebblm.vision.classes import document as classes
from hebblm.vision.classes.experiments import run_experiment, scenario_of
from hebblm.vision.classes.scales import SCALES as CLASS_SCALES
from hebblm.vision.classes.scales import paper_values
from hebblm.vision.classes.setup import Setup
from hebblm.vision.digits import load_digits
from hebblm.vision.experiment import PermutedMnist
from hebblm.vision.hub import CIFAR100, MNIST, HubDataset, load_hub
from hebblm.vision.images import ImageDataset
from hebblm.vision.mnist import load_mnist
from hebblm.vision.options import Scale
from hebblm.vision.result import EXPERIMENT as PERMUTED_MNIST
from hebblm.vision.result import write_result
from hebblm.vision.seeds import check_seeds
from hebblm.vision.settings import PAPER, SCALES

PROG = "hebblm-vision"
Load = Callable[[Sequence[Path], Path | None], ImageDataset]


@dataclass(frozen=True)
class VisionConfig:
    """Which experiment, how large and where to.

    Args:
        experiment: permuted-mnist (20 tasks one after the other, with EWC), incremental (fine-tune on old and new
            classes), online (learn from a stream of both), pretrain-classes (online with 30, 50 and 70 old classes),
            sensitivity (online, beta and eta), timing (online, cost of each method) or ablation (online, simplified
            versions of Hebb).
        scale: smoke (seconds, scikit-learn's digits), small (two CPU cores) or paper (use a GPU).
        backbone: network of the experiments on classes; by default that of the scale. resnet50, densenet121,
            mobilenetv2, resnet50-w16, densenet40-k12, mobilenetv2-x0.5 or cnn2-w16.
        seeds: each draws its own tasks or pictures; hyper-parameters are tuned with the first.
        hyperparameters: tuned (on samples held out of training) or paper.
        set: settings of the scale, several values of a hyper-parameter separated by commas, e.g. --set epochs=5
            mbpa_lambda=0.05,1, or --set pretraining.epochs=3 adaptation.k=100.
        data: files (in HEBBLM_DATA, data/ or the cache, else downloaded) or hf (from the Hugging Face hub).
        device: auto, cpu or cuda.
        output_path: folder for result.json, report, plot and the state of an interrupted run; by default
            results/vision/EXPERIMENT-SCALE.
    """

    experiment: Literal[
        "permuted-mnist",
        "incremental",
        "online",
        "pretrain-classes",
        "sensitivity",
        "timing",
        "ablation",
    ] = field(metadata={"positional": True})
    scale: Scale = "small"
    backbone: str | None = None
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3], metadata={"nargs": "+"})
    hyperparameters: Literal["tuned", "paper"] = "tuned"
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    data: Literal["files", "hf"] = "files"
    device: str = "auto"
    output_path: Path | None = None


@guarded(PROG)
def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    config = parse(
        VisionConfig,
        argv,
        prog=PROG,
        description="Learn from images without forgetting: the paper's image experiments.",
        example=f"{PROG} permuted-mnist --scale smoke --output-path results/permuted-mnist",
    )
    device = pick_device(config.device)
    folder = config.output_path or Path("results/vision") / f"{config.experiment}-{config.scale}"
    record = provenance(command_line(PROG, argv), device=str(device), seed=next(iter(config.seeds), 0))
    run = _permuted_mnist if config.experiment == PERMUTED_MNIST else _classes
    run(config, device, folder, record)
    Console().print(f"results in {folder}", soft_wrap=True)
    return 0


def _permuted_mnist(
    config: VisionConfig, device: torch.device, folder: Path, record: Mapping[str, Any]
) -> None:
    """Run permuted MNIST and write result and report."""
    if config.backbone is not None:
        raise UserError(
            f"{config.experiment} has one network and takes no --backbone, not {config.backbone!r}"
        )
    fixed = PAPER if config.hyperparameters == "paper" else {}
    settings = SCALES[config.scale].changed({**fixed, **parse_settings(config.set)})
    check_writable(folder)
    dataset = _dataset(config, load_mnist, MNIST)
    experiment = PermutedMnist(dataset, settings, config.seeds, device=device, folder=folder)
    document = write_result(
        experiment.run(), folder, scale=config.scale, settings=settings, dataset=dataset, provenance=record
    )
    experiment.clear()
    permuted.print_summary(document, Console())
    permuted.write_report(document, folder)


def _classes(config: VisionConfig, device: torch.device, folder: Path, record: Mapping[str, Any]) -> None:
    """Run an experiment on new classes and write result and report."""
    own = {} if config.backbone is None else {"backbone": config.backbone}
    settings = CLASS_SCALES[config.scale].changed(own)
    fixed = (
        paper_values(settings.backbone, scenario_of(config.experiment))
        if config.hyperparameters == "paper"
        else {}
    )
    settings = settings.changed({**fixed, **parse_settings(config.set)})
    seeds = check_seeds(config.seeds)
    check_writable(folder)
    dataset = _dataset(config, load_cifar100, CIFAR100)
    setup = Setup(dataset, settings, seeds, device=device, cache=cache_dir(), folder=folder)
    document = run_experiment(config.experiment, config.scale, setup, record)
    setup.clear()
    classes.print_summary(document, Console())
    classes.write_report(document, folder)


def _dataset(config: VisionConfig, load: Load, hub: HubDataset) -> ImageDataset:
    """Return the digits at the smallest scale, a real data set otherwise."""
    if config.scale == "smoke":
        return load_digits()
    return load_hub(hub) if config.data == "hf" else load(data_dirs(), cache_dir() / "data")


if __name__ == "__main__":
    sys.exit(main())
