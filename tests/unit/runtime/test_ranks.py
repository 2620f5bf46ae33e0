"""What one process is told of several, and how work is divided; exchanges are tried in real
processes elsewhere.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from hebblm.errors import UserError
from hebblm.memory import FlatMemory, RingMemory, ShardedMemory
from hebblm.runtime import ranks
from hebblm.runtime.ranks import ALONE, Ranks


@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize("count", [0, 6, 20])
def test_everything_is_somebodys(count: int, parts: int) -> None:
    shares = [Ranks(rank, parts).partition(count) for rank in range(parts)]
    assert [thing for share in shares for thing in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    tasks = [Ranks(rank, parts).tasks(count) for rank in range(parts)]
    assert sorted(task for own in tasks for task in own) == list(range(count))


def test_who_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert (ranks.rank(), ranks.size(), ranks.leads()) == (0, 1, True)
    monkeypatch.setenv("RANK", "3")  # some schedulers set these for purposes of their own
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (ranks.rank(), ranks.size(), ranks.leads()) == (0, 1, True)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1234")
    assert (ranks.rank(), ranks.size(), ranks.leads()) == (3, 4, False)
    with (
        pytest.raises(UserError, match="cuda:1: each of 4 processes takes its own GPU"),
        ranks.opened("cuda:1"),
    ):
        pass


def test_one_that_is_alone_keeps_what_it_has() -> None:
    rows = torch.arange(6).view(3, 2)
    given, counts = ALONE.exchange(rows, [3])
    assert given is rows
    assert counts == [3]
    assert ALONE.all_gather_rows(rows)[0] is rows
    assert ALONE.all_gather(rows) is rows
    assert ALONE.all_gather_object({"a": 1}) == [{"a": 1}]
    with ranks.opened("cpu") as found:
        assert found is ALONE is ranks.current()


def test_one_that_is_alone_loads_no_torch() -> None:
    code = (
        "import sys; from hebblm.runtime.ranks import opened\nwith opened(): assert 'torch' not in "
        "sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_memory_that_forgets_is_not_divided() -> None:
    with pytest.raises(UserError, match="kind ring forgets, so it is not divided"):
        ShardedMemory(RingMemory(4, 10), ALONE)


def test_a_memory_in_one_piece_is_that_piece() -> None:
    keys, labels = torch.randn(30, 4), torch.arange(30) % 5
    plain, own = FlatMemory(4), FlatMemory(4)
    for memory in (plain, own):
        memory.add(keys[:10], labels[:10])
        memory.mark_base()
    pieces = ShardedMemory(own, ALONE)
    pieces.mark_base()
    for memory in (plain, pieces):
        memory.add(keys[10:], labels[10:])
        memory.observe_ranks([labels[10:]])
    queries = torch.randn(7, 4)
    one, other = (memory.search(queries, 40) for memory in (plain, pieces))
    for name in ("keys", "values", "distances", "mask"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(plain.nearest(queries, 4).ids, pieces.nearest(queries, 4).ids)
    assert torch.equal(plain.counts(9), pieces.counts(9))
    for memory in (plain, pieces):
        memory.reset()
        assert len(memory) == 10
    assert torch.equal(plain.counts(5), pieces.counts(5))
    assert pieces.search(queries[:0], 3).keys.shape == (0, 3, 4)
