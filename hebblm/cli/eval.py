"""``hebblm-eval``: compare every method on one text."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from rich.console import Console

from hebblm.adapt.methods import (
    DEFAULT_METHODS,
    ENSEMBLES,
    EVALUATED,
    METHODS,
    OUR_METHODS,
    load_plugin,
    named,
)
from hebblm.adapt.renamed import present_name
from hebblm.cli.common import command, print_line
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import defaults, parse_settings
from hebblm.evaluation.options import EvalOptions
from hebblm.evaluation.scenario_config import Groups, ScenarioConfig
from hebblm.io.provenance import command_line
from hebblm.models.device import check_device, keep_freed_memory
from hebblm.report.result.accuracy import WORDS_ASKED
from hebblm.runtime.interrupts import GOES_ON, interrupted
from hebblm.runtime.ranks import leads, opened

PROG = "hebblm-eval"
WORDS_SHOWN = 5  # of those that gained most, and of those that lost most


@dataclass(frozen=True)
class EvalConfig(EvalOptions, ScenarioConfig):
    """Options of an evaluation: methods, their settings, and its output.

    Args:
        methods: comma-separated.
        plugin: Python files that register your own methods, which --methods then knows.
        hyperparameters: default (one set for every model), tuned (for the scenario, if such values
            ship), paper, or a file of hebblm-tune.
        values: hyper-parameters by dotted name, as hebblm-tune writes them.
        set: hyper-parameters, e.g. --set hebb.beta=0.5 mbpa.lr=0.1.
        method: form of MbPA and Hebb: fast (the default) or exact; short for --set mbpa.solver=...
            To choose methods use --methods.
        output_path: folder for result.json, reports and plots.
        by_document: also print perplexity, bits a byte and size of each document (file, record or
            article), the worst first.
        models: only list the models that ship, and those that are fetched by name.
        settings: only list the hyper-parameters and their default values.
    """

    GROUPS: ClassVar[Groups] = (
        *ScenarioConfig.GROUPS,
        (
            "output",
            None,
            f"output_path {' '.join(field.name for field in fields(EvalOptions))} by_document "
            "models settings",
        ),
    )

    methods: str = field(
        default=",".join(DEFAULT_METHODS),
        metadata={
            "help": "comma-separated: "
            f"{', '.join(name for name in METHODS if name not in OUR_METHODS)}; beyond the "
            f"paper: {', '.join((*OUR_METHODS, *ENSEMBLES))}; or all, for the default ones and "
            "those beyond the "
            "paper. lstm, also written base, is the unadapted model; name it, or there is nothing "
            "to compare with."
        },
    )
    plugin: list[Path] = field(default_factory=list, metadata={"nargs": "+"})
    hyperparameters: str = "default"
    values: dict[str, Any] = field(default_factory=dict)
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    method: Literal["fast", "exact"] | None = None
    output_path: Path | None = None
    by_document: bool = False
    accuracy_words: int = field(default=WORDS_ASKED, kw_only=True)
    models: bool = False
    settings: bool = False

    def __post_init__(self) -> None:
        EvalOptions.__post_init__(self)
        ScenarioConfig.__post_init__(self)
        if self.method is not None and "mbpa.solver" in map(present_name, parse_settings(self.set)):
            raise UserError(
                f"--method {self.method} and --set mbpa.solver=... name the same; use one"
            )


@command(PROG, EvalConfig, "hebblm-eval --cross-domain wt2-to-ptb --output-path results/wt2-to-ptb")
@interrupted(GOES_ON)
def main(config: EvalConfig, argv: list[str]) -> int:
    """Read a text with a base model and every adaptation method, and say which predicts it best;
    name one scenario.
    """
    for path in config.plugin:
        load_plugin(path)
    if config.models or config.settings:
        (print_models if config.models else print_settings)()
        return 0
    check_device(config.device)
    named(config.methods, EVALUATED)
    keep_freed_memory()
    with opened(config.device):
        _evaluate(config, argv)
    return 0


def _evaluate(config: EvalConfig, argv: list[str]) -> None:
    from hebblm.api.runs import evaluate
    from hebblm.report.render.document import print_summary
    from hebblm.report.render.inspection import INSPECTED
    from hebblm.report.render.table import print_table
    from hebblm.report.result.tokens import FILE_NAME as TOKENS
    from hebblm.report.result.tokens import TokenLosses
    from hebblm.report.tables.suggestions import accuracy_table, suggested_table
    from hebblm.report.tables.table import present
    from hebblm.report.tables.texts import document_table, word_table

    form = {} if config.method is None else {"mbpa.solver": config.method}
    result = evaluate(
        **config.scenario(),
        **config.evaluation(),
        methods=config.methods,
        hyperparameters=config.hyperparameters,
        values=config.values,
        settings={**parse_settings(config.set), **form},
        output_path=config.output_path,
        command=command_line(PROG, argv),
    )
    print_summary(result, Console())
    if (suggested := accuracy_table(result)) is not None:
        print_table(suggested, Console())
    if config.show_learned and config.output_path is not None and leads():
        losses = TokenLosses.load(config.output_path / TOKENS)
        for shown in present(word_table(result, losses, WORDS_SHOWN), suggested_table(result)):
            print_table(shown, Console())
        print_line(f"the text shaded by gain: open {config.output_path / INSPECTED} in a browser")
    if config.by_document:
        if (table := document_table(result, None)) is not None:
            print_table(table, Console())
        else:
            print_line(f"{result.scenario.target} is a single document")
    if config.output_path is not None:
        print_line(
            f"results in {config.output_path}; open {config.output_path / 'report.html'} in a "
            "browser"
        )
    else:
        print_line("By training count, new words, plots and settings: add --output-path DIR")


def print_models() -> None:
    """Print the installed models, one per line, then those that only a checkout has, and those that
    are fetched.
    """
    from hebblm.models.catalog import missing_models, shipped_models
    from hebblm.models.pretrained import PRETRAINED
    from hebblm.report.render.table import print_table
    from hebblm.report.tables.table import Column, Row, Table

    columns = [
        Column("Model"),
        Column("Corpus"),
        Column("Case"),
        Column("Parameters", "count"),
        Column("Validation perplexity", "perplexity"),
    ]
    rows: list[Row] = []
    for shipped in shipped_models():
        rows.append(
            {
                "Model": shipped.name,
                "Corpus": shipped.corpus,
                "Case": shipped.normalization,
                "Parameters": shipped.parameters,
                "Validation perplexity": shipped.valid_perplexity,
            }
        )
    notes = []
    missing = ", ".join(missing_models())
    if missing:
        notes.append(f"Only in a checkout of the repository (pip install -e . there): {missing}.")
    print_table(Table("models", "Models that ship", columns, rows, notes), Console())
    columns = [
        Column("Model"),
        Column("Parameters", "count"),
        Column("MB to fetch", "count"),
        Column("Licence"),
        Column("Here"),
    ]
    rows = []
    for model in PRETRAINED.values():
        rows.append(
            {
                "Model": model.name,
                "Parameters": model.parameters,
                "MB to fetch": model.megabytes,
                "Licence": model.licence,
                "Here": "yes" if model.cached or model.on_disk else "no",
            }
        )
    title = "Models that are fetched when you name them"
    print_table(Table("pretrained", title, columns, rows), Console())


def print_settings() -> None:
    """Print every hyper-parameter in the form of ``--set``, with its default value."""
    for name, value in defaults().items():
        print_line(f"{name}={value}")


if __name__ == "__main__":
    sys.exit(main())
