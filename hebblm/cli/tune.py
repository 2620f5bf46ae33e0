"""``hebblm-tune``: the grids of every method on validation text."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from hebblm.cli.common import guarded, parse
from hebblm.errors import UserError
from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.grid import Grid
from hebblm.evaluation.hyperparameters import (
    TUNED_SCHEMA,
    Hyperparameters,
    paper_values,
    parse_settings,
)
from hebblm.evaluation.scenario import ScenarioConfig, open_scenario
from hebblm.evaluation.tune import Tuned, tune
from hebblm.files import check_writable, write_json
from hebblm.models.device import pick_device
from hebblm.provenance import command_line, provenance
from hebblm.report.numbers import perplexity

PROG = "hebblm-tune"


@dataclass(frozen=True)
class TuneConfig(ScenarioConfig):
    """What is tuned on and where the values go.

    Args:
        split: valid; test is refused.
        set: hyper-parameters that are not tuned, e.g. --set cache.window=3785; one that is tuned otherwise keeps this
            value, which must be among those tried. Across domains base.lr > 0 has the base's own rate tuned as well.
        output_path: folder for tuned.json (every point tried) and config.json (for hebblm-eval --config).
        skip_dynamic: leave dynamic evaluation and its combinations out; it reads the text once a point.
    """

    split: Literal["test", "valid"] = "valid"
    max_tokens: int | None = 10_000
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    output_path: Path = Path("results/tuned")
    skip_dynamic: bool = False


@guarded(PROG)
def main(argv: list[str] | None = None) -> int:
    """Tune."""
    config = parse(
        TuneConfig,
        argv,
        prog=PROG,
        description="Find every method's hyper-parameters on validation text, in one reading of it.",
        example="hebblm-tune --cross-domain wt2-to-ptb --output-path results/tuned",
    )
    if config.split == "test":
        raise UserError("split 'test' must not be tuned on; use --split valid")
    if config.vocabulary == "open":
        raise UserError("vocabulary 'open' cannot be tuned; tune with union, whose values serve both")
    source, target = config.corpora()
    published = paper_values(source or "", target)
    window = {name: published[name] for name in ("cache.window",) if name in published}
    settings = resolve_settings(config, "default", window, config.set)
    device = pick_device(config.device)
    check_writable(config.output_path)
    record = provenance(command_line(PROG, argv), device=str(device), seed=config.seed)
    scenario = open_scenario(config, device, record)
    tuned = tune(
        scenario, settings, Grid(), dynamic=not config.skip_dynamic, fixed=_fixed(settings, config.set)
    )
    # The window is not tuned, but theta and gamma were found for it.
    values = {"cache.window": settings.methods.cache.window, **tuned.values}
    document = {
        "schema": TUNED_SCHEMA,
        "values": values,
        "scenario": {
            "source": scenario.source,
            "target": scenario.target,
            "split": config.split,
            "tokens": len(scenario.stream),
            "normalization": scenario.normalization,
            "memory_content": scenario.config.memory_content,
            "k": config.k,
            "update_every": config.update_every,
        },
        "model": scenario.model.describe(),
        "provenance": {**record, "data_sha256": scenario.data_sha256},
        "nll": {name: found.loss for name, found in tuned.best.items()},
        "tried": {name: _finite(found.tried) for name, found in tuned.best.items() if found.tried},
    }
    write_json(config.output_path / "tuned.json", document)
    write_json(config.output_path / "config.json", {"values": values})
    _show(tuned)
    Console().print(
        f"values in {config.output_path}; use them with hebblm-eval --config {config.output_path}/config.json",
        soft_wrap=True,
    )
    return 0


def _fixed(settings: Hyperparameters, changes: list[str]) -> dict[str, float | str]:
    """Return the values that were set by name, as they were understood."""
    values: dict[str, float | str] = {}
    for name in parse_settings(changes):
        section, _, key = name.partition(".")
        owner = settings if section in ("dynamic", "base", "memory") else settings.methods
        values[name] = getattr(getattr(owner, section), key)
    return values


def _finite(tried: list[dict[str, float | str]]) -> list[dict[str, float | str]]:
    """Return the points with an infinite loss as the word ``inf``, which JSON can hold."""
    return [{k: "inf" if v == float("inf") else v for k, v in point.items()} for point in tried]


def _short(value: float | str) -> str:
    """Return a value in few digits; those in the files are exact."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _show(tuned: Tuned) -> None:
    """Print one line a method."""
    table = Table(title="Best on validation")
    for heading in ("Method", "Nats", "Perplexity"):
        table.add_column(heading, no_wrap=True)
    table.add_column("Values")
    for name, found in tuned.best.items():
        values = ", ".join(f"{key}={_short(value)}" for key, value in found.values.items())
        table.add_row(name, f"{found.loss:.4f}", f"{perplexity(found.loss):.2f}", values)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
