"""Parallel streams: every token of a row is predicted once, in order, from its predecessor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from awd_lstm.streams import ParallelStreams, TrainingRanks

CPU = torch.device("cpu")


@settings(max_examples=60, deadline=None)
@given(tokens=st.integers(2, 120), batch=st.integers(1, 6), length=st.integers(1, 30))
def test_segments_tile_each_row_exactly_once(tokens: int, batch: int, length: int) -> None:
    if tokens // batch < 2:
        with pytest.raises(
            ValueError, match=f"{tokens} tokens are too few for {batch} parallel streams"
        ):
            ParallelStreams(np.arange(tokens), batch)
        return
    streams = ParallelStreams(np.arange(tokens), batch)
    parts = [streams.segment(start, length, CPU) for start in range(0, len(streams), length)]
    inputs, targets = torch.cat([x for x, _ in parts], 1), torch.cat([y for _, y in parts], 1)
    rows = np.arange(tokens)[: tokens // batch * batch].reshape(batch, -1)
    assert inputs.tolist() == rows[:, :-1].tolist()
    assert targets.tolist() == rows[:, 1:].tolist()
    assert inputs.dtype == targets.dtype == torch.int64


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_shares_are_the_rows_of_the_whole_batch_each_once(count: int) -> None:
    ids = np.arange(100)
    inputs, targets = ParallelStreams(ids, 7).segment(2, 5, CPU)
    shares = [TrainingRanks(rank, count).partition(7) for rank in range(count)]
    parts = [ParallelStreams(ids, 7, share).segment(2, 5, CPU) for share in shares]
    assert torch.equal(torch.cat([x for x, _ in parts]), inputs)
    assert torch.equal(torch.cat([y for _, y in parts]), targets)
    assert sum(share.weight for share in shares) == pytest.approx(1)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_ids_may_be_a_memory_map_of_a_small_unsigned_type(tmp_path: Path) -> None:
    path = tmp_path / "ids.bin"
    np.array([0, 33_277, 65_535, 7], dtype=np.uint16).tofile(path)
    inputs, targets = ParallelStreams(np.memmap(path, dtype=np.uint16, mode="r"), 1).segment(
        0, 9, CPU
    )
    assert inputs.tolist() == [[0, 33_277, 65_535]]
    assert targets.tolist() == [[33_277, 65_535, 7]]
