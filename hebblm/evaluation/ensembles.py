"""Ensembles: methods that read different bases, mixed from what each of them gave to the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from hebblm.adapt import functional as F
from hebblm.adapt.methods import ENSEMBLES
from hebblm.evaluation.loop import EvaluationScores

Losses = npt.NDArray[np.float32]


def ensemble_scores(names: Sequence[str], parts: Mapping[str, EvaluationScores], update_every: int) -> EvaluationScores:
    """Return losses and costs of ensembles, each as long as the methods that it mixes together.

    Args:
        names: of the ensembles.
        parts: by method, the scores of its pass.
        update_every: tokens between two updates of the shares.
    """
    found = EvaluationScores({})
    for name in names:
        mixed = [(method, parts[method]) for method in ENSEMBLES[name].parts]
        found.nll[name] = ensemble_losses([scores.nll[method] for method, scores in mixed], update_every)
        found.seconds[name] = sum(scores.seconds[method] for method, scores in mixed)
    return found


def ensemble_losses(losses: Sequence[Losses], update_every: int) -> Losses:
    """Return ``-log sum_c w_c exp(-l_c)`` (T,) nats, a token under the mixture of what C methods give to it.

    w is that of :class:`hebblm.adapt.functional.LearnedShares`, by the tokens of earlier intervals: the same for every
    word that may come, so that the mixture is a distribution, and known before the token is.

    Args:
        losses: C of (T,), nats, +inf where a method gave the token nothing.
        update_every: tokens of an interval.
    """
    shares, found = F.LearnedShares((0.0,) * (len(losses) - 1)), []
    for interval in torch.split(torch.from_numpy(np.stack(losses, 1)).double(), update_every):  # (n, C)
        found.append(F.gated_losses(interval, torch.tensor([shares.value], dtype=torch.float64).log()))
        shares = shares.after(interval.tolist())
    return torch.cat(found).float().numpy()
