"""``python -m recipes.bench``: what adaptation, retrieval, evaluation, serving and training cost,
in turn with plain forms.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from rich.console import Console

from hebblm.cli.common import Main, choosing, options, parse, print_line
from hebblm.io.files import check_writable
from hebblm.io.provenance import provenance
from hebblm.models.device import check_device, pick_device
from hebblm.report.render.table import print_table
from hebblm.runtime.progress import bar
from recipes.bench.configs import (
    AdaptConfig,
    EvalBenchConfig,
    RealConfig,
    RetrieveConfig,
    ServeBenchConfig,
    TrainBenchConfig,
)
from recipes.bench.machine import cpu_name, use_threads
from recipes.bench.record import BenchResult, Case, Rounds
from recipes.bench.tables import row_table

PROG = "python -m recipes.bench"


class Measurement(NamedTuple):
    """A subcommand that measures: its options, the module with its ``cases``, what it is, and
    options to try.
    """

    config: Any
    module: str
    description: str
    example: str


MEASUREMENTS = {
    "adapt": Measurement(
        AdaptConfig,
        "recipes.bench.adapt",
        "Cost of MbPA, Hebb and the continuous cache, of MbPA over a whole network, and error of "
        "the fast form.",
        "--checkpoint small-ptb-raw --threads 2 --json adapt.json",
    ),
    "retrieve": Measurement(
        RetrieveConfig,
        "recipes.bench.retrieve",
        "Cost and recall of the memory's index against exact search.",
        "--entries 10000 100000 1000000 --json retrieve.json",
    ),
    "eval": Measurement(
        EvalBenchConfig,
        "recipes.bench.evaluate",
        "Cost of a whole evaluation with all methods against the unadapted model.",
        "--memory-sizes 10000 100000 1000000 --json eval.json",
    ),
    "real": Measurement(
        RealConfig,
        "recipes.bench.real",
        "Cost of reading with a real model: transformers alone, the base, and the base with best.",
        "--model smollm2-135m --text notes.txt --json real.json",
    ),
    "serve": Measurement(
        ServeBenchConfig,
        "recipes.bench.serve",
        "Cost of the server: until it is ready, a letter more, completions, those of llama.cpp.",
        "--models smollm2-135m --threads 2 --json serve.json",
    ),
    "train": Measurement(
        TrainBenchConfig,
        "recipes.bench.train",
        "Speed and memory of training against torch.nn.LSTM with a full softmax.",
        "--preset tiny small --json train.json",
    ),
}


@dataclass(frozen=True)
class PlotConfig:
    """Options of the plot.

    Args:
        files: JSON files of the measurements.
        output_path: file of the plot, .png or .svg.
    """

    files: list[Path] = field(metadata={"positional": True, "nargs": "+"})
    output_path: Path = Path("cost.png")


def measuring(kind: str) -> Main:
    """The subcommand that takes a measurement."""
    chosen = MEASUREMENTS[kind]

    def measure(argv: list[str] | None = None) -> int:
        words = argv or []
        example = f"{PROG} {kind} {chosen.example}"
        config = parse(
            chosen.config,
            words,
            prog=f"{PROG} {kind}",
            description=chosen.description,
            example=example,
        )
        check_device(config.device)
        cases = import_module(chosen.module).cases
        run_bench(kind, config, cases, command=f"{PROG} {shlex.join([kind, *words])}")
        if config.json is not None:
            print_line(f"measurements in {config.json}")
        return 0

    measure.__doc__ = chosen.description
    return measure


def run_bench(
    kind: str, config: Any, cases: Callable[[Any, Rounds], list[Case]], *, command: str
) -> None:
    """Measure every case under a progress bar; each finished row is on disk even if later ones
    fail.
    """
    device = pick_device(config.device)
    if config.json is not None:
        check_writable(config.json.parent)
    use_threads(config.threads)
    record = {**provenance(command, device=str(device), seed=config.seed), "cpu": cpu_name()}
    if device.type == "cuda":
        record["gpu"] = torch.cuda.get_device_name(device)
    result = BenchResult(
        kind, record, msgspec.to_builtins(config, enc_hook=str), (), complete=False
    )
    progress = bar()
    waiting = cases(config, Rounds(device, config.repeats, lambda: progress.advance(task)))
    task = progress.add_task(
        f"bench {kind}", total=len(waiting) * (config.repeats + 1), unit="rounds"
    )
    with progress:
        while waiting:
            row = waiting.pop(0)()
            print_table(row_table(row), Console())
            result = replace(result, rows=(*result.rows, row), complete=not waiting)
            if config.json is not None:
                result.save(config.json)


@options(
    f"{PROG} plot",
    PlotConfig,
    f"{PROG} plot adapt.json retrieve.json eval.json --output-path cost.png",
)
def _plot(config: PlotConfig, argv: list[str]) -> None:
    """Cost against memory size, vocabulary and steps."""
    from hebblm.report.plots.drawing import save
    from recipes.bench.plots import cost_figure

    save(cost_figure([BenchResult.load(path) for path in config.files]), config.output_path)


main = choosing(PROG, {**{kind: measuring(kind) for kind in MEASUREMENTS}, "plot": _plot})
