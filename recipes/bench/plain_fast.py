"""The fast form of MbPA in plain torch: what the solver has to beat, with no mask and no pull."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.types import Neighbors, OutputHead

ACTIVE, RANK, BLOCK = 256, 8, 10


def plain_fast(
    hidden: Tensor, neighbors: Neighbors, head: OutputHead, *, lr: float, steps: int, eps: float
) -> Tensor:
    """Return (N, V) logits of MbPA at a rate relative to curvature for queries (N, D), on 256
    classes.

    Every query has K real neighbours, with their log-normalisers.
    """
    W, b, lse = head.weight, head.bias, neighbors.log_normalizers
    if b is None or lse is None:
        raise ValueError("the plain form wants a bias and log-normalisers")
    H_all, y, count = neighbors.keys, neighbors.values, len(hidden)
    c = 1 / (eps + neighbors.distances) / y.shape[1]  # (N, K)
    active, rank, device = min(ACTIVE, len(b)), min(RANK, y.shape[1]), hidden.device
    q0 = hidden @ W.T + b
    px = q0.softmax(1)
    g = torch.einsum("nkd,nd->nk", H_all, hidden) + 1
    # labels, then top classes
    act = q0.clone().scatter_(1, y, 1e9).topk(active, 1, sorted=False).indices
    place = torch.zeros(count, len(b), dtype=torch.int32, device=device)
    place.scatter_(
        1, act, torch.arange(active, dtype=torch.int32, device=device).expand(count, active)
    )
    places = place.gather(1, y).long()  # of the labels among the classes followed
    change, shares = hidden.new_zeros(count, active), hidden.new_zeros(count)
    for start in range(0, count, BLOCK):
        at = slice(start, start + BLOCK)
        H, A = H_all[at], act[at]
        Z = torch.bmm(H, W[A].transpose(1, 2)) + b[A][:, None] - lse[at][:, :, None]
        a = c[at] * (lr / _curvature(H, c[at]))[:, None]
        alpha = a * g[at]
        # H H^T + 1 through a factor of the nearest keys, and what it leaves of the diagonal
        if steps > 1:
            pivots = a.topk(rank, 1).indices
            Hp = H.gather(1, pivots[:, :, None].expand(-1, -1, H.shape[2]))
            C = torch.bmm(H, Hp.transpose(1, 2)) + 1
            small = C.gather(1, pivots[:, :, None].expand(-1, -1, rank)) + 1e-3 * torch.eye(
                rank, device=device
            )
            L = torch.linalg.solve_triangular(
                torch.linalg.cholesky(small), C.transpose(1, 2), upper=False
            )
            L = L.transpose(1, 2).contiguous()
            La = (L * a[:, :, None]).transpose(1, 2).contiguous()
            rest = ((H * H).sum(2) + 1 - (L * L).sum(2)).clamp_min(0) * a
        E = Z.exp()
        tail = (1 - E.sum(2)).clamp_min_(0)
        left, ones = torch.zeros_like(tail), tail.new_ones(*tail.shape, 1)
        for step in range(steps):
            if step:
                torch.exp(Z, out=E)
            n = E.sum(2).add_(tail).reciprocal_()
            left += n
            E.mul_(n.neg_()[:, :, None]).scatter_add_(2, places[at][:, :, None], ones)  # Y - P
            change[at] += torch.bmm(alpha[:, None, :], E)[:, 0]
            if step < steps - 1:
                Z.baddbmm_(L, torch.bmm(La, E)).addcmul_(rest[:, :, None], E)
        shares[at] = (alpha * left * tail).sum(1)
    outside = (1 - px.gather(1, act).sum(1)).clamp_min(1e-6)
    out = torch.addcmul(q0, (shares / outside)[:, None], px, value=-1)
    return out.scatter_(1, act, q0.gather(1, act) + change)


def _curvature(H: Tensor, a: Tensor, iterations: int = 4) -> Tensor:
    """Return the largest eigenvalue (n,) of ``A^1/2 (H H^T + 1) A^1/2`` for H (n, K, D), a (n,
    K).
    """
    root = a.sqrt()
    v = root
    value = v[:, 0]
    for _ in range(iterations):
        w = root * v
        z = torch.bmm(H, torch.bmm(H.transpose(1, 2), w[:, :, None]))[:, :, 0] + w.sum(
            1, keepdim=True
        )
        z = root * z
        value = z.norm(dim=1) / v.norm(dim=1)
        v = z / z.norm(dim=1, keepdim=True)
    return value
