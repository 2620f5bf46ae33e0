"""Which hyper-parameters a run starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, paper_values, parse_settings, read_tuned
from hebblm.evaluation.scenario import ScenarioConfig
from hebblm.installation import models_path


def resolve_settings(
    config: ScenarioConfig, start: str, values: Mapping[str, Any], changes: list[str]
) -> Hyperparameters:
    """Return a run's hyper-parameters: those it starts from, then values of a file, then single changes.

    Args:
        config: the scenario.
        start: ``default``, ``tuned``, ``paper`` or a file of hebblm-tune. Where nothing was tuned for a scenario,
            ``tuned`` falls to what was tuned for the nearest one: across domains for wt2-to-ptb, within a domain for
            ptb.
        values: by dotted name.
        changes: ``name=value``.

    Raises:
        UserError: an unknown name or value.
    """
    source, target = config.corpora()
    name = f"{source}-to-{target}" if source != target else target
    settings = Hyperparameters()
    if start == "paper":
        settings = settings.changed(paper_values(source or "", target))
    elif start == "tuned":
        nearest = "ptb" if source == target else "wt2-to-ptb"
        files = [models_path() / "tuned" / f"{scenario}.json" for scenario in (name, nearest)]
        found = next((file for file in files if file.is_file()), None)
        if found is not None:
            settings = settings.changed(read_tuned(found))
    elif start != "default":
        if not Path(start).is_file():
            raise UserError(
                f"hyperparameters {start!r} is neither default, tuned, paper nor a file of hebblm-tune"
            )
        settings = settings.changed(read_tuned(Path(start)))
    single = parse_settings(changes)
    settings = settings.changed(values).changed(single)
    return settings
