"""Measures ``best`` on test text: beside its components, and without each of them, with paired bootstrap intervals.

One pass scores everything, so that every difference is of the same tokens, memory and states. Where the base moves,
a pass of dynamic evaluation follows.

    python recipes/best/measure.py --text ptb --output-path results/best-ptb
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.best import COMPONENTS, BestConfig
from hebblm.adapt.methods.rule import Rule
from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.opening import open_scenario
from hebblm.evaluation.passes import dynamic_pass, shared_pass
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.files import write_json
from hebblm.provenance import command_line, provenance
from hebblm.report.gains import Bootstrap, Losses, bootstrap_gains
from hebblm.report.methods import BASE

SCHEMA = "hebblm-best/1"
BESIDE = ("lstm", "cache", "mbpa", "mixture+mbpa", "best")
MOVING = ("dynamic", "dynamic+best")
LEFT_OUT = {name: {name} for name in COMPONENTS} | {"caches": {"short", "medium", "long"}}


def without(settings: Hyperparameters, left_out: set[str]) -> Rule:
    """Return the mixture of all components but some."""
    methods = settings.methods
    parts = ",".join(name for name in COMPONENTS if name not in left_out)
    return METHODS["best"].rule(methods.replaced(replace(methods[BestConfig], parts=parts)))


def rules_of(settings: Hyperparameters, methods: tuple[str, ...], *, variants: bool) -> dict[str, Rule]:
    """Return the rules of one pass, by name: some methods, and variants of the last: as shipped, without components."""
    rules, whole = {name: METHODS[name].rule(settings.methods) for name in methods}, methods[-1]
    if not variants:
        return rules
    fixed = settings.methods.replaced(replace(settings.methods[BestConfig], lr=0.0))
    rules[f"{whole}, not learning"] = METHODS[whole].rule(fixed)
    return rules | {f"{whole} without {name}": without(settings, parts) for name, parts in LEFT_OUT.items()}


def summed_up(scenario: Scenario, nll: Mapping[str, Losses], seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return by rule its loss, over all tokens and the new ones, and its speed, as JSON."""
    new = scenario.stream.oov
    found = {}
    for name, losses in nll.items():
        mean = float(losses.mean(dtype=np.float64))
        speed = len(scenario.stream) / seconds[name]
        found[name] = {"nll": mean, "perplexity": float(np.exp(mean)), "tokens_per_second": speed}
        if new.any():
            found[name]["oov_nll"] = float(losses[new].mean(dtype=np.float64))
    return found


def differences(scenario: Scenario, nll: Mapping[str, Losses], bootstrap: Bootstrap) -> dict[str, Any]:
    """Return by rule how many nats the whole mixture of its base is better, with an interval, as JSON."""
    new = scenario.stream.oov
    parts = {"all": np.ones(len(new), dtype=np.bool_), **({"new": new} if new.any() else {})}
    found = {}
    for name, losses in nll.items():
        whole = "dynamic+best" if name.startswith("dynamic") else "best"
        if name != whole:
            gains = bootstrap_gains({BASE: losses, whole: nll[whole]}, parts, bootstrap)[whole]
            found[name] = {gain.part: {"gain": gain.gain, "low": gain.low, "high": gain.high} for gain in gains}
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--text", required=True, help="ptb, wt2 or wt2-to-ptb")
    parser.add_argument("--split", default="test")
    parser.add_argument("--max-tokens", type=int, default=None)
    parser.add_argument("--passes", choices=("fixed", "moving", "both"), default="both")
    parser.add_argument("--no-variants", dest="variants", action="store_false", help="the methods alone")
    parser.add_argument("--output-path", type=Path, required=True)
    asked = parser.parse_args(arguments)
    kind = "cross_domain" if "-to-" in asked.text else "intra_domain"
    config = ScenarioConfig(**{kind: asked.text}, split=asked.split, max_tokens=asked.max_tokens)
    settings, _ = resolve_settings(config, "default", {}, {})
    by = provenance(command_line("recipes/best/measure.py", arguments), device="cpu", seed=config.seed)
    scenario = open_scenario(config, torch.device("cpu"), by)
    passes = []
    if asked.passes != "moving":
        passes.append(shared_pass(scenario, rules_of(settings, BESIDE, variants=asked.variants), settings))
    if asked.passes != "fixed":
        passes.append(dynamic_pass(scenario, rules_of(settings, MOVING, variants=asked.variants), settings))
    nll = {name: losses for each in passes for name, losses in each.scores.nll.items()}
    seconds = {name: each.scores.seconds[name] for each in passes for name in each.scores.nll}
    methods = summed_up(scenario, nll, seconds)
    bootstrap = Bootstrap(seed=config.seed)
    write_json(
        asked.output_path / "result.json",
        {
            "schema": SCHEMA,
            "text": asked.text,
            "split": scenario.split,
            "tokens": len(scenario.stream),
            "provenance": {**by, "data_sha256": scenario.data_sha256},
            "methods": methods,
            "gain_of_best": differences(scenario, nll, bootstrap),
            "bootstrap": asdict(bootstrap),
        },
    )
    for name, found in methods.items():
        print(f"{name:32} {found['nll']:.4f} {found['perplexity']:8.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
