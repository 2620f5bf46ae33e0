from __future__ import annotations

import torch

from recipes.bench.source import CHUNK, SyntheticSource, filled

CPU = torch.device("cpu")


def synthetic(seed: int = 3) -> SyntheticSource:
    return SyntheticSource(24, 300, seed=seed, device=CPU)


def test_entries_are_the_same_however_many_are_asked_for() -> None:
    source = synthetic()
    few, many = filled(source, 50), filled(source, CHUNK + 20)
    assert len(many[0]) == len(many[1]) == CHUNK + 20
    assert torch.equal(few[0], many[0][:50])
    assert torch.equal(few[1], many[1][:50])
    again = filled(synthetic(), 50)
    assert torch.equal(few[0], again[0])
    assert not torch.equal(few[0], filled(synthetic(4), 50)[0])


def test_a_tenth_of_the_queries_stands_next_to_an_entry() -> None:
    source = synthetic()
    keys, _ = filled(source, 500)
    hidden, targets = source.queries(100)
    nearest = torch.cdist(hidden, keys).square().amin(1)
    planted = torch.arange(100) % SyntheticSource.PLANTED == 0
    assert nearest[planted].mean() < 2 * SyntheticSource.PLANTED_DISTANCE
    assert nearest[~planted].mean() > 2 * nearest[planted].mean()
    assert targets.shape == (100,)
