"""Claims of the paper about its methods next to a run: reproduced, reversed, or undecided by its
intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, get_args

from hebblm.report.render.result import Result
from hebblm.report.result.methods import BASE, name_of
from hebblm.report.result.parts import ALL, OOV
from hebblm.report.result.schema import MethodResult
from hebblm.report.tables.table import Column, Table
from recipes.study import paper

# The comparisons that the paper's text makes. Which of the two is better is read off its numbers,
# scenario by scenario.
PAIRS = (
    ("mixture", BASE),
    ("mbpa", BASE),
    ("hebb", BASE),
    ("hebb", "mbpa"),
    ("mixture", "mbpa"),
    ("mixture", "hebb"),
    ("mixture+mbpa", "mixture"),
    ("mixture+hebb", "mixture"),
    ("mixture+hebb", "mixture+mbpa"),
)
BEST = "mixture+hebb"
RARE, FREQUENT = "<50", ">500"
Part = Literal["all", "oov", "where"]
Outcome = Literal["reversed", "undecided", "reproduced"]
Interval = tuple[float, float] | None
LEAST_SHARE = 0.1  # of the paper's stream that a run must have scored to be held against the paper


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of the paper next to one run."""

    text: str  # what is claimed
    run: str  # name of the run
    # the paper's margin, above 0; None where it states an order without numbers
    paper: float | None
    here: float  # the run's margin; the order is the paper's where it is above 0
    interval: Interval = None  # both ends of an interval of that margin; None where none is known
    better: str = ""  # the method that the paper has before the other one
    worse: str = ""  # the other one
    part: Part = "all"  # what the margin is of: all tokens, new words, or where a gain comes from
    reason: str = ""  # what the outcome may hang on

    @property
    def outcome(self) -> Outcome:
        """Whether the interval leaves out 0, on the paper's side or the other; an infinite margin
        needs none.
        """
        low, high = (self.here, self.here) if math.isinf(self.here) else self.interval or (0.0, 0.0)
        return "reproduced" if low > 0 else "reversed" if high < 0 else "undecided"


def language_claims(runs: Mapping[str, Result]) -> list[Claim]:
    """Return the paper's claims next to the runs of its scenarios, margins in nats per token.

    Args:
        runs: by name; those of other scenarios, and of less than a tenth of the paper's stream, are
            left out.
    """
    return [claim for name, result in runs.items() for claim in _of_run(name, result)]


def pair_claims(
    where: str,
    run: str,
    theirs: Mapping[str, float],
    ours: Mapping[str, float],
    pairs: Iterable[tuple[str, str]],
    written: Callable[[str], str] = name_of,
    part: Part = "all",
    interval: Callable[[str, str], Interval] = lambda better, worse: None,
) -> Iterator[Claim]:
    """Yield the order of pairs of methods by a quantity that is better if it is less.

    Args:
        where: of what the quantity is, e.g. ``ptb test``.
        run: name of the run.
        theirs: by method, in the paper.
        ours: by method, in the run.
        pairs: methods; a pair that either side lacks, or that the paper has equal, is no claim.
        written: how a method's name is written.
        part: what the quantity is of.
        interval: returns that of the margin of the better over the worse.
    """
    for first, second in pairs:
        if not {first, second} <= theirs.keys() & ours.keys() or theirs[first] == theirs[second]:
            continue
        better, worse = sorted((first, second), key=theirs.__getitem__)
        text = f"{written(better)} better than {written(worse)}, {where}"
        here = _margin(ours[worse], ours[better])
        margin = theirs[worse] - theirs[better]
        yield Claim(text, run, margin, here, interval(better, worse), better, worse, part)


def claim_tables(claims: Iterable[Claim], unit: str) -> list[Table]:
    """Return claims that came out the other way round, undecided and reproduced ones, a table each;
    none is empty.
    """
    known = list(claims)
    columns = (
        Column("The paper's claim"),
        Column("Run"),
        Column("Margin", "signed", subheader="paper", decimals=3),
        Column("Margin", "signed", subheader="here", decimals=3),
        Column("Interval"),
        Column("May hang on", wide=True),
    )
    tables = []
    for outcome in get_args(Outcome):
        rows = tuple(
            (c.text, c.run, c.paper, c.here, _ends(c.interval), c.reason or None)
            for c in known
            if c.outcome == outcome
        )
        note = (
            f"{len(rows)} of {len(known)} comparisons. Margin: {unit}; below 0 the order is the "
            "reverse."
        )
        if rows:
            tables.append(
                Table.of_cells(outcome, f"{outcome.capitalize()} ({unit})", columns, rows, (note,))
            )
    return tables


def _ends(interval: Interval) -> str | None:
    return None if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"


def other_settings_tables(counted: Iterable[Claim], others: Iterable[Claim]) -> list[Table]:
    """Margins of claims that were met again under other settings, a table a group of runs; nats per
    token.
    """
    margins: dict[str, dict[str, float]] = {}
    for claim in others:
        margins.setdefault(claim.text, {})[claim.run] = claim.here
    groups: dict[str, list[Claim]] = {}
    for claim in counted:
        if claim.text in margins:
            groups.setdefault(claim.run, []).append(claim)
    tables = []
    for run, claims in groups.items():
        again = list(dict.fromkeys(name for claim in claims for name in margins[claim.text]))
        columns = [
            Column("The paper's claim"),
            Column("Margin", "signed", subheader="paper", decimals=3),
        ]
        columns += [
            Column("Margin", "signed", subheader=name, decimals=3) for name in (run, *again)
        ]
        rows = tuple(
            (
                claim.text,
                claim.paper,
                claim.here,
                *(margins[claim.text].get(name) for name in again),
            )
            for claim in claims
        )
        title = f"The same claims under other settings than those of {run} (nats per token)"
        tables.append(
            Table.of_cells("other-settings", title, tuple(columns), rows, (f"Counted is {run}.",))
        )
    return tables


