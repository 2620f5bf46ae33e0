"""Statistics of rows of logits, each taken once while the row is in the processor's caches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm import kernels
from hebblm.runtime.blocks import in_parallel

CHUNK = 32  # classes whose maximum is taken first: torch finds a maximum faster than its place
ENTRIES = 2**18  # of the rows that are read at once, some 1 MB


@dataclass(frozen=True, slots=True)
class RowStats:
    """Statistics of logits (N, V) and of their softmax p.

    Args:
        normalizer: (N,) logsumexp of the logits, nats.
        entropy: (N,) of p, nats.
        peak: (N,) log-probability of the most probable class, nats.
        favorite: (N,) int64, that class.
    """

    normalizer: Tensor
    entropy: Tensor
    peak: Tensor
    favorite: Tensor


@torch.no_grad()
def row_stats(logits: Tensor) -> RowStats:
    """Return normaliser, entropy and most probable class of each row of logits (N, V).

    With d the logits less the row's maximum m and s the sum of ``exp(d)``, the normaliser is ``m +
    log s`` and the entropy ``log s - sum_v exp(d_v) d_v / s``.

    Args:
        logits: (N, V), floating point. A class may have -inf, but not all of a row.

    Returns:
        The statistics, in the dtype of the logits.
    """
    count, classes = logits.shape
    if count and kernels.takes(logits):
        known, best = kernels.row_statistics(logits)
        return RowStats(known[:, 0], known[:, 1], known[:, 2], best)
    # Columns: normaliser, entropy, log-probability of the most probable class.
    stats = logits.new_empty(count, 3)
    favorite = torch.empty(count, dtype=torch.int64, device=logits.device)

    def fill(rows: slice) -> None:
        part = logits[rows]  # (n, V)
        peak, favorite[rows] = _peaks(part)
        below = part - peak.unsqueeze(1)
        shares = below.exp()
        total = shares.sum(1)
        # A class without probability has -inf here, and adds nothing to the entropy.
        below.clamp_min_(torch.finfo(part.dtype).min)
        log_total = total.log()
        stats[rows, 0] = peak + log_total
        stats[rows, 1] = log_total - torch.linalg.vecdot(shares, below) / total
        stats[rows, 2] = -log_total

    size = count if logits.device.type != "cpu" else max(1, ENTRIES // max(1, classes))
    parts = [slice(start, start + size) for start in range(0, count, max(1, size))]
    in_parallel(fill, parts, logits.device)
    return RowStats(stats[:, 0], stats[:, 1], stats[:, 2], favorite)


def _peaks(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maximum of each row (n,) and its place (n,) int64."""
    rows, classes = logits.shape
    whole = classes // CHUNK
    if whole < 2:
        peak, place = logits.max(1)
        return peak, place
    chunks = logits[:, : whole * CHUNK].reshape(rows, whole, CHUNK).amax(2)  # (n, V / 32)
    peak, chunk = chunks.max(1)
    at = chunk.unsqueeze(1) * CHUNK + torch.arange(CHUNK, device=logits.device)  # (n, 32)
    place = chunk * CHUNK + logits.gather(1, at).argmax(1)
    if whole * CHUNK == classes:
        return peak, place
    # The last classes fill no chunk.
    last, last_place = logits[:, whole * CHUNK :].max(1)
    return torch.maximum(peak, last), torch.where(last > peak, last_place + whole * CHUNK, place)
