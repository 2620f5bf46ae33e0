"""The regularisers of AWD-LSTM as pure functions (Merity, Keskar and Socher 2017, sections 3 and
4).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from awd_lstm.streams import Share

LEVELS = 1 << 16  # of a coin


def locked_mask(like: Tensor, p: float, share: Share | None = None) -> Tensor:
    """One inverted-dropout mask (1, B, D) a sequence, of entries 0 or 1 / (1 - p), shared by the
    time steps of ``like`` (T, B, D).

    ``share`` says which rows of a larger batch these are. All of its masks are drawn, so that those
    of a row do not depend on who reads the others.
    """
    rows = like.shape[1] if share is None else share.total
    mask = torch.empty(1, rows, like.shape[2], dtype=like.dtype, device=like.device)
    mask.bernoulli_(1 - p).div_(1 - p)
    return mask if share is None else mask[:, share.rows]


def locked_dropout(x: Tensor, p: float, training: bool, share: Share | None = None) -> Tensor:
    """Variational dropout: the same units of a sequence are dropped at every time step; x (T, B,
    D).
    """
    if not training or p == 0:
        return x
    return x * locked_mask(x, p, share)


def embedding_dropout(tokens: Tensor, weight: Tensor, p: float, training: bool) -> Tensor:
    """Look up tokens (...) as (..., D), with whole words dropped: a dropped word is absent from all
    positions of a batch.

    The mask is applied to the looked-up rows, never to the matrix (V, D), and the gradient is
    sparse: neither costs time or memory in proportion to V x D.
    """
    x = F.embedding(tokens, weight, sparse=True)
    if not training or p == 0:
        return x
    keep = torch.empty(weight.shape[0], 1, dtype=weight.dtype, device=weight.device)
    return x * F.embedding(tokens, keep.bernoulli_(1 - p).div_(1 - p))


def drop_weight(weight: Tensor, p: float, training: bool) -> Tensor:
    """DropConnect on a recurrent matrix (4H, H), drawn once a forward pass."""
    if not training or p == 0:
        return weight
    return weight * connection_mask(weight, p)


def connection_mask(like: Tensor, p: float) -> Tensor:
    """Inverted-dropout mask like a tensor, of entries 0 or 1 / (1 - p), with one coin a weight,
    from 16 random bits each.

    Drawing a Bernoulli number for each of H x 4H weights is slow on a CPU; drawing random 64-bit
    words is not. ``p`` is taken to the nearest multiple of 2^-16.
    """
    dropped = min(round(p * LEVELS), LEVELS - 1)
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device)
    coins = words.random_(-(1 << 63), None).view(torch.int16)[: like.numel()].view(like.shape)
    return (coins >= dropped - LEVELS // 2).to(like.dtype).mul_(LEVELS / (LEVELS - dropped))


def activation_penalty(dropped: Tensor, alpha: float) -> Tensor:
    """AR: ``alpha * mean(h^2)`` of the last layer's output after dropout, (T, B, D) -> scalar."""
    return alpha * dropped.square().mean()


def temporal_activation_penalty(raw: Tensor, beta: float) -> Tensor:
    """TAR: ``beta * mean((h_t - h_{t-1})^2)`` of the last layer before dropout, (T, B, D) ->
    scalar.
    """
    if raw.shape[0] < 2:
        return raw.new_zeros(())
    return beta * (raw[1:] - raw[:-1]).square().mean()
