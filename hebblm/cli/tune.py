"""``hebblm-tune``: the grids of every method on validation text."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

from hebblm.adapt.methods import TUNABLE, named, with_parts
from hebblm.cli.common import guarded, parse
from hebblm.errors import UserError
from hebblm.evaluation.defaults import resolve_values
from hebblm.evaluation.hyperparameters import (
    TUNED_SCHEMA,
    Hyperparameters,
    defaults,
    paper_values,
    parse_settings,
)
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.files import check_writable, write_json
from hebblm.progress import say
from hebblm.provenance import command_line, provenance
from hebblm.report.numbers import perplexity

if TYPE_CHECKING:  # it loads torch, and is imported once the command line is known to make sense
    from hebblm.evaluation.tune import Tuned

PROG = "hebblm-tune"
FEW_TOKENS = 5000
"""Below this, the best of some hundred points is often the luckiest one, and worse than the default on other text."""


@dataclass(frozen=True)
class TuneConfig(ScenarioConfig):
    """What is tuned on and where the values go.

    Args:
        split: valid; test is refused.
        methods: comma-separated: only these are tuned, and what they rest on; by default all.
        set: hyper-parameters that are not tuned, e.g. --set cache.window=3785; one that is tuned otherwise keeps this
            value, which must be among those tried. Across domains base.lr > 0 has the base's own rate tuned as well.
        output_path: folder for tuned.json (every point tried) and config.json (for hebblm-eval --config).
        skip_dynamic: leave dynamic evaluation and its combinations out; it reads the text once a point.
    """

    split: Literal["test", "valid"] = "valid"
    max_tokens: int | None = 10_000
    methods: str | None = None
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
    asked, config = config, config.completed()
    methods = TUNABLE if config.methods is None else tuple(named(config.methods))
    with_parts(methods)
    config.check()
    source, target = config.corpora()
    published = paper_values(source or "", target)
    window = {name: published[name] for name in ("cache.window",) if name in published}
    values = resolve_values(config, "default", window, config.set)
    check_writable(config.output_path)
    tuned = _tune(config, methods, values, command_line(PROG, argv))
    _show(tuned, values)
    Console().print(f"values in {config.output_path}; use them with", soft_wrap=True)
    Console().print(evaluation(asked), soft_wrap=True, highlight=False, markup=False)
    return 0


def evaluation(config: TuneConfig) -> str:
    """Return the command that evaluates the tuned scenario with the values found."""
    methods = (
        []
        if config.methods is None
        else ["--methods", ",".join(dict.fromkeys(("lstm", *named(config.methods))))]
    )
    changes = ["--set", *config.set] if config.set else []
    # A text of the user's own would be read whole, with what was tuned on.
    rest = ["--split", "test"] if config.text or (config.target or "").startswith("text:") else []
    values = ["--config", str(config.output_path / "config.json")]
    return shlex.join(["hebblm-eval", *config.arguments(), *rest, *methods, *values, *changes])


def _tune(config: TuneConfig, methods: tuple[str, ...], values: dict[str, Any], command: str) -> Tuned:
    """Tune, and write what was found."""
    from hebblm.evaluation.grid import Grid
    from hebblm.evaluation.scenario import open_scenario
    from hebblm.evaluation.tune import tune
    from hebblm.models.device import pick_device

    device, settings = pick_device(config.device), Hyperparameters().changed(values)
    record = provenance(command, device=str(device), seed=config.seed)
    scenario = open_scenario(config, device, record)
    if len(scenario.stream) < FEW_TOKENS:
        say(
            f"warning: {len(scenario.stream):,} tokens are few; values found on fewer than {FEW_TOKENS:,} may do worse "
            "on other text than the default ones (see --max-tokens)"
        )
    dynamic, fixed = not config.skip_dynamic, _fixed(settings, config.set)
    tuned = tune(scenario, settings, Grid(), dynamic=dynamic, fixed=fixed, methods=methods)
    # The window is not tuned, but theta and gamma were found for it.
    found = {"cache.window": settings.methods.cache.window, **tuned.values}
    document = {
        "schema": TUNED_SCHEMA,
        "values": found,
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
    write_json(config.output_path / "config.json", {"values": found})
    return tuned


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


def default_loss(tuned: Tuned, method: str, start: Mapping[str, Any]) -> float | None:
    """Return what a method's default values cost on the same text, nats a token; None where they were not tried.

    The points of a combination are tried over the best values of its parts, so these must be the default ones as well.
    """
    usual = defaults()
    parts = [tuned.best[name] for name in with_parts([method]) - {method} if name in tuned.best]
    others = {name: value for part in parts for name, value in part.values.items()}
    if any(usual[name] != value for name, value in {**start, **others}.items()):
        return None
    for point in tuned.best[method].tried:
        values = {name: value for name, value in point.items() if name != "nll"}
        if all(usual[name] == value for name, value in values.items()):
            return float(point["nll"])
    return None


def _show(tuned: Tuned, start: Mapping[str, Any]) -> None:
    """Print one line a method."""
    table = Table(title="Best on validation")
    for heading in ("Method", "Nats", "Default", "Perplexity"):
        table.add_column(heading, no_wrap=True)
    table.add_column("Values")
    for name, found in tuned.best.items():
        values = ", ".join(f"{key}={_short(value)}" for key, value in found.values.items())
        default = default_loss(tuned, name, start) if name in TUNABLE else None
        usual = "" if default is None else f"{default:.4f}"
        table.add_row(name, f"{found.loss:.4f}", usual, f"{perplexity(found.loss):.2f}", values)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
