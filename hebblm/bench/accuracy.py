"""Errors of the fast form of MbPA beside the exact one, and of that beside the plain one."""

from __future__ import annotations

import math
from typing import TypedDict

import torch

from hebblm.adapt import functional as F
from hebblm.adapt.checks import Rate
from hebblm.adapt.solvers.problem import STABLE
from hebblm.bench import naive
from hebblm.bench.plain_fast import plain_fast
from hebblm.bench.problem import Batch

EPS = 1e-3


class MbpaOptions(TypedDict):
    """Keyword arguments of MbPA."""

    lr: float
    steps: int
    eps: float
    rate: Rate


def mbpa_options(lr: float, steps: int) -> MbpaOptions:
    """Return what MbPA is told at a relative rate."""
    return {"lr": lr, "steps": steps, "eps": EPS, "rate": "relative"}


@torch.no_grad()
def errors(batch: Batch, *, lr: float, steps: int) -> dict[str, float]:
    """Compare the fast form of MbPA, as it runs, with the exact form in double precision.

    Returns:
        Mean and largest absolute error of the target's loss (nats), the mean Kullback-Leibler divergence of the fast
        from the exact distribution (nats), the bias of the perplexity in per cent, the mean error of the plain thirty
        lines, and the share of queries whose neighbours' loss rose.
    """
    options = mbpa_options(lr, steps)
    wide = batch.double()
    base, wide_base = batch.head.logits(batch.hidden), wide.head.logits(wide.hidden)
    fast = F.mbpa_delta(batch.hidden, batch.neighbors, batch.head, base, method="fast", **options)
    exact = F.mbpa_delta(wide.hidden, wide.neighbors, wide.head, wide_base, method="exact", **options)
    q = (base + fast.delta).double().log_softmax(1)
    p = (wide_base + exact.delta).log_softmax(1)
    given = (batch.hidden, batch.neighbors, batch.head)
    plain = plain_fast(*given, lr=lr, steps=steps, eps=EPS).double().log_softmax(1)
    error = (p - q).gather(1, batch.targets[:, None]).squeeze(1)  # (N,) loss of fast minus loss of exact
    return {
        "error_mean": float(error.abs().mean()),
        "error_max": float(error.abs().max()),
        "kl": float((p.exp() * (p - q)).sum(1).mean()),
        "perplexity_bias_percent": 100 * math.expm1(float(error.mean())),
        "plain_error_mean": float((p - plain).gather(1, batch.targets[:, None]).abs().mean()),
        "rose_share": float(fast.rose.double().mean()),
    }


def naive_difference(batch: Batch, *, lr: float, steps: int) -> float:
    """Return the largest difference of a log-probability between the exact and the naive form.

    Both at the largest relative rate that cannot climb, or ``lr`` if that is less: a descent that climbs magnifies the
    last digit of its rate.
    """
    lr = min(lr, STABLE)
    wide = batch.double()
    given = (wide.hidden, wide.neighbors, wide.head)
    plain = naive.mbpa_logits(*given, lr=lr, steps=steps, eps=EPS, relative=True).log_softmax(1)
    exact = F.mbpa_logits(*given, lr=lr, steps=steps, eps=EPS, rate="relative").log_softmax(1)
    return float((plain - exact).abs().max())
