"""``hebblm-eval``: every method side by side on one text."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from hebblm.adapt.methods import DEFAULT_METHODS, METHODS, STATIC_METHODS, named
from hebblm.cli.common import guarded, parse
from hebblm.cli.lists import print_models, print_settings
from hebblm.errors import UserError
from hebblm.evaluation.defaults import resolve_values, start_of
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.files import check_writable, write_json
from hebblm.progress import say
from hebblm.provenance import command_line, provenance
from hebblm.report.parts import validate_edges

if TYPE_CHECKING:  # they load torch, and are imported once the command line is known to make sense
    from hebblm.evaluation.hyperparameters import Hyperparameters
    from hebblm.evaluation.scenario import Scenario

PROG = "hebblm-eval"


@dataclass(frozen=True)
class EvalConfig(ScenarioConfig):
    """Which methods, with which settings, and what is written.

    Args:
        methods: comma-separated: lstm, dynamic, cache, knn, mixture, mbpa, hebb, mixture+mbpa, mixture+hebb, hebb-v1,
            hebb-v2, hebb-v3, hebb-literal; beyond the paper: mbpa-absolute, mbpa-guarded, mixture-gated, mixture+cache,
            hebb-learned, mixture+hebb-learned, dynamic+mixture, dynamic+mixture+hebb, dynamic+mixture+cache; or all,
            for the default ones and those beyond the paper.
        hyperparameters: default (one set for every model), tuned (for the scenario, where they ship), paper, or a
            file of hebblm-tune.
        values: hyper-parameters by dotted name, as hebblm-tune writes them.
        set: hyper-parameters, e.g. --set hebb.beta=0.5 mbpa.lr=0.1.
        method: form of MbPA and Hebb: fast (the default) or exact; short for --set mbpa.method=...
        output_path: folder for result.json, reports and plots.
        log_samples: also write tokens.parquet, one row a token.
        log_neighbors: also write neighbors.parquet, what the first so many tokens retrieved.
        frequency_edges: bounds of the frequency buckets.
        forgetting: across domains, also score the source's own text before and after the target was read.
        forgetting_tokens: so many tokens of the source's text, from its beginning.
        readings: instead of a result, compare what the paper leaves open, one reading at a time, by the methods that
            retrieve; written to readings.json.
        models: only list the models that ship.
        settings: only list the hyper-parameters and their default values.
    """

    methods: str = ",".join(DEFAULT_METHODS)
    hyperparameters: str = "default"
    values: dict[str, Any] = field(default_factory=dict)
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    method: Literal["fast", "exact"] | None = None
    output_path: Path | None = None
    log_samples: bool = False
    log_neighbors: int = 0
    frequency_edges: list[int] = field(default_factory=lambda: [50, 100, 500], metadata={"nargs": "+"})
    forgetting: bool = False
    forgetting_tokens: int = 10_000
    readings: bool = False
    models: bool = False
    settings: bool = False


@guarded(PROG)
def main(argv: list[str] | None = None) -> int:
    """Evaluate."""
    config = parse(
        EvalConfig,
        argv,
        prog=PROG,
        description="Read a text with a base model and every adaptation method, and say who predicts it best.",
        example="hebblm-eval --cross-domain wt2-to-ptb --output-path results/wt2-to-ptb",
    )
    if config.models or config.settings:
        (print_models if config.models else print_settings)(Console())
        return 0
    asked, config = config, config.completed()
    methods = named(config.methods)
    edges = validate_edges(config.frequency_edges)
    config.check()
    values = resolve_values(config, config.hyperparameters, config.values, changes_of(config))
    if config.output_path is not None:
        check_writable(config.output_path)
    elif config.log_samples:
        raise UserError("--log-samples needs --output-path DIR to write to")
    if config.log_neighbors < 0 or (config.log_neighbors and not config.log_samples):
        raise UserError(
            f"--log-neighbors {config.log_neighbors} must be at least 0, and needs --log-samples beside it"
        )
    check_forgetting(config)
    check_readings(config)
    return _run(config, methods, edges, values, command_line(PROG, argv), borrowed(asked))


def _run(
    config: EvalConfig,
    methods: list[str],
    edges: tuple[int, ...],
    values: dict[str, Any],
    command: str,
    note: str,
) -> int:
    """Evaluate what was checked."""
    from hebblm.evaluation.hyperparameters import Hyperparameters
    from hebblm.evaluation.neighbors import write_neighbors
    from hebblm.evaluation.run import run_scenario, write_tokens
    from hebblm.evaluation.scenario import open_scenario
    from hebblm.models.device import pick_device
    from hebblm.report import print_summary, write_report
    from hebblm.report.inspect_data import NEIGHBORS_FILE

    device = pick_device(config.device)
    settings = Hyperparameters().changed(values)
    record = provenance(command, device=str(device), seed=config.seed)
    scenario = open_scenario(config, device, record)
    if note:
        say(note)
    if config.readings:
        return _compare(config, scenario, methods, settings, record)
    outcome = run_scenario(
        scenario,
        methods,
        settings,
        record,
        edges,
        log_neighbors=config.log_neighbors,
        forgetting=config.forgetting_tokens if config.forgetting else None,
    )
    print_summary(outcome.result, Console())
    if config.output_path is not None:
        outcome.result.save(config.output_path)
        if config.log_samples:
            write_tokens(outcome, scenario, config.output_path / "tokens.parquet")
        if outcome.neighbors is not None:
            write_neighbors(outcome.neighbors, scenario, config.output_path / NEIGHBORS_FILE)
        write_report(outcome.result, config.output_path)
        Console().print(f"results in {config.output_path}", soft_wrap=True)
    else:
        Console().print(
            "For training counts, new words by occurrence, plots and settings add --output-path DIR"
        )
    return 0


def _compare(
    config: EvalConfig,
    scenario: Scenario,
    methods: list[str],
    settings: Hyperparameters,
    record: dict[str, Any],
) -> int:
    """Compare the readings of the paper instead of evaluating one."""
    from hebblm.evaluation.readings import compare_readings
    from hebblm.report.console import print_table
    from hebblm.report.readings import FILE_NAME as READINGS_FILE
    from hebblm.report.readings import readings_table

    static = [METHODS[name] for name in methods if name in STATIC_METHODS]
    retrieving = [method.name for method in static if method.rule(settings.methods).needs.retrieval]
    found = compare_readings(scenario, retrieving, settings, record)
    print_table(readings_table({found.label: found}), Console())
    if config.output_path is not None:
        write_json(config.output_path / READINGS_FILE, found.to_json())
        Console().print(f"readings in {config.output_path}", soft_wrap=True)
    return 0


def borrowed(config: EvalConfig) -> str:
    """Return whose the hyper-parameters are and how to find the model's own; empty where they are its own."""
    lender = start_of(config.completed(), config.hyperparameters).lender
    if not lender or config.values:
        return ""
    tune = shlex.join(["hebblm-tune", *config.arguments()])
    return f"hyper-parameters: {lender}; find this model's own with {tune}"


