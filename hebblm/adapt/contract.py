"""What every method promises, checked on the first mini-batches of those that did not come with the
package.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods import is_registered
from hebblm.adapt.methods.predictor import Predictor
from hebblm.errors import UserError
from hebblm.memory.nearest import Ranked

BATCHES = 2  # that are checked: before the first one nothing is remembered
ROWS = 128  # of each, at most: every row has the probabilities of all words
SUM = 1e-3  # by which probabilities may sum to more or less than one
NATS = 1e-2  # by which a loss may differ, and a probability by a hundredth of it


class FirstBatches:
    """A check of the first mini-batches of some methods; those of the package are tested with it,
    and not checked.

    Args:
        methods: names of methods.
    """

    def __init__(self, methods: Iterable[str]) -> None:
        self._left = {name: BATCHES for name in methods if is_registered(name)}

    def check(self, method: str, predictor: Predictor, batch: EvalBatch, labels: Tensor) -> None:
        """Raise if a method breaks a promise on a mini-batch with labels (N,), before it is
        scored.
        """
        if self._left.get(method) and len(labels):
            self._left[method] -= 1
            check_predictor(method, predictor, batch, labels)


@torch.no_grad()
def check_predictor(method: str, predictor: Predictor, batch: EvalBatch, labels: Tensor) -> None:
    """Raise if a rule breaks a promise on the first rows of a mini-batch with labels (N,).

    Its probabilities have a row a query and sum to one, its losses are theirs, and neither depends
    on what comes later.
    """
    labels = labels[:ROWS]
    targets = labels.where(labels < len(batch.head.weight), 0)  # a new word has no row yet
    first = _first(batch, labels, None)
    log_probs = predictor.log_probs(first)
    _check_probabilities(method, log_probs, (len(labels), len(batch.head.weight)))
    losses = predictor.score(first, targets)
    if not isinstance(losses, Tensor) or losses.shape != targets.shape:
        raise UserError(
            f"{method}: score gives {_shape(losses)} for {len(labels)} targets; return one loss "
            "for each"
        )
    from_log_probs = -log_probs.gather(1, targets[:, None]).squeeze(1)
    for said, loss in zip(losses.tolist(), from_log_probs.tolist(), strict=True):
        if not _close(said, loss):
            raise UserError(
                f"{method}: score gives {said:.4g} nats where log_probs gives {loss:.4g}; let both "
                "say the same"
            )
    at = len(labels) // 2  # rows up to this one see neither its label nor anything later
    changed = _first(batch, labels, at)
    gaps = (predictor.log_probs(changed).exp() - log_probs.exp()).abs()[: at + 1]
    later = predictor.score(changed, targets)[: at + 1].tolist()
    if float(gaps.max()) > NATS / 100 or not all(map(_close, later, losses.tolist())):
        raise UserError(
            f"{method}: a later label or state changes an earlier probability by "
            f"{float(gaps.max()):.3g}; predict each "
            "row from what its batch shows of the rows before it"
        )


def _check_probabilities(method: str, log_probs: object, shape: tuple[int, int]) -> None:
    """Raise unless log-probabilities have a shape (N, V), are finite or -inf, and each row's sum to
    one.
    """
    if not isinstance(log_probs, Tensor) or log_probs.shape != shape:
        raise UserError(f"{method}: log_probs gives {_shape(log_probs)}, not (N, V) = {shape}")
    if bool((log_probs.isnan() | log_probs.isposinf()).any()):
        raise UserError(f"{method}: log_probs has nan or inf; a log-probability is finite or -inf")
    sums = log_probs.double().exp().sum(1)
    worst = float(sums[(sums - 1).abs().argmax()])
    if abs(worst - 1) > SUM:
        raise UserError(
            f"{method}: its probabilities sum to {worst:.4g}, not to 1; divide them by their sum"
        )


def _first(batch: EvalBatch, labels: Tensor, change: int | None) -> EvalBatch:
    """Return a batch's first rows alone, with other labels from a row on, and other states after
    it.
    """
    count, block, states = len(labels), batch.block, batch.given[: len(labels)]
    if change is not None:
        labels, states = labels.clone(), states.clone()
        labels[change:] = (labels[change:] + 1) % len(batch.head.weight)
        states[change + 1 :] *= -1
    if block is not None:
        visible = block.visible[:count]
        streams = None if block.streams is None else block.streams[:count]
        block = replace(
            block, labels=labels, visible=visible, used=int(visible.max()), streams=streams
        )
    ranked = None if batch.ranked is None else Ranked(*(column[:count] for column in batch.ranked))
    return EvalBatch(
        states,
        batch.context,
        block,
        ranked,
        None if batch.contexts is None else batch.contexts[:count],
    )


def _close(one: float, other: float) -> bool:
    """Return whether two losses in nats are the same up to rounding; inf is only itself."""
    return one == other or abs(one - other) <= NATS * max(1.0, abs(other))


def _shape(value: object) -> str:
    return (
        f"a tensor of shape {tuple(value.shape)}"
        if isinstance(value, Tensor)
        else f"a {type(value).__name__}"
    )
