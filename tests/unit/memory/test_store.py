from __future__ import annotations

import copy
import errno
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory import FlatMemory
from hebblm.memory.store import EntryStore, GrowingArray, MappedArray, RowArray, squared_norms


@pytest.mark.parametrize("kind", [GrowingArray, MappedArray])
@given(
    operations=st.lists(
        st.tuples(st.sampled_from(["append", "truncate"]), st.integers(0, 9)), max_size=12
    )
)
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


@pytest.mark.parametrize("kind", [GrowingArray, MappedArray])
@given(
    operations=st.lists(
        st.tuples(
            st.sampled_from(["append", "truncate", "copy"]), st.integers(0, 9), st.integers(0, 3)
        ),
        max_size=20,
    )
)
def test_no_copy_of_an_array_sees_what_others_do(
    kind: type[GrowingArray] | type[MappedArray], operations: list[tuple[str, int, int]]
) -> None:
    arrays: list[tuple[RowArray, list[float]]] = [(kind(torch.empty(0)), [])]
    for step, (operation, size, number) in enumerate(operations):
        array, expected = arrays[number % len(arrays)]
        if operation == "append":
            rows = torch.arange(size) + 100.0 * step
            array.append(rows)
            expected += rows.tolist()
        elif operation == "truncate":
            array.truncate(size)
            del expected[size:]
        else:
            arrays.append((copy.deepcopy(array), [*expected]))
        for one, rows_of_one in arrays:
            assert one.view().tolist() == rows_of_one


def test_a_copy_of_rows_in_memory_shares_them() -> None:
    array = GrowingArray(torch.zeros(5, 2))
    assert copy.deepcopy(array).view().data_ptr() == array.view().data_ptr()


def test_what_was_written_into_a_mapped_array_stays_where_rows_behind_it_go(tmp_path: Path) -> None:
    (tmp_path / "rows.bin").write_bytes(torch.arange(6.0).numpy().tobytes())
    array = MappedArray.open(tmp_path / "rows.bin", torch.float32, (6,))
    array.view().add_(1)
    array.truncate(6)
    array.truncate(4)
    assert array.view().tolist() == [1, 2, 3, 4]
    assert (tmp_path / "rows.bin").read_bytes() == torch.arange(6.0).numpy().tobytes()


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
def test_keys_that_cannot_be_compared_are_refused(
    keys: Tensor, dtype: torch.dtype, match: str
) -> None:
    store = EntryStore(1, dtype=dtype)
    with pytest.raises(UserError, match=match):
        store.append(keys, torch.zeros(1, dtype=torch.int64))
    assert len(store) == 0


@pytest.mark.parametrize(
    ("keys", "values", "match"),
    [
        (
            torch.ones(1, 2),
            torch.tensor([1.5]),
            r"labels \[1\.5\] of a memory must be whole numbers",
        ),
        (torch.ones(1, 2), torch.tensor([-1]), r"labels \[-1\]"),
        (torch.ones(1, 2), np.array([1]), "values of type ndarray are not a tensor"),
        (
            np.ones((1, 2)),
            torch.tensor([1]),
            "keys of type ndarray are not a tensor; give torch.as_tensor",
        ),
    ],
)
def test_what_are_no_entries_is_refused(keys: Any, values: Any, match: str) -> None:
    memory = FlatMemory(2)
    with pytest.raises(UserError, match=match):
        memory.add(keys, values)
    with pytest.raises(UserError, match="queries of type ndarray are not a tensor"):
        memory.search(np.ones((1, 2)), 1)  # type: ignore[arg-type]
    assert repr(memory) == "FlatMemory(0 entries of width 2)"


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))]
)
def test_a_copy_of_a_memory_on_disk_has_a_file_of_its_own(
    copied: Callable[[FlatMemory], FlatMemory],
) -> None:
    memory = FlatMemory(2, spill_bytes=10)
    memory.add(torch.ones(9, 2), torch.arange(9))
    other = copied(memory)
    for number, each in enumerate((memory, other)):
        each.add(torch.zeros(1, 2), torch.tensor([number]))
    assert [each.entries().values.tolist() for each in (memory, other)] == [
        [*range(9), 0],
        [*range(9), 1],
    ]


def test_keys_and_labels_stay_side_by_side_where_an_entry_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise UserError("no space left")

    store = EntryStore(2)
    store.append(torch.ones(1, 2), torch.tensor([1]))
    with monkeypatch.context() as broken:
        broken.setattr(store._norms, "append", full)
        with pytest.raises(UserError, match="no space"):
            store.append(torch.ones(1, 2), torch.tensor([2]))
    store.append(torch.zeros(1, 2), torch.tensor([3]))
    entries = store.entries()
    assert (entries.keys.tolist(), entries.values.tolist()) == ([[1, 1], [0, 0]], [1, 3])


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
    copied = store.copy(2)
    assert copied.entries().values.tolist() == [2, 3]
    assert copied.entries().log_normalizers is None
    logs = copied.entries(latest=1).log_normalizers
    assert logs is not None
    assert logs.tolist() == [0.5]
    copied.entries().keys[0] = 9
    assert store.entries().keys[1] == 2
