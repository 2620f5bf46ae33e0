"""Parts of a prediction: the parts of a mixture, and the memory entries that speak for a word."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods.memory_mixture import RememberedLabels
from hebblm.adapt.methods.ngram import Ngram
from hebblm.adapt.methods.predictor import Mixing, Predictor

ALIKE = 1e-5  # nats: smaller differences between distributions are rounding


@runtime_checkable
class Adapting(Protocol):
    """A rule that adapts the head to the neighbours."""

    def kernel_weight(self, batch: EvalBatch) -> Tensor:
        """Return the closeness of each neighbour (N, K), with sum 1."""


class Speaking(NamedTuple):
    """K memory entries; each gives some probability to the word that followed it."""

    at: Tensor  # (K,) int64, from the oldest entry on
    weights: Tensor  # (K,) float64: what each gives to its label


class Speakers(NamedTuple):
    """Memory entries and n-grams that speak for words."""

    near: list[Speaking]  # entries that the memory found
    recent: list[Speaking]  # the latest of the stream, counted from the oldest of these
    ngrams: list[tuple[Ngram, float]]  # n-grams and their shares
    by_kernel_weight: bool  # whether weights are closeness, of sum 1, or else probabilities


def components(predictor: Predictor, batch: EvalBatch) -> list[tuple[Predictor, Tensor]]:
    """Return the rules that a rule mixes, also those within other mixtures, with the logarithms
    (N,) of their shares.

    A rule that mixes nothing is its only component.
    """
    count = len(batch.hidden)
    if not isinstance(predictor, Mixing):
        return [(predictor, batch.hidden.new_zeros(count, dtype=torch.float64))]
    mixture_weights = predictor.log_mixture_weights(batch).expand(count, -1).unbind(1)
    return [
        (leaf, share + inner)
        for part, share in zip(predictor.predictors, mixture_weights, strict=True)
        for leaf, inner in components(part, batch)
    ]


def mixture_weights(predictor: Predictor, batch: EvalBatch) -> dict[str, Tensor]:
    """Split the probability of every word (V,) after a single query by a rule's components, by
    name.

    Components with the same name count as one. A component that agrees with the base, such as a
    memory without entries, counts as the base.
    """
    by_name: dict[str, Tensor] = {}
    for part, log_share in components(predictor, batch):
        given = part.log_probs(batch)
        name = "base" if torch.allclose(given, batch.log_probs, rtol=0, atol=ALIKE) else part.name
        by_name[name] = by_name.get(name, 0) + (given[0].double() + log_share).exp()
    return by_name


def owned(predictor: Predictor, batch: EvalBatch, targets: Tensor) -> dict[str, Tensor]:
    """Return the shares (N,) of a rule's components in the probability of targets (N,), by name;
    they sum to 1.

    They are 0 if the rule gives a target no probability.
    """
    parts = components(predictor, batch)
    logs = torch.stack(
        [log_share - part.score(batch, targets).double() for part, log_share in parts]
    )
    by_name: dict[str, Tensor] = {}
    for (part, _), share in zip(parts, logs.softmax(0).nan_to_num(0.0), strict=True):
        by_name[part.name] = by_name.get(part.name, 0) + share
    return by_name


def speaking(predictor: Predictor, batch: EvalBatch) -> Speakers:
    """Return the entries and n-grams that speak for the words after a single query.

    If a rule mixes neither memories nor n-grams, these are the neighbours that the head is adapted
    to.
    """
    near: list[Speaking] = []
    recent: list[Speaking] = []
    ngrams: list[tuple[Ngram, float]] = []
    parts = components(predictor, batch)
    for part, log_share in parts:
        if isinstance(part, Ngram):
            ngrams.append((part, float(log_share.exp())))
        elif isinstance(part, RememberedLabels):
            scores, _, mask = part.entries(batch)
            if not mask.any():
                continue
            weights = (
                scores.double()
                .masked_fill(~mask, -torch.inf)
                .log_softmax(1)
                .add(log_share)
                .exp()[0]
            )
            if part.in_window:
                recent.append(Speaking(torch.arange(len(weights)), weights))
            else:
                near.append(_found(batch, weights))
    if near or recent or ngrams:
        return Speakers(near, recent, ngrams, by_kernel_weight=False)
    adapting = [part for part, _ in parts if isinstance(part, Adapting)]
    near = [_found(batch, part.kernel_weight(batch)[0].double()) for part in adapting]
    return Speakers(near, [], [], by_kernel_weight=True)


def _found(batch: EvalBatch, weights: Tensor) -> Speaking:
    """Return the neighbours of a single query with their weights (K,)."""
    there = batch.found.mask[0]
    return Speaking(batch.positions().ids[0][there], weights[there])
