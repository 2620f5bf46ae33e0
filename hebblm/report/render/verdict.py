"""The short answer of a result in words: which method is best, by how much, or why that is
undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hebblm.report.result.methods import BASE, name_of, without_base
from hebblm.report.result.numbers import Interval, display, perplexity
from hebblm.report.result.parts import LEAST_BLOCKS, Gain
from hebblm.report.result.schema import StoredResult
from hebblm.report.tables.overall import by_loss, gain_of
from hebblm.report.tables.units import unit
from hebblm.runtime.wording import worded


def verdict(result: StoredResult) -> str:
    """Return which method is best, by how much, or why that is undecided; at most three
    sentences.
    """
    finite = [name for name in by_loss(result) if math.isfinite(result.methods[name].loss)]
    if not finite:
        return "No method has a finite loss: each gave some token no probability."
    others = without_base(finite)
    where = ""
    if not result.scenario.extra.get("whole_split", True):
        where = f" on these {result.scored}"
    if not others or BASE not in finite:
        best = finite[0]
        number = _perplexity(result, best)
        return f"{_name(best)}: perplexity {number}{where}; {_alone(result, best)}."
    best = others[0]
    gain = gain_of(result, best)
    assert gain is not None  # both losses are finite
    measured = _measured(result, best, gain)
    if not gain.certain:
        return _undecided(result, others, gain, measured)
    if _value(gain) < 0:
        closest = f"The closest is {_name(best)}: {measured}."
        return f"No method gains over the base{where}. {closest}"
    return f"Lowest loss{where}: {_name(best)}, {measured}.{_next(result, others)}"


def _alone(result: StoredResult, best: str) -> str:
    """Return why there is nothing to compare the best method with."""
    if best == BASE and len(result.methods) > 1:
        return "no other method has a finite loss"
    if best == BASE:
        return "there is no method to compare it with"
    if BASE in result.methods:
        return "the loss of the base is infinite"
    return "the run has no base to compare with"


def _undecided(result: StoredResult, others: Sequence[str], gain: Gain, measured: str) -> str:
    """Return that the best method's interval holds 0 or is unknown, and which other method is
    certainly better.
    """
    name = _name(others[0])
    if gain.low is None:
        known = f"{name} has the lowest loss"
        if _value(gain) < 0:
            known = f"no method is below the base, {name} the closest"
        if not result.methods[others[0]].gains:
            return f"The result holds no interval; {known}: {measured}."
        least = LEAST_BLOCKS * result.bootstrap.block
        remedy = f"read a text of {least:,} {unit(result)}s or more"
        if not result.scenario.extra.get("whole_split", True):
            remedy = worded(f"raise max_tokens to {least}")
        few = f"{result.scored} are too few to tell who is best"
        return f"{few}; {remedy}. So far {known}: {measured}."
    text = f"{result.scored} cannot tell whether {name} is better than the base: {measured}."
    for other in others[1:]:
        other_gain = gain_of(result, other)
        if other_gain is not None and other_gain.certain and _value(other_gain) > 0:
            return f"{text} {_name(other)} is better for certain."
    return text


def _next(result: StoredResult, others: Sequence[str]) -> str:
    """Return which method is next, and whether the best one is certainly ahead of it."""
    if len(others) < 2:
        return ""
    best, following = others[:2]
    paired = result.extra.get("lead") or {}
    lead = Interval(paired.get("gain"), paired.get("low"), paired.get("high"))
    known = (paired.get("best"), paired.get("next")) == (best, following)
    if not known or lead.low is None or lead.high is None:
        return f" Next: {_name(following)}; no interval between the two is known."
    if lead.certain:
        return f" Next: {_name(following).rstrip('.')}."
    return f" Next: {_name(following)}, too close to call."


def _measured(result: StoredResult, method: str, gain: Gain) -> str:
    """Return a method's perplexity and, where the interval of its gain is known, the gain in nats
    with it.
    """
    text = f"perplexity {_perplexity(result, method)} instead of {_perplexity(result, BASE)}"
    bits = result.methods[method].bits_per_byte
    of_base = result.methods[BASE].bits_per_byte
    if result.of_pieces and bits is not None and of_base is not None:
        text += f", {bits:.3f} bits a byte instead of {of_base:.3f}"
    if gain.low is None or gain.high is None:
        return text
    if _value(gain) >= 0:
        sign, low, high = "below", gain.low, gain.high
    else:
        sign, low, high = "above", -gain.high, -gain.low
    nats = f"{abs(_value(gain)):.3f} nats a {unit(result)} {sign} the base"
    level = f"{100 * result.bootstrap.level:g}"
    return f"{text}, {nats} ({level} % interval {low:.3f} to {high:.3f})"


def _value(gain: Gain) -> float:
    assert gain.gain is not None
    return gain.gain


def _name(method: str) -> str:
    return name_of(method).removesuffix(" (ours)")


def _perplexity(result: StoredResult, method: str) -> str:
    return display(perplexity(result.methods[method].loss), "perplexity")