def base_lines(runs: Mapping[str, Result]) -> tuple[str, ...]:
    """Return how strong the base models of some runs are compared with the paper's, a line each."""
    lines = []
    for result in runs.values():
        source, policy = result.scenario.source, result.scenario.normalization
        ours = result.model.get("valid_perplexity")
        theirs = paper.base_perplexity(source)
        if theirs is not None and isinstance(ours, float):
            lines.append(
                f"Base model of {source}, {policy}: perplexity {ours:.2f} on its validation text, "
                f"the paper's {theirs:.2f}."
            )
    return tuple(dict.fromkeys(lines))


def _of_run(name: str, result: Result) -> Iterator[Claim]:
    printed = paper.published(result.scenario)
    if printed is None or result.scenario.tokens < LEAST_SHARE * printed.tokens:
        return
    label = result.scenario.label
    ours = {method: item.nll for method, item in result.methods.items()}
    oov = {
        method: item.oov_nll for method, item in result.methods.items() if item.oov_nll is not None
    }
    theirs = printed.nll or {
        method: math.log(value) for method, value in printed.perplexity.items()
    }
    known, new = (partial(_interval, result, part) for part in (ALL, OOV))
    yield from chain(
        pair_claims(label, name, theirs, ours, PAIRS, interval=known),
        _best(label, name, theirs, ours, known),
        pair_claims(
            f"{label}, new words", name, printed.oov_nll, oov, PAIRS, part="oov", interval=new
        ),
        _best(f"{label}, new words", name, printed.oov_nll, oov, new, "oov"),
    )
    if {"mbpa", "hebb"} <= ours.keys():
        yield from _where_hebb_gains(name, result, printed)


def _interval(result: Result, part: str, better: str, worse: str) -> Interval:
    """Return the paired interval of what one method gains over another on a part of the stream."""
    gain = result.gain(better, worse, part)
    return None if gain is None or gain.low is None or gain.high is None else (gain.low, gain.high)


def _best(
    where: str,
    run: str,
    theirs: Mapping[str, float],
    ours: Mapping[str, float],
    interval: Callable[[str, str], Interval],
    part: Part = "all",
) -> Iterator[Claim]:
    """Yield that Mixture+Hebb is the best of the paper's methods; its margin is that over the best
    other one.

    Where that is one of a pair of :data:`PAIRS`, the same measurement is a claim already, and
    counts once.
    """
    if BEST not in theirs or not theirs.keys() <= ours.keys():
        return
    rivals = [
        min((method for method in theirs if method != BEST), key=losses.__getitem__)
        for losses in (theirs, ours)
    ]
    if (BEST, rivals[1]) in PAIRS:
        return
    margins = [
        _margin(losses[rival], losses[BEST])
        for losses, rival in zip((theirs, ours), rivals, strict=True)
    ]
    text = f"{name_of(BEST)} best of the paper's methods, {where}"
    yield Claim(text, run, margins[0], margins[1], interval(BEST, rivals[1]), BEST, rivals[1], part)


def _where_hebb_gains(name: str, result: Result, printed: paper.Published) -> Iterator[Claim]:
    """Yield that Hebb's gain on MbPA comes from rare words within a domain, and from new words
    across domains.
    """
    mbpa, hebb, label = result.methods["mbpa"], result.methods["hebb"], result.scenario.label
    if printed.frequency:
        pairs = (
            (printed.frequency["mbpa"], printed.frequency["hebb"]),
            (_buckets(mbpa), _buckets(hebb)),
        )
        if all({RARE, FREQUENT} <= losses.keys() for pair in pairs for losses in pair):
            text = (
                f"Hebb gains more on MbPA on rare words ({RARE}) than on frequent ones "
                f"({FREQUENT}), {label}"
            )
            theirs, ours = (
                math.log(low[RARE] / high[RARE]) - math.log(low[FREQUENT] / high[FREQUENT])
                for low, high in pairs
            )
            interval = _difference(result, RARE, FREQUENT)
            yield Claim(text, name, theirs, ours, interval, "hebb", "mbpa", "where")
    if printed.oov_nll and mbpa.oov_nll is not None and hebb.oov_nll is not None:
        on_oov = _margin(printed.oov_nll["mbpa"], printed.oov_nll["hebb"])
        theirs = on_oov - _margin(printed.nll["mbpa"], printed.nll["hebb"])
        ours = _margin(mbpa.oov_nll, hebb.oov_nll) - _margin(mbpa.nll, hebb.nll)
        text = f"Hebb gains more on MbPA on new words than on all, {label}"
        yield Claim(
            text, name, theirs, ours, _difference(result, OOV, ALL), "hebb", "mbpa", "where"
        )


def _difference(result: Result, part: str, other: str) -> Interval:
    """Return how far apart the intervals of Hebb's gain over MbPA on two parts can be: wider than a
    joint one.
    """
    first, second = (_interval(result, name, "hebb", "mbpa") for name in (part, other))
    return None if first is None or second is None else (first[0] - second[1], first[1] - second[0])


def _buckets(item: MethodResult) -> dict[str, float]:
    """Return perplexity by training count, of the ranges that have a finite one."""
    return {
        bucket.bucket: bucket.perplexity
        for bucket in item.frequency
        if bucket.perplexity is not None and math.isfinite(bucket.perplexity)
    }


def _margin(worse: float, better: float) -> float:
    """Return by how much the one lies above the other; 0 where both are infinite."""
    return 0.0 if math.isinf(worse) and math.isinf(better) else worse - better