def check_readings(config: EvalConfig) -> None:
    """Refuse what a comparison of readings does not write.

    Raises:
        UserError: naming it.
    """
    asked = [
        name
        for name, given in (
            ("--log-samples", config.log_samples),
            ("--log-neighbors", config.log_neighbors),
            ("--forgetting", config.forgetting),
        )
        if given
    ]
    if config.readings and asked:
        raise UserError(f"--readings writes readings.json alone; leave {asked[0]} out")


def check_forgetting(config: EvalConfig) -> None:
    """Refuse what would only be found out once a model was opened or trained.

    Raises:
        UserError: forgetting within one domain, or of no tokens.
    """
    if config.forgetting_tokens < 1:
        raise UserError(f"--forgetting-tokens {config.forgetting_tokens} must be at least 1")
    source, target = config.corpora()
    if config.forgetting and source == target:
        raise UserError(
            f"--forgetting compares two domains, and {target} is the only one; use --cross-domain A-to-B"
        )


def changes_of(config: EvalConfig) -> list[str]:
    """Return single changes of hyper-parameters: those of ``--set``, and the form of ``--method``.

    Raises:
        UserError: both name the form.
    """
    if config.method is None:
        return config.set
    if any(item.partition("=")[0] == "mbpa.method" for item in config.set):
        raise UserError(f"--method {config.method} and --set mbpa.method=... name the same; use one")
    return [*config.set, f"mbpa.method={config.method}"]


if __name__ == "__main__":
    sys.exit(main())
