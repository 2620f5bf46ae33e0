"""Neighbours that adapters read, gathered from ranked positions."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.blocks import side_by_side
from hebblm.errors import UserError
from hebblm.memory.nearest import Ranked, parts
from hebblm.memory.store import Entries, check_tensors
from hebblm.types import Neighbors


def checked(queries: Tensor, entries: Entries, k: int) -> Tensor:
    """Queries (N, D) on the device of the entries; refuses a search that has no answer."""
    check_tensors(queries=queries)
    dim = entries.keys.shape[1]
    if k < 1:
        raise UserError(f"the number of neighbours K is {k}; it must be at least 1")
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise ValueError(f"queries of shape {tuple(queries.shape)} do not fit a memory of width {dim}")
    if not bool(queries.isfinite().all()):
        raise UserError("a hidden state is not finite; the model that made it has diverged, lower its learning rate")
    return queries.detach().to(entries.keys.device)


def gather(parts: list[Entries], ranked: Ranked, queries: Tensor) -> Neighbors:
    """Entries at ``ranked`` positions (N, K), which count through all parts; their log-normalisers only if every part
    has them.

    Keys take the dtype of the queries (N, D), and everything their device.
    """
    dtype = queries.dtype
    mask = ranked.ids >= 0  # (N, K)
    start = len(parts[0])
    keys, values, logs = _take(parts[0], ranked.ids.masked_fill(ranked.ids >= start, -1), dtype)
    for part in parts[1:]:
        within = (ranked.ids >= start) & (ranked.ids < start + len(part))
        chosen = ranked.ids[within] - start
        keys[within], values[within] = part.keys[chosen].to(dtype), part.values[chosen]
        if logs is None or part.log_normalizers is None:
            logs = None
        else:
            logs[within] = part.log_normalizers[chosen]
        start += len(part)
    empty = ~mask
    if bool(empty.any()):
        keys[empty] = 0
        values[empty] = 0
        if logs is not None:
            logs[empty] = 0
    device = queries.device
    return Neighbors(
        keys=keys.to(device),
        values=values.to(device),
        distances=ranked.distances.to(device),
        mask=mask.to(device),
        log_normalizers=None if logs is None else logs.to(device),
    )


def _take(entries: Entries, ids: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    """Keys (N, K, D), values (N, K) and log-normalisers (N, K); what stands at -1 is unspecified."""
    dim = entries.keys.shape[1]
    if not len(entries):
        logs = None if entries.log_normalizers is None else torch.zeros_like(ids, dtype=torch.float32)
        return torch.zeros(*ids.shape, dim, dtype=dtype, device=ids.device), torch.zeros_like(ids), logs
    keys = torch.empty(*ids.shape, dim, dtype=dtype, device=ids.device)
    flat = ids.clamp_min(0).flatten()  # (N K,)
    rows = keys.view(-1, dim)

    def take(some: slice) -> None:
        rows[some] = entries.keys.index_select(0, flat[some])

    side_by_side(take, parts(len(flat), dim * dtype.itemsize, ids.device), ids.device)
    values = entries.values.index_select(0, flat).view_as(ids)
    logs = entries.log_normalizers
    return keys, values, None if logs is None else logs.index_select(0, flat).view_as(ids)
