"""Circumstances that the outcome of a claim may hang on, each computed from the numbers of the
run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hebblm.adapt.grid import Grid
from hebblm.evaluation.defaults import paper_values
from hebblm.report.render.result import Result
from hebblm.report.result.methods import BASE, name_of
from hebblm.report.result.numbers import display
from hebblm.report.result.parts import ALL, FrequencyBucket, recombine
from recipes.study import paper
from recipes.study.book.claims import Claim
from recipes.study.book.standing import settings_of

UNEXPLAINED = "unexplained"
MANY = 0.05  # share of the queries from which on a diverging adaptation is a reason
APART = 1.1  # factor from which on two perplexities, rates or shares are held to be different
_GRIDS = {
    "mixture.theta": "theta",
    "mixture.gamma": "gamma",
    "mbpa.lr": "mbpa_lr",
    "hebb.beta": "beta",
    "hebb.eta": "eta",
    "mixture_mbpa.weight": "weight",
    "mixture_hebb.weight": "weight",
}
"""The hyper-parameters that are tuned, with their field of the grid."""
_PRINTED: dict[str, float | str] = {
    "mixture.form": "linear",
    "mixture.scale": "absolute",
    "mbpa.kernel_weight": "raw",
    "mbpa.optimizer": "sgd",
    "mbpa.weight": 1.0,
    "hebb.gate": "gated",
    "hebb.counts": "observed",
    "hebb.kernel_weight": "raw",
    "hebb.scale": "absolute",
}
"""The readings, with the one that is nearest to what the paper prints."""


def likely_reason(claim: Claim, result: Result) -> str:
    """Return possible reasons for the outcome of a claim, or that no reason is known."""
    return "; ".join(
        found for predictor in _RULES if (found := predictor(claim, result)) is not None
    ) or ("" if claim.outcome == "reproduced" else UNEXPLAINED)


def _does_not_recombine(claim: Claim, result: Result) -> str | None:
    """The paper's own numbers contradict each other by more than the margin."""
    printed = paper.published(result.scenario)
    if printed is None or result.scenario.tokens != printed.tokens:
        return None
    for method in (claim.better, claim.worse):
        theirs, item = printed.frequency.get(method), result.methods[method]
        if theirs is None or not {bucket.bucket for bucket in item.frequency} <= theirs.keys():
            continue
        total = recombine(
            [
                FrequencyBucket.from_nll(b.bucket, b.tokens, math.log(theirs[b.bucket]))
                for b in item.frequency
            ]
        )
        if total is None or (
            claim.part == "all" and abs(total - math.log(theirs[ALL])) <= (claim.paper or 0.0)
        ):
            continue
        if abs(total - math.log(theirs[ALL])) > math.log1p(1e-3):
            return (
                f"the paper's numbers by training count make {math.exp(total):.2f} for "
                f"{name_of(method)}, "
                f"not the {theirs[ALL]:.2f} that it prints"
            )
    return None


def _diverges(claim: Claim, result: Result) -> str | None:
    """Many queries diverged at the tuned rate."""
    counts = [
        result.methods[method].stabilized_queries or 0 for method in (claim.better, claim.worse)
    ]
    share = max(counts) / result.scenario.tokens
    if share < MANY:
        return None
    return (
        f"{100 * share:.1f} % of the queries diverged at the tuned rate and were run at a stable "
        "one"
    )


def _at_the_end_of_its_grid(claim: Claim, result: Result) -> str | None:
    """A better value may lie beyond what was tried."""
    found = []
    for name, value in _settings(claim, result).items():
        points = getattr(Grid(), _GRIDS[name]) if name in _GRIDS else ()
        tried = [point for point in points if not isinstance(point, str)]
        if tried and value in (min(tried), max(tried)):
            found.append(
                f"{name} = {value:g}, the {'least' if value == min(tried) else 'largest'} tried"
            )
    return ", ".join(found) or None


def _another_reading(claim: Claim, result: Result) -> str | None:
    """Tuning chose another reading than the printed one."""
    found = [
        f"{name} = {value}, where {_PRINTED[name]} is printed"
        for name, value in _settings(claim, result).items()
        if name in _PRINTED and value != _PRINTED[name]
    ]
    return ", ".join(found) or None


