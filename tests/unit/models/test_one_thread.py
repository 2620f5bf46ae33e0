from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from hebblm.models.awd import SMALL, one_thread_if_small

from ...support import toy


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("rows", "threads"), [(SMALL, 1), (SMALL + 1, 2)])
def test_only_small_layers_get_one_thread(rows: int, threads: int) -> None:
    with one_thread_if_small(nn.Linear(1, rows), 1):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_an_error_gives_the_threads_back() -> None:
    with pytest.raises(KeyError), one_thread_if_small(nn.Linear(1, 1), 1):
        raise KeyError
    assert torch.get_num_threads() == 2


def test_a_small_base_reads_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    base, seen = toy.base_of(toy.tiny_model()), []
    read = base.model.forward
    monkeypatch.setattr(base.model, "forward", lambda *a: (seen.append(torch.get_num_threads()), read(*a))[1])
    found: Tensor = base.read(torch.tensor([1, 2, 3]))
    assert seen == [1]
    assert torch.get_num_threads() == 2
    assert found.shape == (3, toy.DIM)
