"""Tuning the temperature of whole distributions, the last thing that is chosen for a method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.adapt import METHODS, Context, Rule
from hebblm.adapt.context import EvalBatch
from hebblm.adapt.methods.combine import tempered_losses
from hebblm.adapt.methods.rule import dotted
from hebblm.evaluation.grid import Best
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Observer
from hebblm.evaluation.losses import LossTable


@dataclass(frozen=True, slots=True)
class TemperedPoints:
    """An observer that writes a rule's losses at some temperatures to a table.

    Args:
        rule: whose distribution is tempered.
        temperatures: that are tried.
        table: with a row a temperature.
    """

    rule: Rule
    temperatures: tuple[float, ...]
    table: LossTable

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Write the losses of a mini-batch to the table."""
        log_probs = self.rule.log_probs(batch)
        losses = [tempered_losses(log_probs, targets, value) for value in self.temperatures]
        self.table.append(torch.stack(losses).float().cpu().numpy())


def temper(
    best: Mapping[str, Best],
    methods: Iterable[str],
    settings: Hyperparameters,
    temperatures: tuple[float, ...],
    context: Context,
    read: Callable[[Sequence[Observer], str], object],
) -> None:
    """Offer some methods, at the values found for them, each temperature that is tried.

    The one taken is noted even where it is 1, so that nobody who reads the values fills in another.

    Args:
        best: by method; what lowers the loss is taken over.
        methods: names.
        settings: with the values found.
        temperatures: none to leave every method as it is.
        context: that the text is read with.
        read: goes through the text once with some observers, under a title.
    """
    if not temperatures:
        return
    names = list(methods)
    plain = settings.changed({f"tempered.{dotted(name)}": 1.0 for name in names}).methods
    points = {
        name: TemperedPoints(METHODS[name].rule(plain), temperatures, LossTable(len(temperatures)))
        for name in names
    }
    context.learn_shares(found.rule for found in points.values())
    read(list(points.values()), f"tune the temperature of {len(names)} methods")
    for name, found in points.items():
        values = [{**best[name].values, f"tempered.{dotted(name)}": value} for value in temperatures]
        best[name].values = {**best[name].values, f"tempered.{dotted(name)}": 1.0}
        best[name].offer_table(found.table, values)
