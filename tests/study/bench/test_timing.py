from __future__ import annotations

import time

import pytest
import torch

from recipes.bench.timing import Spread, Timing, Turn, interleave, stopwatch


def test_turns_are_taken_in_order_after_one_round_that_does_not_count() -> None:
    order: list[str] = []
    ticks: list[int] = []

    def turn(name: str, tokens: int) -> Turn:
        def once() -> tuple[float, int]:
            order.append(name)
            return float(len(order)), tokens

        return once

    found = interleave(
        {"slow": turn("slow", 2), "fast": turn("fast", 7)}, 5, lambda: ticks.append(len(order))
    )
    assert order == ["slow", "fast"] * 6
    assert ticks == [2, 4, 6, 8, 10, 12]
    assert found == {
        "slow": Timing((3.0, 5.0, 7.0, 9.0, 11.0), (2,) * 5),
        "fast": Timing((4.0, 6.0, 8.0, 10.0, 12.0), (7,) * 5),
    }


def test_costs_are_medians_a_token() -> None:
    timing = Timing((0.4, 0.1, 0.2, 0.3, 9.0), (10, 10, 10, 10, 10))
    assert timing.milliseconds() == pytest.approx(Spread(30.0, 10.0, 900.0))
    uneven = Timing((1.0, 1.0, 1.0), (10, 20, 40))
    assert uneven.milliseconds() == pytest.approx(Spread(50.0, 25.0, 100.0))


def test_ratios_are_taken_round_by_round() -> None:
    slow, fast = Timing((1.0, 8.0, 3.0), (1, 1, 1)), Timing((1.0, 2.0, 1.0), (10, 10, 10))
    assert slow.times(fast) == Spread(30.0, 10.0, 40.0)
    assert fast.times(slow).median == pytest.approx(1 / 30)


def test_what_comes_before_a_call_is_done_each_time_and_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, order = [0.0], []
    monkeypatch.setattr(time, "process_time", lambda: clock[0])

    def spend(name: str, seconds: float) -> None:
        order.append(name)
        clock[0] += seconds

    turn = stopwatch(
        lambda: spend("call", 2.0), 3, torch.device("cpu"), before=lambda: spend("before", 5.0)
    )
    assert [turn(), turn()] == [(2.0, 3), (2.0, 3)]
    assert order == ["before", "call"] * 2
