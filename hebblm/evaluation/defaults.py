"""Hyper-parameters that a run starts from, and their origin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hebblm.adapt.renamed import present_settings
from hebblm.evaluation.hyperparameters import Hyperparameters, defaults
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.io.files import read_json, read_record
from hebblm.io.installation import models_path
from hebblm.models.update import TRANSFORMERS
from hebblm.runtime.progress import log
from hebblm.runtime.spelling import unknown

STARTS = ("default", "tuned", "paper")
TUNED_SCHEMA = "hebblm-tuned/1"
PAPER: dict[str, dict[str, Any]] = read_json(Path(__file__).with_name("paper.json"))
"""The paper's optima (its Table "lm_parameter") in its own units; a query that diverges is run
again at a stable rate. The cache's values are those published for AWD-LSTM.
"""


class TunedFile(msgspec.Struct):
    """File of ``hebblm-tune``, as far as an evaluation reads it."""

    values: dict[str, Any]  # by dotted name
    scenario: dict[str, Any] = {}  # that they were found in

    @classmethod
    def read(cls, path: Path) -> TunedFile:
        return read_record(
            cls,
            path,
            "name the tuned.json of hebblm-tune; its config.json is for `config`",
            TUNED_SCHEMA,
        )


def resolve_settings(
    config: ScenarioConfig, start: str, values: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[Hyperparameters, str]:
    """Return a run's hyper-parameters, and their origin if they were found for another scenario,
    else "".

    The values of ``start`` come first (``default``, ``tuned``, ``paper``, a file of hebblm-tune, or
    ``tune`` for the start of a tuning), then ``values`` found for this scenario, then a user's
    ``changes``. An unknown name is an error in ``changes``; in a file of an earlier version it is
    ignored, and a line says so.
    """
    first, lender = _start(config, start)
    if config.model is not None:  # an LSTM's values do not fit other networks
        from_file = first if Path(start).is_file() else {}
        first = {**first, **TRANSFORMERS, **from_file}
    known = defaults()
    kept = present_settings({**first, **values})
    unknown_here = sorted(kept.keys() - known.keys())
    if unknown_here:
        log(f"ignored, because this version does not have them: {', '.join(unknown_here)}")
        for name in unknown_here:
            del kept[name]
    return Hyperparameters().changed({**kept, **changes}), "" if values else lender


def _start(config: ScenarioConfig, start: str) -> tuple[dict[str, Any], str]:
    """Return the values that a run starts from, by dotted name, and their origin, "" if they are
    its own.

    Without values for a scenario, ``tuned`` takes those of the nearest one: wt2-to-ptb across
    domains, ptb within a domain.
    """
    source, target = config.corpora()
    name = f"{source}-to-{target}" if source != target else target
    paper = paper_values(source or "", target)
    if start == "default":
        return {}, ""
    if start == "tune":  # the default values, with the published window of the cache, not tuned
        if "cache.window" in paper:
            return {"cache.window": paper["cache.window"]}, ""
        return {}, ""
    if start == "paper":
        return paper, "the paper's, tuned for larger models"
    if start == "tuned":
        return _tuned(config, name, "ptb" if source == target else "wt2-to-ptb")
    if not Path(start).is_file():
        remedy = f"{start!r} is neither default, tuned, paper nor a file of hebblm-tune"
        raise unknown("hyperparameters", start, STARTS, remedy)
    tuned = TunedFile.read(Path(start))
    theirs = (tuned.scenario.get("source"), tuned.scenario.get("target"))
    lender = f"those of {theirs[0]} read by {theirs[1]}"
    if theirs in ((source, target), (None, None)):
        lender = ""
    return tuned.values, _lent(config, tuned, lender, f"those of {start}")


def _tuned(config: ScenarioConfig, name: str, nearest: str) -> tuple[dict[str, Any], str]:
    """Return the tuned values that ship for a scenario or for the nearest one, and their origin."""
    for scenario in (name, nearest):
        file = models_path() / "tuned" / f"{scenario}.json"
        if not file.is_file():
            continue
        lender = ""
        if config.model is not None:
            lender = f"those that an LSTM has for {scenario}"
        elif scenario != name:
            lender = f"those of {scenario} (none were tuned for {name})"
        tuned = TunedFile.read(file)
        return tuned.values, _lent(config, tuned, lender, f"those of {scenario}")
    return {}, "the default ones, since none were tuned"


def _lent(config: ScenarioConfig, tuned: TunedFile, lender: str, otherwise: str) -> str:
    """Return the origin of a file's values with the options that differed there, "" if there is
    nothing to say.

    ``lender`` is the origin, "" if it is this scenario; ``otherwise`` is its name in that case.
    """
    source, target = config.corpora()
    # A checkpoint named by its folder may turn out to be trained on this text; that is known only
    # after opening.
    content = None
    if source is not None:
        content = "both" if source == target else "test"
    policy = "lower" if {source, target} == {"wt2", "ptb"} else "raw"
    read = {
        "update_every": config.update_every,
        "k": config.k,
        "memory_content": config.memory_content or content,
        "normalization": config.normalization or policy,
    }
    differ = []
    for name, value in read.items():
        own_value = tuned.scenario.get(name, value)
        if value is not None and value != own_value:
            differ.append(f"{name} = {own_value}")
    if not differ:
        return lender
    return f"{lender or otherwise}, found with {', '.join(differ)}"


def paper_values(source: str, target: str) -> dict[str, Any]:
    """Return the paper's optimum for a scenario: PTB's or WikiText-2's within a domain, else the
    cross-domain one.
    """
    if source != target:
        values = dict(PAPER["cross"])
    else:
        values = dict(PAPER.get(source, PAPER["wt2"]))
    values["mbpa_absolute.lr"] = values["mbpa.lr"]
    values["mbpa_absolute.steps"] = values["mbpa.steps"]
    return values
