"""A memory shared by two processes, each with an index of its own, finds what one process finds in
both indexes.

Run as a script, this file is one of the processes: ``FILE``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hebblm.memory import DiskMemory, FaissMemory, FlatMemory, ShardedMemory
from hebblm.runtime.ranks import end_rank, opened

ROOT = Path(__file__).parents[2]
DIM, K = 16, 12
SIZES = ((300, 20), (260, 35))  # by rank, entries before the first step and those written in it
ASKED = (5, 3)  # queries by rank
KINDS = {"ram": FaissMemory, "disk": DiskMemory}


def rows(seed: int, count: int) -> Tensor:
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))


def written(rank: int, step: int) -> tuple[Tensor, Tensor]:
    """Return keys and labels that a rank begins with (step 0) or writes then (step 1)."""
    count = SIZES[rank][step]
    return rows(10 * rank + step, count), torch.arange(count) % 7


def memory(kind: str) -> FaissMemory:
    """Return one that visits one list of four and proposes no more than it needs, so that it misses
    some.
    """
    return KINDS[kind](DIM, "IVF4,SQ8", rescore=1, nprobe=1)


def found_by_ranks(place: Path) -> None:
    """Search as one of two ranks; the first one writes what both have found."""
    with opened() as ranks:
        found = []
        for kind in KINDS:
            own = memory(kind)
            own.add(*written(ranks.rank, 0))
            shared = ShardedMemory(own, ranks)
            labels = written(ranks.rank, 1)[1]
            shared.add(*written(ranks.rank, 1))
            shared.observe_ranks(ranks.all_gather_rows(labels))
            near = shared.search(rows(100 + ranks.rank, ASKED[ranks.rank]), K)
            found.append(
                [ranks.all_gather(part) for part in (near.distances, near.values, near.keys)]
            )
        if ranks.leads:
            torch.save(found, place)
    end_rank(0)


def found_in_both(queries: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Return distances and places in one memory (N, K) of what either index finds; of equal ones
    the first written.
    """
    distances, places, begun = [], [], sum(size for size, _ in SIZES)
    starts = ((0, begun), (SIZES[0][0], begun + SIZES[0][1]))  # by rank and step
    for rank, sizes in enumerate(SIZES):
        part = memory(kind)
        for step in (0, 1):
            part.add(*written(rank, step))
        near = part.nearest(queries, K)
        place = torch.cat(
            [
                torch.arange(start, start + size)
                for start, size in zip(starts[rank], sizes, strict=True)
            ]
        )
        distances.append(near.distances)
        places.append(place[near.ids])
    both = zip(torch.cat(distances, 1).tolist(), torch.cat(places, 1).tolist(), strict=True)
    # (N, K, 2)
    ranked = torch.tensor([sorted(zip(*row, strict=True))[:K] for row in both], dtype=torch.float64)
    return ranked[..., 0].float(), ranked[..., 1].long()


@pytest.mark.slow
def test_two_indexes_find_what_they_find_in_one_process(tmp_path: Path) -> None:
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [
        sys.executable,
        *start,
        "-m",
        "tests.parity.test_sharded_index",
        str(tmp_path / "found.pt"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    queries = torch.cat([rows(100 + rank, count) for rank, count in enumerate(ASKED)])
    exact = FlatMemory(DIM)
    for step in (0, 1):
        for rank in (0, 1):
            exact.add(*written(rank, step))
    entries = exact.entries()
    for kind, found in zip(KINDS, torch.load(tmp_path / "found.pt"), strict=True):
        distances, places = found_in_both(queries, kind)
        for one, other in zip(
            found, (distances, entries.values[places], entries.keys[places]), strict=True
        ):
            assert torch.equal(one, other), kind
        assert (distances > exact.nearest(queries, K).distances).any(), (
            "else no index would have been asked"
        )


if __name__ == "__main__":
    found_by_ranks(Path(sys.argv[1]))
