"""Which hyper-parameters a run starts from, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hebblm.evaluation.hyperparameters import (
    Hyperparameters,
    check_values,
    paper_values,
    parse_settings,
    read_tuned,
    tuned_document,
)
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.installation import models_path
from hebblm.suggest import unknown

STARTS = ("default", "tuned", "paper")


class Start(NamedTuple):
    """The values that a run starts from.

    Args:
        values: by dotted name.
        lender: whose they are, where they were found for another scenario; empty otherwise.
    """

    values: dict[str, Any]
    lender: str = ""


def start_of(config: ScenarioConfig, start: str) -> Start:
    """Return the values of ``default``, ``tuned``, ``paper`` or a file of hebblm-tune.

    Where nothing was tuned for a scenario, ``tuned`` falls to what was tuned for the nearest one: across domains for
    wt2-to-ptb, within a domain for ptb.

    Raises:
        UserError: neither of them.
    """
    source, target = config.corpora()
    name = f"{source}-to-{target}" if source != target else target
    if start == "default":
        own = name in ("ptb", "wt2", "wt2-to-ptb") and config.checkpoint is None and config.model is None
        return Start(
            {}, "" if own else "the default ones, found on validation text of ptb, wt2 and wt2-to-ptb"
        )
    if start == "paper":
        lender = "the paper's, tuned for larger models"
        return Start(paper_values(source or "", target), lender)
    if start == "tuned":
        nearest = "ptb" if source == target else "wt2-to-ptb"
        for scenario in (name, nearest):
            file = models_path() / "tuned" / f"{scenario}.json"
            if file.is_file():
                lender = "" if scenario == name else f"those of {scenario} (none were tuned for {name})"
                lender = lender if config.model is None else f"those that an LSTM has for {scenario}"
                return Start(read_tuned(file), lender)
        return Start({}, "the default ones, since none were tuned")
    if not Path(start).is_file():
        remedy = f"{start!r} is neither default, tuned, paper nor a file of hebblm-tune"
        raise unknown("hyperparameters", start, STARTS, remedy)
    document = tuned_document(Path(start))
    tuned = document.get("scenario", {})
    between = (tuned.get("source"), tuned.get("target"))
    lender = (
        "" if between in ((source, target), (None, None)) else f"those of {between[0]} read by {between[1]}"
    )
    return Start(document["values"], lender)


def resolve_values(
    config: ScenarioConfig, start: str, values: Mapping[str, Any], changes: list[str]
) -> dict[str, Any]:
    """Return a run's hyper-parameters by dotted name: those it starts from, then those of a file, then single changes.

    All are checked, as far as they are not those of dynamic evaluation without loading torch.

    Args:
        config: the scenario.
        start: as for :func:`start_of`.
        values: by dotted name.
        changes: ``name=value``.

    Raises:
        UserError: an unknown name or value.
    """
    merged = {**start_of(config, start).values, **values, **parse_settings(changes)}
    check_values(merged)
    return merged


def resolve_settings(
    config: ScenarioConfig, start: str, values: Mapping[str, Any], changes: list[str]
) -> Hyperparameters:
    """Return the settings of :func:`resolve_values`.

    Raises:
        UserError: an unknown name or value.
    """
    return Hyperparameters().changed(resolve_values(config, start, values, changes))
