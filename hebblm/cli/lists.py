"""Lists of what there is to choose from: models that ship, hyper-parameters."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from hebblm.cli.common import tell


def print_models() -> None:
    """Print the models that ship, one a line."""
    from hebblm.models.catalog import shipped_models

    table = Table("Model", "Corpus", "Case", "Parameters", "Validation perplexity")
    for model in shipped_models():
        table.add_row(
            model.name,
            model.corpus,
            model.normalization,
            f"{model.parameters:,}",
            f"{model.valid_perplexity:.2f}",
        )
    Console().print(table)


def print_settings() -> None:
    """Print every hyper-parameter as it can be given to ``--set``, with its default value."""
    from hebblm.evaluation.hyperparameters import defaults

    for name, value in defaults().items():
        tell(f"{name}={value}")
