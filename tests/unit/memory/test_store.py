from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory.arrays import GrowingArray, MappedArray, RowArray
from hebblm.memory.store import EntryStore, squared_norms


@pytest.mark.parametrize("kind", [GrowingArray, MappedArray])
@given(operations=st.lists(st.tuples(st.sampled_from(["append", "truncate"]), st.integers(0, 9)), max_size=12))
def test_arrays_behave_like_a_list(
    kind: type[GrowingArray] | type[MappedArray], operations: list[tuple[str, int]]
) -> None:
    array: RowArray = kind(torch.empty(0, 2))
    expected: list[list[float]] = []
    for step, (operation, size) in enumerate(operations):
        if operation == "append":
            rows = torch.arange(2 * size).view(size, 2) + 100.0 * step
            array.append(rows)
            expected += rows.tolist()
        else:
            array.truncate(size)
            del expected[size:]
        assert array.view().tolist() == expected


def test_growth_is_amortised() -> None:
    array = GrowingArray(torch.empty(0, 3))
    places = set()
    for _ in range(1000):
        array.append(torch.zeros(1, 3))
        places.add(array.view().data_ptr())
    assert len(places) <= 12


def test_growing_does_not_write_to_the_initial_rows() -> None:
    initial = torch.zeros(3, 2)
    array = GrowingArray(initial)
    array.append(torch.ones(2, 2))
    array.view()[0] = 7
    assert initial.sum() == 0


def test_large_keys_move_to_a_mapped_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = EntryStore(4, spill_bytes=1000)
    keys = torch.arange(400.0).view(100, 4)
    for rows in torch.split(keys, 10):
        store.append(rows, torch.zeros(10, dtype=torch.int64))
    assert torch.equal(store.entries().keys, keys)
    assert isinstance(store._keys, MappedArray)
    assert not list(tmp_path.iterdir())  # the file has no name and vanishes with the process


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    array = MappedArray(torch.zeros(2, 2))

    class Full:
        def seek(self, position: int) -> None:
            assert position == 16

        def write(self, data: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(array, "_file", Full())
    with pytest.raises(UserError, match="No space left on device; point TMPDIR"):
        array.append(torch.zeros(1, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_norms_are_of_the_keys_as_stored(dtype: torch.dtype) -> None:
    store = EntryStore(5, dtype=dtype)
    store.append(torch.full((3, 5), 0.1), torch.arange(3))
    entries = store.entries()
    assert entries.keys.dtype == dtype
    expected = (entries.keys.double() ** 2).sum(dim=1)
    torch.testing.assert_close(entries.norms.double(), expected, rtol=1e-6, atol=0)
    assert torch.equal(squared_norms(entries.keys), entries.norms)


@pytest.mark.parametrize(
    ("keys", "dtype", "match"),
    [
        (torch.tensor([[float("nan")]]), torch.float32, "not finite as float32"),
        (torch.tensor([[float("inf")]]), torch.float32, "not finite as float32"),
        (torch.tensor([[1e5]]), torch.float16, "not finite as float16; use memory.dtype=float32"),
        (torch.tensor([[3.4e38]]), torch.bfloat16, "not finite as bfloat16"),
    ],
)
def test_keys_that_cannot_be_compared_are_refused(keys: Tensor, dtype: torch.dtype, match: str) -> None:
    store = EntryStore(1, dtype=dtype)
    with pytest.raises(UserError, match=match):
        store.append(keys, torch.zeros(1, dtype=torch.int64))
    assert len(store) == 0


def test_wrong_shapes_are_refused() -> None:
    store = EntryStore(3)
    with pytest.raises(ValueError, match="width 3"):
        store.append(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="values of shape"):
        store.append(torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="log_normalizers of shape"):
        store.append(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), torch.zeros(1))


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(UserError, match="int8; use float32, float16 or bfloat16"):
        EntryStore(3, dtype=torch.int8)


def test_a_copy_keeps_the_latest_and_which_of_them_lack_a_normaliser() -> None:
    store = EntryStore(1)
    store.append(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 2]))
    store.append(torch.tensor([[3.0]]), torch.tensor([3]), torch.tensor([0.5]))
    copy = store.copy(2)
    assert copy.entries().values.tolist() == [2, 3]
    assert copy.entries().log_normalizers is None
    logs = copy.entries(latest=1).log_normalizers
    assert logs is not None
    assert logs.tolist() == [0.5]
    copy.entries().keys[0] = 9
    assert store.entries().keys[1] == 2
