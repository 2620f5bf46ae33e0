from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hebblm.evaluation.defaults import PAPER
from hebblm.report.render.result import Result
from hebblm.report.result.parts import FrequencyBucket
from recipes.study.book.claims import Claim
from recipes.study.book.reasons import UNEXPLAINED, likely_reason
from recipes.study.book.standing import counted_runs, settings_of

from .samples import across, within

HEBB = Claim("Hebb better than MbPA", "run", 0.005, -0.05, None, "hebb", "mbpa")


def plain() -> Result:
    """Return a result within Penn Treebank about which no reason is known: the base is the
    paper's.
    """
    result = within(lstm=math.log(58.53))
    methods = {
        name: replace(item, gains=(), stabilized_queries=0, hyperparameters={}, frequency=())
        for name, item in result.methods.items()
    }
    return replace(result, methods=methods)


def changed(result: Result, method: str, **values: Any) -> Result:
    return replace(
        result, methods={**result.methods, method: replace(result.methods[method], **values)}
    )


def buckets(losses: Mapping[str, tuple[int, float]]) -> tuple[FrequencyBucket, ...]:
    return tuple(FrequencyBucket.from_nll(name, *values) for name, values in losses.items())


def test_where_nothing_is_known_it_is_said() -> None:
    assert likely_reason(HEBB, plain()) == UNEXPLAINED
    assert likely_reason(replace(HEBB, interval=(0.1, 0.2)), plain()) == ""


def test_the_papers_own_numbers_contradict_each_other() -> None:
    counts = buckets(
        {
            "<50": (10_000, 8.0),
            "50-100": (6_000, 6.0),
            "100-500": (16_000, 5.0),
            ">500": (50_430, 3.0),
        }
    )
    result = changed(plain(), "hebb", frequency=counts)
    printed = (2840.84, 655.86, 177.61, 13.13)
    total = math.exp(
        sum(b.tokens * math.log(p) for b, p in zip(counts, printed, strict=True)) / 82_430
    )
    assert f"make {total:.2f} for Hebb, not the 56.39" in likely_reason(HEBB, result)
    assert "make" not in likely_reason(replace(HEBB, paper=9.0), result), (
        "the margin is larger than that"
    )


def test_many_queries_diverged() -> None:
    assert "16.8 % of the queries diverged" in likely_reason(
        HEBB, changed(plain(), "mbpa", stabilized_queries=13_848)
    )
    assert likely_reason(HEBB, changed(plain(), "mbpa", stabilized_queries=400)) == UNEXPLAINED


def test_a_value_at_the_end_of_its_grid_and_another_reading() -> None:
    values = {
        "mbpa": {"lr": 10.0, "steps": 5, "kernel_weight": "raw"},
        "hebb": {"beta": 0.5, "kernel_weight": "max"},
    }
    found = likely_reason(HEBB, changed(plain(), "hebb", hyperparameters=values))
    assert (
        found == "mbpa.lr = 10, the largest tried; hebb.kernel_weight = max, where raw is printed"
    )
    values["hebb"] |= {"beta": 0.0, "kernel_weight": "raw"}
    values["mbpa"] |= {"lr": 2.0}
    found = likely_reason(HEBB, changed(plain(), "hebb", hyperparameters=values))
    assert found == "hebb.beta = 0, the least tried"


def test_where_a_margin_is_lost() -> None:
    result = changed(
        plain(), "hebb", frequency=buckets({"rare": (40_000, 5.0), "often": (42_430, 2.1)})
    )
    result = changed(
        result, "mbpa", frequency=buckets({"rare": (40_000, 5.1), "often": (42_430, 2.0)})
    )
    assert likely_reason(HEBB, result) == (
        f"of the margin, {-0.1 * 42_430 / 82_430:+.3f} is on words with a training count often"
    )


def test_rare_words_that_the_base_knows_less_well() -> None:
    counts = buckets({"<50": (10_000, math.log(9_000)), ">500": (72_430, 3.0)})
    where = replace(HEBB, part="where")
    result = changed(plain(), "mbpa", frequency=counts)
    assert (
        "MbPA's perplexity at a training count <50 is 9,000.0, the paper's 3,061.8"
        in likely_reason(where, result)
    )


@pytest.mark.parametrize(
    ("perplexity", "words"),
    [
        (117.06, "the base's perplexity is 2.00 times the paper's"),
        (29.265, "the base is 0.69 nats better"),
    ],
)
def test_another_base(perplexity: float, words: str) -> None:
    assert words in likely_reason(HEBB, changed(plain(), "lstm", nll=math.log(perplexity)))


def test_across_domains() -> None:
    result = across()
    result = replace(result, model={"update": {"lr": 10.0}})
    scenario = replace(result.scenario, oov_tokens=6_973)
    found = likely_reason(HEBB, replace(result, scenario=scenario))
    assert "is on new words and" in found
    assert "the base learns from the stream at a rate of 10, the paper's at 0.0001" in found
    assert "8.46 % of the tokens are new words, in the paper 3.77 %" in found
    oov = likely_reason(replace(HEBB, part="oov"), changed(result, "lstm", oov_nll=8.66))
    assert "the base is 4.00 nats better than the paper's: less is left to gain" in oov


def with_values(result: Result, values: Mapping[str, Any]) -> Result:
    named: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        named.setdefault(section, {})[key] = value
    return changed(result, "mixture+hebb", hyperparameters=named)


def test_one_run_of_a_scenario_counts() -> None:
    tuned = with_values(plain(), {"mbpa.lr": 5.0, "mixture.theta": 1.0})
    runs = {
        "every-1": replace(tuned, scenario=replace(tuned.scenario, extra={"update_every": 1})),
        "paper": with_values(plain(), PAPER["ptb"]),
        "part": replace(tuned, scenario=replace(tuned.scenario, tokens=10_000)),
        "few": replace(
            tuned, methods={"lstm": tuned.methods["lstm"], "mbpa": tuned.methods["mbpa"]}
        ),
        "seed-7": replace(tuned, provenance={"seed": 7}),
        "whole": tuned,
        "raw": across(),
        "lower": replace(across(), scenario=replace(across().scenario, oov_tokens=3_200)),
        "own": replace(tuned, scenario=replace(tuned.scenario, source="novel", target="novel")),
    }
    assert list(counted_runs(runs)) == ["whole", "lower"]
    assert list(counted_runs({name: runs[name] for name in ("paper", "every-1")})) == ["every-1"]
    assert list(counted_runs({"paper": runs["paper"]})) == ["paper"]


def test_settings_have_their_dotted_names() -> None:
    result = changed(plain(), "mixture", hyperparameters={"theta": 0.4, "gamma": 0.1})
    assert settings_of(result, "mixture") == {"mixture.theta": 0.4, "mixture.gamma": 0.1}
    result = with_values(result, {"mixture.theta": 1.0, "mixture_hebb.weight": 0.5})
    assert settings_of(result, "mixture+hebb") == {"mixture.theta": 1.0, "mixture_hebb.weight": 0.5}