def _where_it_is_lost(claim: Claim, result: Result) -> str | None:
    """What the margin is made of: new and known words across domains, training counts within
    one.
    """
    if claim.part != "all" or not math.isfinite(claim.here):
        return None
    better, worse = result.methods[claim.better], result.methods[claim.worse]
    total = result.scenario.tokens
    if result.scenario.oov_tokens:
        if better.oov_nll is None or worse.oov_nll is None:
            return None
        new = (worse.oov_nll - better.oov_nll) * result.scenario.oov_tokens / total
        return (
            f"of the margin, {new:+.3f} is on new words and {claim.here - new:+.3f} on known ones"
        )
    its = {bucket.bucket: bucket.nll for bucket in worse.frequency}
    shares = {
        mine.bucket: (loss - mine.nll) * mine.tokens / total
        for mine in better.frequency
        if mine.nll is not None and (loss := its.get(mine.bucket)) is not None
    }
    if not shares:
        return None
    least = min(shares, key=shares.__getitem__)
    if shares[least] >= 0:
        return None
    return f"of the margin, {shares[least]:+.3f} is on words with a training count {least}"


def _rare_words(claim: Claim, result: Result) -> str | None:
    """The base knows rare words less well."""
    printed = paper.published(result.scenario)
    theirs = {} if printed is None else printed.frequency.get(claim.worse, {})
    if claim.part != "where" or not theirs:
        return None
    rare = result.methods[claim.worse].frequency[0]
    if (
        rare.perplexity is None
        or rare.bucket not in theirs
        or rare.perplexity < APART * theirs[rare.bucket]
    ):
        return None
    return (
        f"{name_of(claim.worse)}'s perplexity at a training count {rare.bucket} is "
        f"{display(rare.perplexity, 'perplexity')}, the paper's "
        f"{display(theirs[rare.bucket], 'perplexity')}"
    )


def _another_base(claim: Claim, result: Result) -> str | None:
    """The unadapted model is weaker, or so strong that less is left to gain."""
    printed = paper.published(result.scenario)
    ours = result.methods.get(BASE)
    if printed is None or ours is None:
        return None
    if claim.part == "oov":
        theirs, loss = printed.oov_nll.get(BASE), ours.oov_nll
    else:
        theirs, loss = printed.nll.get(BASE, math.log(printed.perplexity.get(BASE, 1.0))), ours.nll
    if theirs is None or loss is None or abs(loss - theirs) < math.log(APART):
        return None
    if loss > theirs:
        return f"the base's perplexity is {math.exp(loss - theirs):.2f} times the paper's"
    return f"the base is {theirs - loss:.2f} nats better than the paper's: less is left to gain"


def _another_rate_of_the_base(claim: Claim, result: Result) -> str | None:
    """The base itself learns faster than the paper's."""
    scenario, update = result.scenario, result.model.get("update")
    theirs = paper_values(scenario.source, scenario.target).get("base.lr")
    ours = update.get("lr") if isinstance(update, dict) else None
    if theirs is None or ours is None or ours <= APART * theirs:
        return None
    return f"the base learns from the stream at a rate of {ours:g}, the paper's at {theirs:g}"


def _another_share_of_new_words(claim: Claim, result: Result) -> str | None:
    printed, rate = paper.published(result.scenario), result.scenario.oov_rate
    if printed is None or printed.oov_rate == 0 or rate <= 0:
        return None
    theirs = printed.oov_rate
    if max(rate, theirs) < APART * min(rate, theirs):
        return None
    return f"{100 * rate:.2f} % of the tokens are new words, in the paper {100 * theirs:.2f} %"


_RULES: tuple[Callable[[Claim, Result], str | None], ...] = (
    _does_not_recombine,
    _diverges,
    _at_the_end_of_its_grid,
    _another_reading,
    _where_it_is_lost,
    _rare_words,
    _another_base,
    _another_rate_of_the_base,
    _another_share_of_new_words,
)


def _settings(claim: Claim, result: Result) -> dict[str, Any]:
    """Return the hyper-parameters that either method depends on."""
    return settings_of(result, claim.better) | settings_of(result, claim.worse)
