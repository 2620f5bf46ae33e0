"""Mixtures of methods over different bases: plain reference, causality, and who knows them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import hebblm
from hebblm.adapt.methods import EVALUATED, METHODS, check_methods, named, with_ensembled
from hebblm.errors import UserError
from hebblm.evaluation.passes import ensemble_losses, ensemble_scores
from hebblm.evaluation.scores import EvaluationScores

EVERY = 7


def losses(count: int, parts: int, seed: int = 0) -> list[np.ndarray]:
    drawn = np.random.default_rng(seed).gamma(2.0, 2.0, (parts, count)).astype(np.float32)
    return list(drawn)


def plain(parts: list[np.ndarray]) -> list[float]:
    """Return the losses token by token, the shares from all tokens of earlier intervals anew each
    time.
    """
    found: list[float] = []
    mixture_weights = [0.3 / (len(parts) - 1)] * (len(parts) - 1) + [0.7]
    told: list[list[float]] = []
    of_interval: list[list[float]] = []
    for index in range(len(parts[0])):
        if index and index % EVERY == 0:
            told += of_interval
            weights = [0.996 ** (len(told) - 1 - t) for t in range(len(told))]
            owned = [
                sum(w * each[c] for w, each in zip(weights, told, strict=True))
                for c in range(len(parts) - 1)
            ]
            mixture_weights = [
                (10 * 0.3 / len(owned) + each) / (10 + sum(weights)) for each in owned
            ]
            mixture_weights.append(1 - sum(mixture_weights))
        if index % EVERY == 0:
            of_interval = []
        given = [
            share * math.exp(-float(part[index]))
            for share, part in zip(mixture_weights, parts, strict=True)
        ]
        found.append(-math.log(sum(given)))
        of_interval.append([each / sum(given) for each in given])
    return found


@pytest.mark.parametrize("parts", [2, 3])
def test_losses_are_those_of_the_plain_mixture(parts: int) -> None:
    each = losses(40, parts)
    assert ensemble_losses(each, EVERY) == pytest.approx(plain(each), rel=1e-6)


def test_the_losses_before_a_token_and_in_its_interval_depend_on_nothing_behind_them() -> None:
    each = losses(40, 2)
    changed = [part.copy() for part in each]
    changed[0][16:] += 1
    found, other = ensemble_losses(each, EVERY), ensemble_losses(changed, EVERY)
    assert np.array_equal(found[:16], other[:16])
    only = [part.copy() for part in each]
    # the first of an interval: the next tokens of that interval have the shares they had
    only[0][14] += 1
    found_only = ensemble_losses(only, EVERY)
    assert np.array_equal(np.delete(found[:21], 14), np.delete(found_only[:21], 14))
    assert found_only[14] != found[14]
    assert found_only[21] != found[21]


def test_a_token_that_one_part_gives_nothing_is_the_others_and_one_that_none_gives_is_lost() -> (
    None
):
    first, second = losses(20, 2)
    first[3] = first[9] = second[9] = np.inf
    found = ensemble_losses([first, second], EVERY)
    assert math.isinf(found[9])
    assert np.isfinite(np.delete(found, 9)).all()
    assert found[3] == pytest.approx(second[3] - math.log(0.7))


def test_an_ensemble_takes_as_long_as_its_parts() -> None:
    first, second = losses(20, 2)
    scores = {
        "best": EvaluationScores({"best": first}),
        "dynamic+best": EvaluationScores({"dynamic+best": second}),
    }
    for name, seconds in (("best", 2.0), ("dynamic+best", 3.0)):
        scores[name].seconds[name] = seconds
    found = ensemble_scores(["best-of-both"], scores, EVERY)
    assert found.seconds["best-of-both"] == 5.0
    assert np.array_equal(found.nll["best-of-both"], ensemble_losses([first, second], EVERY))


def test_evaluations_alone_know_ensembles() -> None:
    assert with_ensembled(["lstm", "best-of-both"]) == [
        "lstm",
        "best",
        "dynamic+best",
        "best-of-both",
    ]
    assert with_ensembled(["dynamic+best", "best-of-both"]) == [
        "dynamic+best",
        "best",
        "best-of-both",
    ]
    assert named("all", EVALUATED) == [*named("all"), "best-of-both"]
    assert "best-of-both" not in METHODS
    with pytest.raises(
        UserError, match=r"best-of-both works in evaluations only; use best or dynamic\+best"
    ):
        check_methods(["best-of-both"])
    with pytest.raises(UserError, match=r"streams = 2.*best-of-both"):
        hebblm.evaluate(intra_domain="ptb", methods="lstm,best-of-both", streams=2)


def test_all_methods_of_several_streams_are_all_but_ensembles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = Path(__file__)
    settings = {"dynamic.rule": "sgd", "dynamic.lr": 0.01}
    result = hebblm.evaluate(
        "tiny-pydoc-raw", target, "all", settings=settings, streams=2, max_tokens=60
    )
    assert list(result.methods) == named("all")
    assert (
        "left out, because it mixes methods that follow a single stream: best-of-both\n"
        in capsys.readouterr().err
    )
