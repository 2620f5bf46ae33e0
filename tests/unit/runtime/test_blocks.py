"""Blocks of queries that torch's threads work on side by side."""

from __future__ import annotations

import threading

import pytest
import torch

from hebblm.adapt import functional
from hebblm.adapt.solvers import newton
from hebblm.runtime import blocks
from hebblm.runtime.blocks import in_parallel
from tests.parity.problems import language_like

CPU = torch.device("cpu")

pytestmark = pytest.mark.usefixtures("two_threads")


def test_parts_are_worked_on_at_once_each_by_a_thread_of_one() -> None:
    both = threading.Barrier(2, timeout=30)
    found: list[tuple[int, int, bool]] = []

    def work(part: int) -> None:
        both.wait()
        inner: list[int] = []
        in_parallel(inner.append, [0, 1], CPU)  # a part may have parts of its own
        assert inner == [0, 1]
        found.append((part, torch.get_num_threads(), torch.is_grad_enabled()))

    in_parallel(work, [1, 2], CPU)
    assert sorted(found) == [(1, 1, False), (2, 1, False)]
    assert torch.get_num_threads() == 2


def test_an_error_of_a_part_is_told() -> None:
    def work(part: int) -> None:
        if part == 2:
            raise ValueError("part 2")

    with pytest.raises(ValueError, match="part 2"):
        in_parallel(work, [1, 2, 3], CPU)


@pytest.mark.parametrize("method", ["fast", "exact"])
def test_the_number_of_threads_changes_no_number(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newton, "CLASSES", 256)
    monkeypatch.setattr(blocks, "CPU_BYTES", 1 << 20)
    hidden, neighbors, head = language_like(33, n=24, k=60, d=40, v=1500)
    base = head.logits(hidden)
    options = {
        "optimizer": "newton",
        "lr": 1.0,
        "steps": 3,
        "l2_to_base": 0.005,
        "eps": 3e-3,
        "scale": "relative",
    }
    found = functional.mbpa_delta(hidden, neighbors, head, base, solver=method, **options)
    torch.set_num_threads(1)
    alone = functional.mbpa_delta(hidden, neighbors, head, base, solver=method, **options)
    tolerance = 0.0 if method == "fast" else 1e-9  # no bit of the fast form
    torch.testing.assert_close(found.delta, alone.delta, rtol=tolerance, atol=tolerance)
    assert torch.equal(found.loss_increased, alone.loss_increased)
