"""Tuning the temperature of whole distributions, the last thing that is chosen for a method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt import Rule, build_rule
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.method_settings import dotted
from hebblm.adapt.rules import tempered_losses
from hebblm.adapt.safeguards import Safeguards
from hebblm.evaluation.grid import Best
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.losses import LossTable


@dataclass(frozen=True, slots=True)
class TemperedPoints:
    """A rule that writes its losses at some temperatures to a table, and itself predicts as it is.

    Args:
        rule: whose distribution is tempered.
        temperatures: that are tried.
        table: with a row a temperature.
    """

    rule: Rule
    temperatures: tuple[float, ...]
    table: LossTable

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return the rule's (N, V), nats."""
        return self.rule.log_probs(batch)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the rule's loss (N,), nats."""
        log_probs = self.rule.log_probs(batch)
        losses = [tempered_losses(log_probs, targets, value) for value in self.temperatures]
        self.table.append(torch.stack(losses).float().cpu().numpy())
        return self.rule.score(batch, targets)

    def safeguards(self, batch: EvalBatch) -> Safeguards:
        """Return those of the rule."""
        return self.rule.safeguards(batch)


def temper(
    best: Mapping[str, Best],
    methods: Iterable[str],
    settings: Hyperparameters,
    temperatures: tuple[float, ...],
    read: Callable[[Mapping[str, Rule], str], object],
) -> None:
    """Offer some methods, at the values found for them, each temperature that is tried.

    The one taken is noted even where it is 1, so that nobody who reads the values fills in another.

    Args:
        best: by method; what lowers the loss is taken over.
        methods: names.
        settings: with the values found.
        temperatures: none to leave every method as it is.
        read: goes through the text once with some rules, under a title.
    """
    if not temperatures:
        return
    names = list(methods)
    plain = settings.changed({f"tempered.{dotted(name)}": 1.0 for name in names}).methods
    points = {
        name: TemperedPoints(build_rule(name, plain), temperatures, LossTable(len(temperatures)))
        for name in names
    }
    read(points, f"tune the temperature of {len(names)} methods")
    for name, found in points.items():
        values = [{**best[name].values, f"tempered.{dotted(name)}": value} for value in temperatures]
        best[name].values = {**best[name].values, f"tempered.{dotted(name)}": 1.0}
        best[name].offer_table(found.table, values)
