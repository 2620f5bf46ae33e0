from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from hebblm.report.result import parts as gains_module
from hebblm.report.result.parts import (
    LEAST_BLOCKS,
    OOV_BY_OCCURRENCE,
    Bootstrap,
    bootstrap_gains,
    occurrences_so_far,
    paired_gains,
    stream_parts,
)

from .samples import sample_result

CONFIG = Bootstrap(block=20, resamples=1000, seed=3)


def losses(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return losses whose differences to the base depend on their neighbours in the stream."""
    rng = np.random.default_rng(seed)
    base = rng.exponential(4, count)
    drift = np.repeat(rng.normal(0, 1, count // 10 + 1), 10)[:count]
    return {"lstm": base, "hebb": base - 0.1 - drift, "mbpa": base + 0.05 * rng.normal(size=count)}


def test_intervals_equal_those_of_streams_that_are_written_out() -> None:
    nll = losses(470)
    parts = {
        "All": np.ones(470, bool),
        "odd": np.arange(470) % 3 == 1,
        "late": np.arange(470) > 200,
    }
    found = bootstrap_gains(nll, parts, CONFIG)
    assert set(found) == {"hebb", "mbpa"}
    # 470 tokens are 24 blocks
    draws = np.random.default_rng(3).multinomial(24, np.full(24, 1 / 24), 1000)
    for name, items in found.items():
        for gain, mask in zip(items, parts.values(), strict=True):
            means = []
            for times in draws:
                tokens = [
                    t
                    for b, n in enumerate(times)
                    for t in list(range(20 * b, min(20 * b + 20, 470))) * n
                ]
                chosen = [t for t in tokens if mask[t]]
                means.append(np.mean(nll["lstm"][chosen] - nll[name][chosen]))
            low, high = np.quantile(means, (0.025, 0.975))
            assert gain.tokens == mask.sum()
            assert gain.gain == pytest.approx(float((nll["lstm"] - nll[name])[mask].mean()))
            assert (gain.low, gain.high) == (pytest.approx(low), pytest.approx(high))


def test_blocks_widen_the_interval_of_losses_that_depend_on_each_other() -> None:
    nll = losses(6000)
    parts = {"All": np.ones(6000, bool)}
    widths = []
    for block in (1, 50):
        (gain,) = bootstrap_gains(nll, parts, Bootstrap(block=block, resamples=1000))["hebb"]
        widths.append((gain.high or 0.0) - (gain.low or 0.0))
    plain = 2 * 1.96 * float(np.std(nll["lstm"] - nll["hebb"])) / 6000**0.5
    assert widths[0] == pytest.approx(plain, rel=0.15)
    assert widths[1] > 2 * widths[0]


def test_draws_in_parts_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nll, parts = losses(400), {"All": np.ones(400, bool)}
    whole = bootstrap_gains(nll, parts, CONFIG)
    monkeypatch.setattr(gains_module, "_CELLS", 70)
    for mine, theirs in zip(
        bootstrap_gains(nll, parts, CONFIG)["hebb"], whole["hebb"], strict=True
    ):
        assert (mine.low, mine.high) == (pytest.approx(theirs.low), pytest.approx(theirs.high))
    assert bootstrap_gains(nll, parts, CONFIG) == bootstrap_gains(nll, parts, CONFIG)


def test_small_empty_and_infinite_parts_claim_nothing() -> None:
    nll = losses(400)
    nll["mbpa"][7] = np.inf
    here = np.arange(400)
    parts = {
        "all": here >= 0,
        "few": here < 20 * (LEAST_BLOCKS - 1),
        "none": here < 0,
        "rest": here > 7,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = bootstrap_gains(nll, parts, CONFIG)
    every, few, none, rest = found["hebb"]
    assert every.low is not None
    assert (few.low, few.high) == (None, None)
    assert few.gain is not None
    assert (none.tokens, none.gain, none.low, none.certain) == (0, None, None, False)
    assert rest.high is not None
    every, few, none, rest = found["mbpa"]
    assert (every.gain, every.low, few.gain) == (None, None, None)
    assert rest.gain is not None
    assert rest.low is not None
    assert bootstrap_gains({"hebb": nll["hebb"]}, parts, CONFIG) == {}
    assert bootstrap_gains({"lstm": nll["lstm"]}, parts, CONFIG) == {}


def test_a_gain_is_certain_where_its_interval_leaves_out_zero() -> None:
    count = 4000
    rng = np.random.default_rng(0)
    base = rng.exponential(4, count)
    nll = {
        "lstm": base,
        "mbpa": base - 1 + rng.normal(size=count),
        "hebb": base + 1 + rng.normal(size=count),
        "knn": base + rng.normal(size=count) - rng.normal(size=count).mean(),
    }
    nll["knn"] -= (nll["knn"] - base).mean()
    found = bootstrap_gains(nll, {"All": np.ones(count, bool)}, Bootstrap(block=20))
    assert [found[name][0].certain for name in ("mbpa", "hebb", "knn")] == [True, True, False]
    assert found["mbpa"][0].gain == pytest.approx(1, abs=0.1)


def test_the_parts_of_a_stream_cover_it_twice_over() -> None:
    rng = np.random.default_rng(1)
    ids = np.minimum(rng.geometric(0.1, 500), 40)
    counts = np.where(ids > 20, 0, 900 // ids)
    oov, seen = ids > 20, occurrences_so_far(ids)
    parts = stream_parts(counts, seen, oov, (50, 100))
    assert list(parts) == ["All", "OOV", "Known", "<50", "50-100", ">100", *OOV_BY_OCCURRENCE]
    assert sum(parts[name].sum() for name in ("OOV", "Known")) == 500
    assert sum(parts[name].sum() for name in ("<50", "50-100", ">100")) == 500
    assert sum(parts[name].sum() for name in OOV_BY_OCCURRENCE) == oov.sum()
    assert list(stream_parts(counts, seen, np.zeros(500, bool), (50,))) == ["All", "<50", ">50"]
    found = bootstrap_gains(losses(500), parts, CONFIG)["hebb"]
    total = sum(
        gain.tokens * (gain.gain or 0) for gain in found if gain.part in ("<50", "50-100", ">100")
    )
    assert total / 500 == pytest.approx(found[0].gain)


def test_any_two_methods_are_compared_on_the_same_draws_and_either_way() -> None:
    nll = {**losses(470), "mixture": losses(470, 1)["hebb"]}
    parts = {"All": np.ones(470, bool), "odd": np.arange(470) % 3 == 1}
    paired = paired_gains(nll, parts, CONFIG)
    assert {first: list(found) for first, found in paired.items()} == {
        "hebb": ["mbpa", "mixture"],
        "mbpa": ["mixture"],
    }
    expected = bootstrap_gains({"lstm": nll["mbpa"], "mixture": nll["mixture"]}, parts, CONFIG)[
        "mixture"
    ][1]
    result = replace(sample_result(), extra={"paired": paired})
    assert result.gain("mixture", "mbpa", "odd") == expected
    other = result.gain("mbpa", "mixture", "odd")
    assert other is not None
    assert (other.gain, other.low, other.high) == (-expected.gain, -expected.high, -expected.low)
    assert result.gain("mbpa", "mixture", "<50") is None
