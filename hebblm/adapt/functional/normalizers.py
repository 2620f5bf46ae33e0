"""Log-normalisers of remembered keys: what the fast form of MbPA needs to know of the classes it does not follow."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.types import OutputHead

LOGITS_BYTES = 32 * 2**20  # of one chunk of logits


@torch.no_grad()
def log_normalizers(keys: Tensor, head: OutputHead) -> Tensor:
    """Return ``log sum_v exp(W_v h_k + b_v)`` of each key, in nats.

    In the head's precision: products in bfloat16 were off by up to 4e-3 nats on a trained model, which is several per
    cent of what a key holds outside the classes that are followed. The exponentials are summed as they are, in one
    pass instead of the three that a maximum would take; only keys whose sum leaves the range of the dtype are summed
    again with their maximum taken off.

    Args:
        keys: (M, D), floating point.
        head: weight (V, D) and bias (V,) or None.

    Returns:
        (M,) in the head's dtype.
    """
    dtype = head.weight.dtype
    chunk = max(1, LOGITS_BYTES // (head.weight.shape[0] * dtype.itemsize))
    sums = keys.new_empty(len(keys), dtype=dtype)
    for part, total in zip(torch.split(keys, chunk), torch.split(sums, chunk), strict=True):
        torch.sum(head.logits(part.to(dtype)).exp_(), 1, out=total)
    limits = torch.finfo(dtype)
    normalizers = sums.log()
    extreme = (~((sums > limits.tiny / limits.eps) & (sums < limits.max))).nonzero().squeeze(1)
    for some in torch.split(extreme, chunk):
        normalizers[some] = head.logits(keys[some].to(dtype)).logsumexp(1)
    return normalizers


@torch.no_grad()
def with_rows(normalizers: Tensor, keys: Tensor, rows: OutputHead) -> Tensor:
    """Return the log-normalisers of a head that was given further rows.

    Rows that are equal, as those of new words are at first, are computed once and counted.

    Args:
        normalizers: (M,) without them, nats.
        keys: (M, D); not read where the rows are zero.
        rows: weight (R, D) and bias (R,) or None of the further rows.

    Returns:
        (M,) in the dtype of ``normalizers``.
    """
    if not rows.weight.shape[0]:
        return normalizers
    bias = rows.weight.new_zeros(len(rows.weight)) if rows.bias is None else rows.bias
    if not rows.weight.any():
        return torch.logaddexp(normalizers, bias.logsumexp(0).to(normalizers.dtype))
    joined = torch.cat([rows.weight, bias.unsqueeze(1)], 1)  # (R, D + 1)
    distinct, counts = torch.unique_consecutive(joined, dim=0, return_counts=True)
    head = OutputHead(distinct[:, :-1].contiguous(), distinct[:, -1] + counts.log().to(bias.dtype))
    return torch.logaddexp(normalizers, log_normalizers(keys, head).to(normalizers.dtype))
