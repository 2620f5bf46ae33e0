"""``hebblm-vision``: the paper's image experiments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console

from hebblm.cli.common import guarded, parse
from hebblm.evaluation.hyperparameters import parse_settings
from hebblm.files import check_writable
from hebblm.models.device import pick_device
from hebblm.provenance import command_line, provenance
from hebblm.text.download import data_dirs
from hebblm.vision.digits import load_digits
from hebblm.vision.document import print_summary, write_report
from hebblm.vision.experiment import PermutedMnist
from hebblm.vision.images import ImageDataset
from hebblm.vision.mnist import load_mnist
from hebblm.vision.result import write_result
from hebblm.vision.settings import PAPER, SCALES, Scale

PROG = "hebblm-vision"
DATASETS: dict[Scale, Callable[[], ImageDataset]] = {
    "smoke": load_digits,
    "small": lambda: load_mnist(data_dirs()),
    "paper": lambda: load_mnist(data_dirs()),
}


@dataclass(frozen=True)
class VisionConfig:
    """Which experiment, how large and where to.

    Args:
        experiment: permuted-mnist: 20 tasks one after the other, MLP, EWC, MbPA and Hebb.
        scale: smoke (seconds, scikit-learn's digits), small (an hour on two CPU cores) or paper (use a GPU).
        seeds: each draws its own tasks and networks; hyper-parameters are tuned with the first.
        hyperparameters: tuned (on samples held out of training) or paper.
        set: settings of the scale, several values of a hyper-parameter separated by commas, e.g. --set epochs=5
            mbpa_lambda=0.05,1.
        device: auto, cpu or cuda.
        output_path: folder for result.json, report, plot and the state of an interrupted run; by default
            results/vision/EXPERIMENT-SCALE.
    """

    experiment: Literal["permuted-mnist"] = field(metadata={"positional": True})
    scale: Scale = "small"
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3], metadata={"nargs": "+"})
    hyperparameters: Literal["tuned", "paper"] = "tuned"
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
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
    fixed = PAPER if config.hyperparameters == "paper" else {}
    settings = SCALES[config.scale].changed({**fixed, **parse_settings(config.set)})
    device = pick_device(config.device)
    folder = config.output_path or Path("results/vision") / f"{config.experiment}-{config.scale}"
    check_writable(folder)
    dataset = DATASETS[config.scale]()
    experiment = PermutedMnist(dataset, settings, config.seeds, device=device, folder=folder)
    record = provenance(command_line(PROG, argv), device=str(device), seed=config.seeds[0])
    document = write_result(
        experiment.run(), folder, scale=config.scale, settings=settings, dataset=dataset, provenance=record
    )
    experiment.clear()
    print_summary(document, Console())
    write_report(document, folder)
    Console().print(f"results in {folder}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
