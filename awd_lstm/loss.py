"""Softmax cross-entropy of a large vocabulary without ever holding all logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

PAD_ROWS = 512
CHUNK_ELEMENTS = 8 << 20  # logits held at a time, so that they stay in the last-level cache
# nats; a smaller probability may be a float32 or bfloat16 without its full precision, or zero
UNDERFLOW = -80.0


class _LinearCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of ``softmax(h W^T + b)``; the forward pass forms the gradient too."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype
    ) -> Tensor:
        count, vocabulary = hidden.shape[0], weight.shape[0]
        rows = max(1, CHUNK_ELEMENTS // vocabulary)
        w, b, h = weight.to(dtype), bias.to(dtype), hidden.to(dtype)
        grads = any(ctx.needs_input_grad[:3])
        grad_h = torch.empty_like(h) if grads else h.new_empty(0, 1)
        grad_w = torch.empty_like(weight) if grads else weight.new_empty(0, 1)
        grad_b = torch.zeros_like(bias)
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        for start in range(0, count, rows):
            part = h[start : start + rows]  # (n, D)
            y = targets[start : start + rows, None]  # (n, 1)
            scores = torch.addmm(b, part, w.t())  # (n, V)
            p = torch.softmax(scores, -1)  # (n, V), accumulated in float32 whatever the dtype
            total -= _log_probability(p, scores, y).sum()
            if grads:
                p.scatter_add_(1, y, p.new_full(y.shape, -1.0))
                torch.matmul(p, w, out=grad_h[start : start + rows])
                _add_product(grad_w, p.t(), part, first=start == 0)
                grad_b += p.sum(0, dtype=bias.dtype)
        ctx.save_for_backward(grad_h.to(hidden.dtype), grad_w, grad_b)
        ctx.count = count
        return (total / count).to(hidden.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        scale = grad_outputs[0] / ctx.count
        # In place, as one backward pass is all there is: a second one of as many megabytes would be
        # told of it.
        grad_h, grad_w, grad_b = (grad.mul_(scale) for grad in ctx.saved_tensors)
        return grad_h, grad_w, grad_b, None, None


class _SampledCrossEntropy(torch.autograd.Function):
    """Mean of ``logsumexp(true, scores) - true``; the forward pass forms the gradient too, a chunk
    at a time.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # (N, D)
        rows: Tensor,  # (S, D) of the drawn words
        offsets: Tensor,  # (S,)
        target_rows: Tensor,  # (N, D) of the targets
        own_bias: Tensor,  # (N,)
        # (N,) position of each target among the drawn words, -1 where it was not drawn
        hits: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        count = hidden.shape[0]
        # The number of drawn words differs from segment to segment, and oneDNN compiles a product
        # of a new shape and keeps it: time and memory would grow with every segment, so the rows
        # are padded to a few sizes.
        spare = -len(rows) % PAD_ROWS
        w, h = torch.nn.functional.pad(rows.to(dtype), (0, 0, 0, spare)), hidden.to(dtype)
        raised = torch.nn.functional.pad(offsets, (0, spare), value=-torch.inf)  # (S + spare,)
        true = torch.linalg.vecdot(hidden, target_rows) + own_bias  # (N,)
        grad_h, grad_w = torch.empty_like(hidden), torch.zeros_like(w, dtype=rows.dtype)
        grad_offsets, grad_true = torch.zeros_like(raised), torch.empty_like(true)
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        step = max(1, CHUNK_ELEMENTS // len(w))
        for start in range(0, count, step):
            part = slice(start, start + step)
            scores = (h[part] @ w.t()).to(hidden.dtype).add_(raised)  # (n, S)
            drawn = hits[part, None] >= 0
            column = hits[part, None].clamp_min(0)
            # A target counts once, as itself: its drawn copy leaves the sum.
            scores.scatter_(1, column, torch.where(drawn, -torch.inf, scores.gather(1, column)))
            norm = torch.logaddexp(scores.logsumexp(1), true[part])  # (n,)
            total += (norm - true[part]).double().sum()
            p = scores.sub_(norm[:, None]).exp_()  # (n, S)
            grad_offsets += p.sum(0)
            grad_true[part] = torch.expm1(true[part] - norm)
            low = p.to(dtype)
            grad_h[part] = low @ w
            grad_w += low.t() @ h[part]
        grad_h.addcmul_(grad_true[:, None], target_rows)
        grad_own = grad_true[:, None] * hidden
        ctx.save_for_backward(
            grad_h, grad_w[: len(rows)], grad_offsets[: len(rows)], grad_own, grad_true
        )
        ctx.count = count
        return (total / count).to(hidden.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        scale = grad_outputs[0] / ctx.count
        return (*(grad * scale for grad in ctx.saved_tensors), None, None)


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """Add ``a b`` to ``total``, which need not be set before the first product."""
    if total.dtype == a.dtype:
        total.addmm_(a, b, beta=0 if first else 1)  # beta = 0 does not read what was there
    elif first:
        total.copy_(a @ b)
    else:
        total += a @ b


def _log_probability(p: Tensor, scores: Tensor, y: Tensor) -> Tensor:
    """Log p_y (n, 1) in float64, also where a single-precision p_y has underflown to zero."""
    log_p = p.gather(1, y).double().log()  # (n, 1)
    lost = log_p[:, 0] < UNDERFLOW  # (n,)
    if bool(lost.any()):  # next to never, so the common case reads the (n, V) scores no second time
        log_p[lost] = torch.log_softmax(scores[lost].double(), -1).gather(1, y[lost])
    return log_p


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Mean of ``-log softmax(W h + b)[y]`` over N positions, nats a token.

    Equal to ``F.cross_entropy(F.linear(hidden, weight, bias), targets)`` of hidden (N, D), float32
    or float64, weight (V, D), bias (V,) and targets (N,), with memory bounded in N x V. ``dtype``
    is the type of the matrix products; bfloat16 trains about four times as fast on CPUs that
    multiply it natively.
    """
    apply = cast(Callable[..., Tensor], _LinearCrossEntropy.apply)
    return apply(hidden, weight, bias, targets, dtype)


def sampled_cross_entropy(
    hidden: Tensor,  # (N, D)
    weight: Tensor,  # (V, D)
    bias: Tensor,  # (V,)
    targets: Tensor,  # (N,) int64
    proposal: Tensor,  # (V,) float32 probabilities p of the draw
    samples: int,  # number of draws
    dtype: torch.dtype,  # type of the matrix product
) -> Tensor:
    """Importance-sampled cross-entropy over the targets and a shared draw of words (Jean et al.
    2015), nats a token.

    Words are drawn with replacement and each is kept once; a drawn word w stands for ``1 / q_w`` of
    its kind, where ``q_w = 1 - (1 - p_w)^samples`` is its chance of being drawn, so its score is
    raised by ``-log q_w``. The target itself is present with certainty and needs no correction.
    """
    drawn = torch.unique(torch.multinomial(proposal, samples, replacement=True))  # (S,)
    log_q = torch.log(-torch.expm1(samples * torch.log1p(-proposal[drawn].double()))).to(
        hidden.dtype
    )
    words = torch.cat([drawn, targets])
    looked_up = torch.nn.functional.embedding(words, weight, sparse=True)  # (S + N, D)
    rows, target_rows = looked_up[: len(drawn)], looked_up[len(drawn) :]
    offsets, own_bias = bias[drawn], bias[targets]
    # (N,) where a target stands among S
    hits = torch.searchsorted(drawn, targets).clamp_max_(len(drawn) - 1)
    hits = torch.where(drawn[hits] == targets, hits, -1)
    apply = cast(Callable[..., Tensor], _SampledCrossEntropy.apply)
    return apply(hidden, rows, offsets - log_q, target_rows, own_bias, hits, dtype)
