"""The regularisers of AWD-LSTM as pure functions (Merity, Keskar and Socher 2017, sections 3 and 4)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from awd_lstm.streams import Share

LEVELS = 1 << 16  # of a coin


def locked_mask(like: Tensor, p: float, share: Share | None = None) -> Tensor:
    """Draw one inverted-dropout mask a sequence, shared by all its time steps.

    Args:
        like: (T, B, D) activations whose batch size, width, dtype and device the mask takes.
        p: probability of dropping, in [0, 1).
        share: which rows of a larger batch these are. All of its masks are drawn, so that those of a row do not
            depend on who reads the others.

    Returns:
        (1, B, D) entries 0 or 1 / (1 - p).
    """
    rows = like.shape[1] if share is None else share.total
    mask = torch.empty(1, rows, like.shape[2], dtype=like.dtype, device=like.device)
    mask.bernoulli_(1 - p).div_(1 - p)
    return mask if share is None else mask[:, share.rows]


def locked_dropout(x: Tensor, p: float, training: bool, share: Share | None = None) -> Tensor:
    """Variational dropout: the same units of a sequence are dropped at every time step; x (T, B, D)."""
    if not training or p == 0:
        return x
    return x * locked_mask(x, p, share)


def embedding_dropout(tokens: Tensor, weight: Tensor, p: float, training: bool) -> Tensor:
    """Look up words with whole words dropped: a dropped word is absent from all positions of a batch.

    The mask is applied to the looked-up rows, never to the matrix, and the gradient is sparse: neither costs
    time or memory in proportion to V x D.

    Args:
        tokens: (...) int64.
        weight: (V, D).
        p: probability of dropping a word, in [0, 1).
        training: without it nothing is dropped.

    Returns:
        (..., D).
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
    """Draw an inverted-dropout mask with one coin a weight, from 16 random bits each.

    A Bernoulli draw of its own for every one of H x 4H weights is slow on a CPU; random words are not.

    Args:
        like: a tensor whose shape, dtype and device the mask takes.
        p: probability of dropping, in [0, 1); taken to the nearest multiple of 2^-16.

    Returns:
        entries 0 or 1 / (1 - p).
    """
    dropped = min(round(p * LEVELS), LEVELS - 1)
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device)
    coins = words.random_(-(1 << 63), None).view(torch.int16)[: like.numel()].view(like.shape)
    return (coins >= dropped - LEVELS // 2).to(like.dtype).mul_(LEVELS / (LEVELS - dropped))


def activation_penalty(dropped: Tensor, alpha: float) -> Tensor:
    """AR: ``alpha * mean(h^2)`` of the last layer's output after dropout, (T, B, D) -> scalar."""
    return alpha * dropped.square().mean()


def temporal_activation_penalty(raw: Tensor, beta: float) -> Tensor:
    """TAR: ``beta * mean((h_t - h_{t-1})^2)`` of the last layer before dropout, (T, B, D) -> scalar."""
    if raw.shape[0] < 2:
        return raw.new_zeros(())
    return beta * (raw[1:] - raw[:-1]).square().mean()
