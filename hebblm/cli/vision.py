"""``hebblm-vision``: the paper's image experiments."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from hebblm.cli.common import command, print_line
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import parse_settings
from hebblm.io.download import cache_dir, data_dirs
from hebblm.io.files import check_writable
from hebblm.io.locks import file_lock
from hebblm.io.provenance import command_line, provenance
from hebblm.models.device import check_device, pick_device
from hebblm.report.result.methods import PLOTTED, check_plotted
from hebblm.runtime.interrupts import GOES_ON, interrupted
from hebblm.runtime.progress import log
from hebblm.runtime.ranks import current, leads, opened, size
from hebblm.vision.scales import settings_of
from hebblm.vision.settings import (
    PERMUTED_MNIST,
    ClassSettings,
    Experiment,
    PermutedSettings,
    Scale,
)

if TYPE_CHECKING:  # it loads torch, and is imported after the command line is checked
    from hebblm.vision.data import ImageDataset

PROG = "hebblm-vision"


@dataclass(frozen=True)
class VisionConfig:
    """Options of an image experiment: its name, size and output.

    Args:
        experiment: permuted-mnist (20 tasks one after the other, with EWC), incremental (fine-tune
            on old and new classes), online (learn from a stream of both), pretrain-classes (online
            with 30, 50 and 70 old classes), sensitivity (online, beta and eta), timing (online,
            cost of each method) or ablation (online, simplified versions of Hebb).
        scale: smoke (seconds, scikit-learn's digits), small (two CPU cores) or paper (use a GPU).
        backbone: network of the experiments on classes; by default that of the scale. resnet50,
            densenet121, mobilenetv2, resnet50-w16, densenet40-k12, mobilenetv2-x0.5 or cnn2-w16.
        seeds: seeds; each draws its own tasks or pictures, and the first one tunes
            hyper-parameters.
        hyperparameters: tuned (on samples held out of training) or paper.
        set: settings of the scale, with several values of a hyper-parameter separated by commas,
            e.g. --set epochs=5 mbpa_lambda=0.05,1, or --set pretraining.epochs=3 adaptation.k=100.
        data: files (in HEBBLM_DATA, data/ or the cache, else downloaded) or hf (from the Hugging
            Face hub).
        device: auto, cpu, cuda, or one of several GPUs, such as cuda:1.
        output_path: folder for result.json, report, plot and the state of an interrupted run; by
            default results/vision/EXPERIMENT-SCALE.
        plotted: number of methods in a plot, the first and the best ones; 0 for all. The tables
            have all.
    """

    experiment: Experiment = field(metadata={"positional": True})
    scale: Scale = "small"
    backbone: str | None = None
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3], metadata={"nargs": "+"})
    hyperparameters: Literal["tuned", "paper"] = "tuned"
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    data: Literal["files", "hf"] = "files"
    device: str = "auto"
    output_path: Path | None = None
    plotted: int = PLOTTED


@command(
    PROG, VisionConfig, f"{PROG} permuted-mnist --scale smoke --output-path results/permuted-mnist"
)
@interrupted(GOES_ON)
def main(config: VisionConfig, argv: list[str]) -> int:
    """Learn from images without forgetting: the paper's image experiments."""
    check_device(config.device)
    if not config.seeds or len(set(config.seeds)) < len(config.seeds) or min(config.seeds) < 0:
        raise UserError(f"seeds {config.seeds} must be at least one, each once and none below 0")
    check_plotted(config.plotted)
    if config.experiment == "timing" and size() > 1:
        raise UserError(f"{size()} processes would slow each other down; run timing in one")
    if size() > len(config.seeds):
        raise UserError(
            f"{size()} processes are more than --seeds {len(config.seeds)}; use as many seeds or "
            "more"
        )
    folder = config.output_path or Path("results/vision") / f"{config.experiment}-{config.scale}"
    changes = parse_settings(config.set)
    paper = config.hyperparameters == "paper"
    settings = settings_of(config.experiment, config.scale, config.backbone, changes, paper=paper)
    with opened(config.device):
        device = str(pick_device(config.device))
        _run(
            config,
            settings,
            folder,
            provenance(command_line(PROG, argv), device=device, seed=config.seeds[0]),
        )
    print_line(f"results in {folder}")
    return 0


def _run(
    config: VisionConfig,
    settings: PermutedSettings | ClassSettings,
    folder: Path,
    record: Mapping[str, Any],
) -> None:
    from hebblm.vision.experiments import run_experiment
    from hebblm.vision.report import print_summary, write_report
    from hebblm.vision.result import RESULT_FILE
    from hebblm.vision.state import Setup

    if leads():  # it makes and removes folders
        check_writable(folder)
    device = pick_device(config.device)
    setup = Setup(_dataset(config), settings, tuple(config.seeds), device, cache_dir(), folder)
    with contextlib.ExitStack() as stack:
        if leads():
            stack.enter_context(file_lock(folder / RESULT_FILE, f"{config.experiment} of pictures"))
            if setup.state.is_dir():
                log(f"the run that was interrupted goes on in {folder}")
        current().wait()
        written = run_experiment(config.experiment, config.scale, setup, record)
        if written is None:
            return
        write_report(written, folder, plotted=config.plotted)
        setup.clear()
    print_summary(written, Console())


def _dataset(config: VisionConfig) -> ImageDataset:
    from hebblm.vision.data import CIFAR100, MNIST, load_cifar100, load_digits, load_hub, load_mnist

    if config.scale == "smoke":
        return load_digits()
    if config.experiment == PERMUTED_MNIST:
        load, hub = (load_mnist, MNIST)
    else:
        load, hub = (load_cifar100, CIFAR100)
    return load_hub(hub) if config.data == "hf" else load(data_dirs(), cache_dir() / "data")


if __name__ == "__main__":
    sys.exit(main())
