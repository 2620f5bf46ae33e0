"""Lists of what there is to choose from: models that ship, hyper-parameters."""

from __future__ import annotations

from rich.console import Console

from hebblm.cli.common import tell


def print_models() -> None:
    """Print the models that are installed, one a line, and the names of those that only a checkout has."""
    from hebblm.models.catalog import missing_models, shipped_models
    from hebblm.report.render import print_table
    from hebblm.report.table import Column, Table

    columns = (
        Column("Model"),
        Column("Corpus"),
        Column("Case"),
        Column("Parameters", "count"),
        Column("Validation perplexity", "perplexity"),
    )
    rows = tuple(
        (model.name, model.corpus, model.normalization, model.parameters, model.valid_perplexity)
        for model in shipped_models()
    )
    missing = ", ".join(missing_models())
    notes = (f"Only in a checkout of the repository (pip install -e . there): {missing}.",) if missing else ()
    print_table(Table("models", "Models that ship", columns, rows, notes), Console())


def print_settings() -> None:
    """Print every hyper-parameter as it can be given to ``--set``, with its default value."""
    from hebblm.evaluation.hyperparameters import defaults

    for name, value in defaults().items():
        tell(f"{name}={value}")
