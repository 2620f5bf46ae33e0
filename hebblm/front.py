"""The front door's comparison: every method side by side on one text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hebblm.adapt.methods import DEFAULT_METHODS, check_methods
from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.run import run_scenario
from hebblm.evaluation.scenario import open_scenario
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.language_model import LanguageModel
from hebblm.models.device import pick_device
from hebblm.provenance import provenance
from hebblm.report.parts import DEFAULT_EDGES
from hebblm.report.result import Result


def evaluate(
    model: LanguageModel | str | Path,
    target: str | Path,
    methods: Sequence[str] = DEFAULT_METHODS,
    *,
    hyperparameters: str = "default",
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Read a text by several methods side by side: what ``hebblm-eval --checkpoint MODEL --target TEXT`` does.

    Args:
        model: a language model, or the name or folder of one.
        target: a corpus (ptb, wt2, pydoc, numpy, text:PATH, hf:ID) or the path of a text.
        methods: in the order of the tables.
        hyperparameters: default, tuned, paper, or a file of hebblm-tune.
        settings: single hyper-parameters by dotted name, over those.
        options: fields of :class:`hebblm.evaluation.scenario_config.ScenarioConfig`, e.g. ``max_tokens=1000``.

    Returns:
        The result, with ``.table()``, ``.to_pandas()`` and ``.save(folder)``.

    Raises:
        UserError: an unknown name or value, or a corpus that cannot be had.
    """
    check_methods(list(methods))
    folder = model.folder if isinstance(model, LanguageModel) else Path(model)
    named = {"text": target} if isinstance(target, Path) else {"target": target}
    config = ScenarioConfig(checkpoint=folder, **named, **options).completed()
    config.check()
    values = resolve_settings(config, hyperparameters, settings or {}, [])
    device = pick_device(config.device)
    command = f"hebblm.evaluate({str(folder.name)!r}, {str(target)!r})"
    record = provenance(command, device=str(device), seed=config.seed)
    return run_scenario(
        open_scenario(config, device, record), list(methods), values, record, DEFAULT_EDGES
    ).result
