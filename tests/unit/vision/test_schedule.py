from __future__ import annotations

import pytest

from hebblm.vision.pretraining import rate_at
from hebblm.vision.scales import CLASS_SCALES as SCALES
from hebblm.vision.settings import PretrainingSettings


def test_the_papers_phases() -> None:
    settings = SCALES["paper"].pretraining
    rates = [rate_at(settings, epoch, 7, 10) for epoch in (0, 149, 150, 249, 250, 349)]
    assert rates == [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    with pytest.raises(ValueError, match="beyond the last phase"):
        rate_at(settings, 350, 0, 10)


def test_one_cycle_rises_for_a_quarter_and_falls_to_nothing() -> None:
    settings = PretrainingSettings(epochs=(4,), lr=(0.2,), schedule="onecycle")
    rates = [rate_at(settings, epoch, step, 10) for epoch in range(4) for step in range(10)]
    assert rates[0] == pytest.approx(0.008)
    assert max(rates) == rates[10] == pytest.approx(0.2)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[25] == pytest.approx(0.1)
    assert 0 < rates[-1] < 1e-3
