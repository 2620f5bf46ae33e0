"""Softmax cross-entropy of a large vocabulary without ever holding all logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

CHUNK_ELEMENTS = 8 << 20  # logits held at a time, so that they stay in the last-level cache
UNDERFLOW = (
    -80.0
)  # nats; a smaller probability may be a float32 or bfloat16 without its full precision, or zero


class _LinearCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of ``softmax(h W^T + b)``; the forward pass forms the gradient too."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype
    ) -> Tensor:
        count, vocabulary = hidden.shape[0], weight.shape[0]
        rows = max(1, CHUNK_ELEMENTS // vocabulary)
        # A column of ones carries the bias through the same three matrix products as the weights.
        w = torch.cat([weight, bias[:, None]], 1).to(dtype)  # (V, D + 1)
        h = torch.cat([hidden, hidden.new_ones(count, 1)], 1).to(dtype)  # (N, D + 1)
        grads = any(ctx.needs_input_grad[:3])
        grad_h = torch.empty_like(h) if grads else h.new_empty(0, 1)
        grad_w = torch.zeros(w.shape if grads else (0, 1), dtype=weight.dtype, device=weight.device)
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        for start in range(0, count, rows):
            part = h[start : start + rows]  # (n, D + 1)
            y = targets[start : start + rows, None]  # (n, 1)
            scores = part @ w.t()  # (n, V)
            p = torch.softmax(scores, -1)  # (n, V), accumulated in float32 whatever the dtype
            total -= _log_probability(p, scores, y).sum()
            if grads:
                p.scatter_add_(1, y, p.new_full(y.shape, -1.0))
                torch.matmul(p, w, out=grad_h[start : start + rows])
                grad_w += p.t() @ part
        grad_h, grad_w = grad_h.to(hidden.dtype) / count, grad_w / count
        ctx.save_for_backward(grad_h, grad_w)
        return (total / count).to(hidden.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        scale = grad_outputs[0]
        grad_h, grad_w = ctx.saved_tensors
        return grad_h[:, :-1] * scale, grad_w[:, :-1] * scale, grad_w[:, -1] * scale, None, None


def _log_probability(p: Tensor, scores: Tensor, y: Tensor) -> Tensor:
    """Return log p_y (n, 1) in float64, also where a single-precision p_y has underflown to zero."""
    log_p = p.gather(1, y).double().log()  # (n, 1)
    lost = log_p[:, 0] < UNDERFLOW  # (n,)
    if bool(lost.any()):  # next to never, so the common case reads the (n, V) scores no second time
        log_p[lost] = torch.log_softmax(scores[lost].double(), -1).gather(1, y[lost])
    return log_p


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Mean of ``-log softmax(W h + b)[y]`` over N positions.

    Equal to ``F.cross_entropy(F.linear(hidden, weight, bias), targets)`` with memory bounded in N x V.

    Args:
        hidden: (N, D) float32 or float64.
        weight: (V, D).
        bias: (V,).
        targets: (N,) int64.
        dtype: type of the matrix products; bfloat16 trains about four times as fast on CPUs that multiply it
            natively.

    Returns:
        Scalar, nats a token.
    """
    apply = cast(Callable[..., Tensor], _LinearCrossEntropy.apply)
    return apply(hidden, weight, bias, targets, dtype)


def sampled_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    proposal: Tensor,
    samples: int,
    dtype: torch.dtype,
) -> Tensor:
    """Importance-sampled cross-entropy over the targets and a shared draw of words (Jean et al. 2015).

    Words are drawn with replacement and each is kept once; a drawn word w stands for ``1 / q_w`` of its kind,
    where ``q_w = 1 - (1 - p_w)^samples`` is its chance of being drawn, so its score is raised by
    ``-log q_w``. The target itself is present with certainty and needs no correction.

    Args:
        hidden: (N, D).
        weight: (V, D).
        bias: (V,).
        targets: (N,) int64.
        proposal: (V,) float32 probabilities p of the draw.
        samples: number of draws.
        dtype: type of the matrix product.

    Returns:
        Scalar, nats a token; an estimate of the full loss.
    """
    drawn = torch.unique(torch.multinomial(proposal, samples, replacement=True))  # (S,)
    log_q = torch.log(-torch.expm1(samples * torch.log1p(-proposal[drawn].double()))).to(hidden.dtype)
    rows = torch.nn.functional.embedding(drawn, weight)  # (S, D)
    scores = (hidden.to(dtype) @ rows.to(dtype).t()).to(hidden.dtype) + (bias[drawn] - log_q)  # (N, S)
    scores = scores.masked_fill(drawn[None] == targets[:, None], float("-inf"))
    true = (hidden * torch.nn.functional.embedding(targets, weight)).sum(-1) + bias[targets]  # (N,)
    every = torch.cat([true[:, None], scores], 1)  # (N, 1 + S)
    return (torch.logsumexp(every, 1) - true).mean()
