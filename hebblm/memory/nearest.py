"""Exact nearest neighbours by squared L2 distance, the same bit for bit whatever the batch and the
chunks.

Matrix products find candidates; their rounding depends on shapes. So the candidates' distances are
computed again by direct difference. An error bound on the matrix products tells whether an entry
outside the candidates could belong to the K nearest. If so, all entries within the bound are
examined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory import faiss_index
from hebblm.memory.store import Entries, check_tensors
from hebblm.runtime.blocks import in_parallel

CPU_CHUNK_BYTES = 32 << 20
CUDA_CHUNK_BYTES = 1 << 30
# Differences of a few queries at a time stay in the second-level cache of a CPU.
CPU_BLOCK_BYTES = 1 << 20
CUDA_BLOCK_BYTES = 256 << 20
# of a query and an entry, compared at once in addition to neighbours found elsewhere
MOST_PAIRS = 1 << 25


class Ranked(NamedTuple):
    """Entries chosen for N queries."""

    distances: Tensor  # (N, K) squared L2, ascending; +inf without an entry
    # (N, K) int64 positions among the entries; -1 without an entry. Equal distances: older first.
    ids: Tensor


def compute_dtype(queries: Tensor, keys: Tensor) -> torch.dtype:
    """Return the type of distances: float64 if either side is, else float32."""
    return torch.promote_types(torch.promote_types(queries.dtype, keys.dtype), torch.float32)


def block_rows(row_bytes: int, device: torch.device) -> int:
    budget = CUDA_BLOCK_BYTES if device.type == "cuda" else CPU_BLOCK_BYTES
    return max(1, budget // max(1, row_bytes))


def row_slices(count: int, row_bytes: int, device: torch.device) -> list[slice]:
    """Yield slices of ``count`` rows of so many bytes, one block of work at a time."""
    step = block_rows(row_bytes, device)
    return [slice(begin, begin + step) for begin in range(0, count, step)]


def squared_differences(queries: Tensor, keys: Tensor) -> Tensor:
    """``||h - h_k||^2`` (...) of queries and keys (..., D) by direct difference.

    The bits depend on the two vectors alone: the order of summation depends on D only.
    """
    squares = (keys - queries).square_()  # (..., D)
    if squares.device.type == "cpu":
        return squares.sum(-1)
    # A CUDA reduction splits a row according to the number of rows; adding halves is elementwise.
    while squares.shape[-1] > 1:
        half, odd = divmod(squares.shape[-1], 2)
        summed = squares[..., :half] + squares[..., half : 2 * half]
        if odd:
            summed[..., :1] += squares[..., -1:]
        squares = summed
    return squares[..., 0]


def listed_distances(queries: Tensor, keys: Tensor, ids: Tensor) -> Tensor:
    """``||h - h_k||^2`` (N, M) of queries (N, D) and the keys (n, D) at positions ``ids`` (N, M),
    by direct difference.

    The bits depend on the two vectors alone. The result at a negative position is unspecified.
    """
    dtype = compute_dtype(queries, keys)
    plain = queries.dtype == keys.dtype == torch.float32 and keys.device.type == "cpu"
    if plain and len(keys) and faiss_index.is_installed():
        # FAISS reads the keys where they lie; gathering them first would move them three times.
        return faiss_index.listed_distances(queries, keys, ids)
    distances = torch.empty(ids.shape, dtype=dtype, device=ids.device)
    dim = keys.shape[1]
    for block in row_slices(len(queries), ids.shape[1] * dim * dtype.itemsize, keys.device):
        near = ids[block]  # (n, M)
        rows = keys.index_select(0, near.clamp_min(0).flatten()).to(dtype).view(*near.shape, dim)
        distances[block] = squared_differences(queries[block, None].to(dtype), rows)
    return distances


def rank(queries: Tensor, keys: Tensor, ids: Tensor) -> Ranked:
    """Rank the candidates at positions ``ids`` (N, M) by their exact distance to the queries (N,
    D).

    Ids are distinct within a row, -1 for no candidate. Returns all M of each query, nearest first,
    ties by position.
    """
    ids = ids.sort(dim=1).values
    distances = listed_distances(queries, keys, ids).masked_fill_(ids < 0, float("inf"))  # (N, M)
    distances, order = distances.sort(dim=1, stable=True)
    return Ranked(distances, ids.gather(1, order))


def nearest(queries: Tensor, entries: Entries, k: int, *, chunk_bytes: int | None = None) -> Ranked:
    """Return distances and positions (N, K) of the exact ``k`` nearest entries of each query (N,
    D).

    Columns beyond the number of entries are empty. Queries are finite and on the entries' device;
    ``chunk_bytes`` bounds the scratch memory of the matrix products.
    """
    dtype = compute_dtype(queries, entries.keys)
    queries = queries.to(dtype)
    count = len(entries)
    wanted = min(k, len(entries))
    if not count:
        return pad(_nothing(queries), k)
    candidates = wanted + max(16, wanted // 4)
    if candidates >= count:
        ids = torch.arange(count, device=queries.device).expand(len(queries), count)
        ranked = rank(queries, entries.keys, ids)
        return pad(Ranked(ranked.distances[:, :wanted], ranked.ids[:, :wanted]), k)
    if chunk_bytes is None:
        chunk_bytes = CUDA_CHUNK_BYTES if queries.device.type == "cuda" else CPU_CHUNK_BYTES
    ranked_blocks = []
    for block in torch.split(queries, 1024) if len(queries) else [queries]:
        step = max(1, chunk_bytes // (dtype.itemsize * (len(block) + block.shape[1])))
        ranked_blocks.append(_nearest_chunk(block, entries, wanted, candidates, step))
    return pad(Ranked(*map(torch.cat, zip(*ranked_blocks, strict=True))), k)


def nearest_within(queries: Tensor, entries: Entries, k: int, limits: Tensor) -> Ranked:
    """Return those of the exact ``k`` nearest entries (N, K) that are no farther than ``limits``
    (N,), squared.

    Farther ones may be missing. If other entries already fill the K places up to a distance, only
    nearer entries count, and there are few, so fewer than K need ranking. Matrix products choose
    and direct differences decide, as in :func:`nearest`.
    """
    if (
        not len(entries)
        or len(queries) * len(entries) > MOST_PAIRS
        or not bool(limits.isfinite().all())
    ):
        return nearest(queries, entries, k)
    rough = approximate_distances(queries, entries, 0, len(entries))  # (N, n)
    reach = limits.to(rough.dtype) + 2 * error_bound(queries, entries)  # (N,)
    near = rough <= reach[:, None]
    counts = near.sum(1)  # (N,)
    widest = int(counts.max()) if len(queries) else 0
    if widest > k:
        return nearest(queries, entries, k)
    row, column = near.nonzero().unbind(1)  # (m,)
    ids = torch.full((len(queries), widest), -1, dtype=torch.int64, device=rough.device)
    place = torch.arange(len(row), device=rough.device) - (counts.cumsum(0) - counts)[row]
    ids[row, place] = column
    return pad(rank(queries, entries.keys, ids), k)


def pad(ranked: Ranked, k: int) -> Ranked:
    missing = k - ranked.ids.shape[1]
    if missing <= 0:
        return ranked
    distances = torch.nn.functional.pad(ranked.distances, (0, missing), value=float("inf"))
    return Ranked(distances, torch.nn.functional.pad(ranked.ids, (0, missing), value=-1))


def merge(first: Ranked, second: Ranked, k: int) -> Ranked:
    """Return the ``k`` nearest of two rankings; on equal distances those of ``first`` come
    first.
    """
    distances = torch.cat([first.distances, second.distances], dim=1)
    ids = torch.cat([first.ids, second.ids], dim=1)
    distances, order = distances.sort(dim=1, stable=True)
    return Ranked(distances[:, :k], ids.gather(1, order)[:, :k])


def shifted(ranked: Ranked, by: int) -> Ranked:
    """Return the same ranking with positions that count from ``by`` on."""
    return Ranked(ranked.distances, torch.where(ranked.ids < 0, ranked.ids, ranked.ids + by))


def _nearest_chunk(
    queries: Tensor, entries: Entries, wanted: int, candidates: int, step: int
) -> Ranked:
    """Find candidates by matrix products, rank them exactly, and examine doubtful queries again."""
    nothing = _nothing(queries)
    floors, ids = nothing.distances, nothing.ids
    for begin in range(0, len(entries), step):
        approximate = approximate_distances(queries, entries, begin, begin + step)  # (N, C)
        values, nearby = approximate.topk(
            min(candidates, approximate.shape[1]), dim=1, largest=False, sorted=False
        )
        floors, ids = torch.cat([floors, values], dim=1), torch.cat([ids, nearby + begin], dim=1)
        if ids.shape[1] > candidates:
            floors, kept = floors.topk(candidates, dim=1, largest=False, sorted=False)
            ids = ids.gather(1, kept)
    ranked = rank(queries, entries.keys, ids)
    distances, ids = ranked.distances[:, :wanted], ranked.ids[:, :wanted]
    bound = error_bound(queries, entries)  # (N,)
    # An entry that is not a candidate has a product-based distance of at least the largest
    # candidate's.
    doubtful = ~(distances[:, -1] + 2 * bound < floors.amax(dim=1))  # (N,)
    if bool(doubtful.any()):
        limits = distances[doubtful, -1] + 2 * bound[doubtful]
        again = _within(queries[doubtful], entries, limits, wanted, max(1, step // 4))
        distances, ids = distances.clone(), ids.clone()
        distances[doubtful] = again.distances
        ids[doubtful] = again.ids
    return Ranked(distances, ids)


def _nothing(queries: Tensor) -> Ranked:
    ids = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
    return Ranked(queries.new_empty(len(queries), 0), ids)


def approximate_distances(queries: Tensor, entries: Entries, begin: int, end: int) -> Tensor:
    """``||h||^2 + ||h_k||^2 - 2 h.h_k`` (N, C) for a run of entries, subject to rounding."""
    keys = entries.keys[begin:end].to(queries.dtype)  # (C, D)
    norms = entries.norms[begin:end].to(queries.dtype)  # (C,)
    distances = torch.addmm(norms, queries, keys.t(), alpha=-2)  # (N, C)
    return distances.add_(queries.square().sum(dim=1, keepdim=True))


def error_bound(queries: Tensor, entries: Entries) -> Tensor:
    """Bound (N,) the difference between a distance by matrix products and one by direct difference.

    A sum of D products is off by at most ``(D + 2) u`` times the sum of their magnitudes, and those
    of the three terms sum to at most ``(||h|| + ||h_k||)^2``.
    """
    unit = torch.finfo(entries.norms.dtype).eps
    if queries.dtype == torch.float32:
        # A caller may have allowed TensorFloat-32 or bfloat16 products.
        unit = {"highest": unit, "high": 2.0**-10, "medium": 2.0**-7}[
            torch.get_float32_matmul_precision()
        ]
    largest = entries.norms.max() if entries.largest is None else entries.largest  # ()
    reach = queries.square().sum(dim=1).sqrt() + largest.to(queries.dtype).sqrt()  # (N,)
    return (queries.shape[1] + 16) * unit * reach.square()


def _within(queries: Tensor, entries: Entries, limits: Tensor, wanted: int, step: int) -> Ranked:
    """Rank every entry whose product-based distance is at most ``limits`` (N,), run by run."""
    dim = queries.shape[1]
    best = _nothing(queries)
    pairs = block_rows(dim * queries.dtype.itemsize, queries.device)
    for begin in range(0, len(entries), step):
        # (N, C)
        near = approximate_distances(queries, entries, begin, begin + step) <= limits[:, None]
        distances = torch.full(near.shape, float("inf"), dtype=queries.dtype, device=queries.device)
        for pair in torch.split(near.nonzero(), pairs):
            row, column = pair.unbind(dim=1)
            direct = listed_distances(queries[row], entries.keys, (column + begin)[:, None])
            distances[row, column] = direct[:, 0]
        ids = torch.arange(begin, begin + near.shape[1], device=queries.device).expand(near.shape)
        best = merge(best, Ranked(distances, ids), wanted)
    return best


def checked(queries: Tensor, entries: Entries, k: int) -> Tensor:
    """Return queries (N, D) on the device of the entries; refuse a search that has no answer."""
    check_tensors(queries=queries)
    dim = entries.keys.shape[1]
    if k < 1:
        raise UserError(f"K = {k} is too few neighbours; choose at least 1")
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise ValueError(
            f"queries of shape {tuple(queries.shape)} do not fit a memory of width {dim}"
        )
    if not bool(queries.isfinite().all()):
        raise UserError(
            "a hidden state is not finite; the model that made it has diverged, lower its learning "
            "rate"
        )
    return queries.detach().to(entries.keys.device)


def gather_keys(segments: Sequence[Entries], ids: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the keys (N, K, D) at positions (N, K), which count through all segments; zero at -1.

    They take the given dtype.
    """
    dim = segments[0].keys.shape[1]
    keys = torch.empty(*ids.shape, dim, dtype=dtype, device=ids.device)
    places = ids.flatten()  # (N K,)
    rows = keys.view(-1, dim)
    start = 0
    for number, segment in enumerate(segments):
        if number == 0 and len(segment):
            _copy_first(segment.keys, places, rows)
        elif len(segment):
            within = (places >= start) & (places < start + len(segment))
            rows[within] = segment.keys[places[within] - start].to(dtype)
        start += len(segment)
    empty = places < 0
    if bool(empty.any()):
        rows[empty] = 0
    return keys


def _copy_first(keys: Tensor, places: Tensor, rows: Tensor) -> None:
    """Copy the keys at ``places`` (m,) to rows (m, D); what places outside the keys get is
    unspecified.
    """
    inside = places.clamp(0, len(keys) - 1)

    def take(block: slice) -> None:
        rows[block] = keys.index_select(0, inside[block])

    parts = row_slices(len(places), rows.shape[1] * rows.element_size(), rows.device)
    in_parallel(take, parts, rows.device)
