"""The short answer of a result: one verdict and one compact table, the best method first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from hebblm.report.buckets import ALL, PIECES
from hebblm.report.gains import LEAST_BLOCKS, Gain, leaves_out_zero
from hebblm.report.methods import BASE, name_of
from hebblm.report.numbers import display, perplexity
from hebblm.report.stored import StoredResult
from hebblm.report.table import Column, Table
from hebblm.report.tables import (
    Said,
    by_loss,
    fast_notes,
    interval_text,
    loss_columns,
    lost_notes,
    method_table,
    new_words_column,
    speed_column,
    text_columns,
    with_values,
)
from hebblm.report.units import unit
from hebblm.runtime.wording import worded

_BEST = " ◄"  # stands where a console has no bold letters


def gain_of(result: StoredResult, method: str) -> Gain | None:
    """Return a method's gain over the base on all tokens; None without the base, for it, or for an
    infinite loss.

    An older result has no intervals: its gain is the difference of the losses.
    """
    if method == BASE or BASE not in result.methods:
        return None
    part = PIECES if result.of_pieces else ALL
    if (known := result.gain(method, part=part)) is not None and known.gain is not None:
        return known
    difference = result.methods[BASE].loss - result.methods[method].loss
    return (
        Gain(part, result.scenario.tokens, difference, None, None)
        if math.isfinite(difference)
        else None
    )


def verdict(result: StoredResult) -> str:
    """Return which method is best, by how much, or why that is undecided; at most three
    sentences.
    """
    finite = [name for name in by_loss(result) if math.isfinite(result.methods[name].loss)]
    if not finite:
        return "No method has a finite loss: each gave some token no probability."
    others = [name for name in finite if name != BASE]
    if not others or BASE not in finite:
        best = finite[0]
        return (
            f"{_name(best)}: perplexity {_perplexity(result, best)}{_where(result)}; "
            f"{_alone(result, best)}."
        )
    best, gain = others[0], gain_of(result, others[0])
    assert gain is not None  # both losses are finite
    measured = _measured(result, best, gain)
    if not gain.certain:
        return _undecided(result, others, gain, measured)
    if _value(gain) < 0:
        return (
            f"No method gains over the base{_where(result)}. The closest is {_name(best)}: "
            f"{measured}."
        )
    return f"Lowest loss{_where(result)}: {_name(best)}, {measured}.{_next(result, others)}"


def headline(result: StoredResult) -> str:
    """What a page about a result is called: its text, the method with the lowest loss, and its gain
    over the base.
    """
    best = by_loss(result)[0]
    gain = gain_of(result, best)
    gained = (
        ""
        if gain is None or gain.gain is None
        else f", {display(gain.gain, 'signed', 3)} nats a {unit(result)}"
    )
    return f"{result.scenario.label}: {_name(best)}{gained}"


def headline_of_runs(results: Mapping[str, StoredResult]) -> str:
    """What a page about several runs is called; bits a byte compare between those of one text."""
    bits = {
        (item.bits_per_byte, f"{name_of(name)} in {label}")
        for label, result in results.items()
        for name, item in result.methods.items()
        if item.bits_per_byte is not None
    }
    if not bits or len({result.text for result in results.values()}) > 1:
        return f"{len(results)} runs side by side"
    least, where = min(bits)
    return f"Fewest bits a byte: {where}, {least:.3f}"


def summary_table(result: StoredResult) -> Table:
    """Return a table of every method's loss, gain over the base, loss on new words and speed, the
    best first.

    It leaves out columns without values.
    """
    items = [(name, result.methods[name]) for name in by_loss(result)]
    gains = {name: gain_of(result, name) for name, _ in items}
    new_words, loss_on_new = new_words_column(result)
    columns: list[Said] = [
        *loss_columns(result),
        (
            Column("Gain", "signed"),
            lambda name, _: None if (gain := gains[name]) is None else interval_text(gain),
        ),
        *text_columns(result),
        (replace(new_words, decimals=3), loss_on_new),
        speed_column(result),
    ]
    notes = lost_notes(result)
    if any(gains.values()):
        known = any(gain is not None and gain.low is not None for gain in gains.values())
        half = f", ± half of the {_level(result)} % interval" if known else ""
        notes.append(f"Gain: nats a {unit(result)} below the base{half}.")
    if result.of_pieces:
        notes.append("PPL: perplexity a piece; bits a byte compare between models.")
    if loss_increased := [
        f"{name_of(name)} {item.rose_queries:,}"
        for name, item in items
        if item.rose_queries is not None
    ]:
        notes += [
            f"Queries whose neighbours' loss rose: {', '.join(loss_increased)}.",
            *fast_notes(result),
        ]
    title = f"Methods on {result.scenario.label}, best first"
    table = method_table("summary", title, items, with_values(items, columns), notes)
    names = [
        (_name(name) + (_BEST if at == 0 and len(items) > 1 else ""))
        for at, (name, _) in enumerate(items)
    ]
    rows = ((name, *row[1:]) for name, row in zip(names, table.rows, strict=True))
    return replace(table, rows=tuple(rows))


def rows(result: StoredResult) -> dict[str, dict[str, float | None]]:
    """The numbers of each method, the lowest loss first, as :meth:`Result.to_pandas` describes
    them.
    """
    numbers: dict[str, dict[str, float | None]] = {}
    for name in by_loss(result):
        item, gain = result.methods[name], gain_of(result, name)
        numbers[name] = {
            "nll": item.nll,
            "perplexity": item.perplexity,
            "gain": None if gain is None else gain.gain,
            "gain_low": None if gain is None else gain.low,
            "gain_high": None if gain is None else gain.high,
            "oov_nll": item.oov_nll,
            "in_vocabulary_nll": item.in_vocabulary_nll,
            "tokens_per_second": item.tokens_per_second,
        }
    return numbers


def _alone(result: StoredResult, best: str) -> str:
    """Return why there is nothing to compare the best method with."""
    if best == BASE:
        others = len(result.methods) > 1
        return (
            "no other method has a finite loss"
            if others
            else "there is no method to compare it with"
        )
    return (
        "the loss of the base is infinite"
        if BASE in result.methods
        else "the run has no base to compare with"
    )


def _undecided(result: StoredResult, others: list[str], gain: Gain, measured: str) -> str:
    """Return that the best method's interval holds 0 or is unknown, and which other method is
    certainly better.
    """
    tokens, name = result.scored, _name(others[0])
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
        return f"{tokens} are too few to tell who is best; {remedy}. So far {known}: {measured}."
    text = f"{tokens} cannot tell whether {name} is better than the base: {measured}."
    for other in others[1:]:
        found = gain_of(result, other)
        if found and found.certain and _value(found) > 0:
            return f"{text} {_name(other)} is better for certain."
    return text


def _next(result: StoredResult, others: list[str]) -> str:
    """Return which method is next, and whether the best one is certainly ahead of it."""
    if len(others) < 2:
        return ""
    best, following = others[:2]
    paired = result.extra.get("lead") or {}
    low, high = paired.get("low"), paired.get("high")
    if (paired.get("best"), paired.get("next")) != (best, following) or low is None or high is None:
        return f" Next: {_name(following)}; no interval between the two is known."
    if leaves_out_zero(low, high):
        return f" Next: {_name(following).rstrip('.')}."
    return f" Next: {_name(following)}, too close to call."


def _measured(result: StoredResult, method: str, gain: Gain) -> str:
    """Return a method's perplexity and, where the interval of its gain is known, the gain in nats
    with it.
    """
    text = f"perplexity {_perplexity(result, method)} instead of {_perplexity(result, BASE)}"
    bits, of_base = (result.methods[name].bits_per_byte for name in (method, BASE))
    if result.of_pieces and bits is not None and of_base is not None:
        text += f", {bits:.3f} bits a byte instead of {of_base:.3f}"
    if gain.low is None or gain.high is None:
        return text
    value = _value(gain)
    sign, (low, high) = (
        ("below", (gain.low, gain.high)) if value >= 0 else ("above", (-gain.high, -gain.low))
    )
    interval = f"{_level(result)} % interval {low:.3f} to {high:.3f}"
    return f"{text}, {abs(value):.3f} nats a {unit(result)} {sign} the base ({interval})"


def _value(gain: Gain) -> float:
    assert gain.gain is not None
    return gain.gain


def _name(method: str) -> str:
    return name_of(method).removesuffix(" (ours)")


def _perplexity(result: StoredResult, method: str) -> str:
    return display(perplexity(result.methods[method].loss), "perplexity")


def _where(result: StoredResult) -> str:
    return "" if result.scenario.extra.get("whole_split", True) else f" on these {result.scored}"


def _level(result: StoredResult) -> str:
    return f"{100 * result.bootstrap.level:g}"
