"""Log-normalisers of remembered keys, by which MbPA's fast form accounts for classes that it does
not follow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hebblm.types import OutputHead

ROWS = 1024  # keys in one product
LOGITS = 2**19  # of one product, few enough to stay in the caches until they are summed
LOG2_E = math.log2(math.e)


@torch.no_grad()
def log_normalizers(keys: Tensor, head: OutputHead) -> Tensor:
    """Return ``log sum_v exp(W_v h_k + b_v)`` of each key, in nats.

    It uses the head's precision: products in bfloat16 were off by up to 4e-3 nats on a trained
    model, several per cent of a key's probability outside the classes that are followed. It cuts
    both keys and classes, so that logits are exponentiated and summed while they are in the caches.
    It does so in one pass; subtracting a maximum would take three. Only keys whose sum leaves the
    range of the dtype are summed again with their maximum subtracted. Powers of two take a third of
    the time of those of e: ``exp(x) = 2^(x log2 e)``.

    Args:
        keys: (M, D), floating point.
        head: weight (V, D) and bias (V,) or None.

    Returns:
        (M,) in the head's dtype.
    """
    cap = None if head.cap is None else head.cap * LOG2_E
    dtype, classes = head.weight.dtype, len(head.weight)
    rows = max(1, min(len(keys), ROWS))
    columns = max(1, min(classes, LOGITS // rows))
    bias = head.weight.new_zeros(classes) if head.bias is None else head.bias
    tiles = list(
        zip(torch.split(head.weight, columns), torch.split(bias * LOG2_E, columns), strict=True)
    )
    logits = keys.new_empty(rows * columns, dtype=dtype)
    sums = keys.new_empty(len(keys), dtype=dtype)
    for part, total in zip(torch.split(keys, rows), torch.split(sums, rows), strict=True):
        scaled = part.to(dtype) * LOG2_E  # (n, D)
        pieces = scaled.new_empty(len(tiles), len(part))
        for (weight, offset), piece in zip(tiles, pieces, strict=True):
            tile = logits[: len(part) * len(weight)].view(len(part), len(weight))
            torch.addmm(offset, scaled, weight.t(), out=tile)
            if cap is not None:
                tile.div_(cap).tanh_().mul_(cap)
            torch.sum(tile.exp2_(), 1, out=piece)
        torch.sum(pieces, 0, out=total)
    limits = torch.finfo(dtype)
    normalizers = sums.log()
    extreme = (~((sums > limits.tiny / limits.eps) & (sums < limits.max))).nonzero().squeeze(1)
    for extreme_keys in torch.split(extreme, max(1, LOGITS // max(1, classes))):
        normalizers[extreme_keys] = head.logits(keys[extreme_keys].to(dtype)).logsumexp(1)
    return normalizers


@torch.no_grad()
def with_rows(normalizers: Tensor, keys: Tensor, rows: OutputHead) -> Tensor:
    """Return the log-normalisers of a head with additional rows.

    Equal rows, such as those of new words at first, are computed once and counted.

    Args:
        normalizers: (M,) without these rows, nats.
        keys: (M, D); not read if the rows are zero.
        rows: weight (R, D) and bias (R,) or None of the additional rows.

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
