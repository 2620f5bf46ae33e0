"""A search that may stop at a distance finds the same neighbours, bit for bit, up to there."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.memory import within as module
from hebblm.memory.nearest import Ranked, merge, nearest
from hebblm.memory.store import Entries, EntryStore
from hebblm.memory.within import nearest_within


def entries_of(keys: torch.Tensor) -> Entries:
    return EntryStore.from_tensors(keys, torch.arange(len(keys)), None).entries()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    older=st.integers(0, 120),
    newer=st.integers(0, 60),
    k=st.integers(1, 25),
    spread=st.sampled_from([0.0, 1e-6, 1.0]),
    offset=st.sampled_from([0.0, 1000.0]),
)
def test_beside_an_older_part_it_completes_the_nearest_of_all(
    seed: int, older: int, newer: int, k: int, spread: float, offset: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys = spread * torch.randn(older + newer, 7, generator=generator) + offset
    queries = spread * torch.randn(5, 7, generator=generator) + offset
    first = nearest(queries, entries_of(keys[:older]), k)
    found = nearest_within(queries, entries_of(keys[older:]), k, first.distances[:, -1])
    shifted = torch.where(found.ids < 0, found.ids, found.ids + older)
    together, whole = merge(first, Ranked(found.distances, shifted), k), nearest(queries, entries_of(keys), k)
    assert torch.equal(together.ids, whole.ids)
    assert torch.equal(together.distances, whole.distances)


def test_what_lies_beyond_the_limits_is_not_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[tuple[int, ...]] = []
    rank = module.rank
    monkeypatch.setattr(
        module, "rank", lambda q, keys, ids: (ranked.append(tuple(ids.shape)), rank(q, keys, ids))[1]
    )
    generator = torch.Generator().manual_seed(0)
    keys, queries = torch.randn(500, 7, generator=generator), torch.randn(3, 7, generator=generator)
    limits = nearest(queries, entries_of(keys), 4).distances[:, -1]
    found = nearest_within(queries, entries_of(keys), 50, limits)
    assert ranked == [(3, 4)]
    assert (found.ids >= 0).sum(1).tolist() == [4, 4, 4]


def test_no_queries_and_no_entries() -> None:
    keys = torch.randn(6, 3)
    assert nearest_within(keys[:0], entries_of(keys), 2, torch.zeros(0)).ids.shape == (0, 2)
    assert (nearest_within(keys, entries_of(keys[:0]), 2, torch.zeros(6)).ids == -1).all()
