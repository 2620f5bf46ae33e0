"""Titles of plots: what is drawn, and the number of the best method next to the base's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hebblm.report.buckets import ALL, OOV
from hebblm.report.methods import BASE, name_of
from hebblm.report.numbers import difference, display
from hebblm.report.stored import StoredResult, counted_in
from hebblm.report.tables import by_loss
from hebblm.report.units import by_unit, perplexity_of_parts, unit, unit_of_parts


def overall(result: StoredResult) -> str:
    return _gain("Gain over the base", result)


def running(result: StoredResult) -> str:
    return _gain("Gain over the base so far", result)


def by_frequency(result: StoredResult) -> str:
    found = {name: perplexity_of_parts(result, item) for name, item in result.methods.items()}
    title = f"Perplexity a {unit_of_parts(result)} by frequency in {counted_in(result)}"
    return _titled(title, _least(found, lambda value: display(value, "perplexity")), result)


def by_occurrence(result: StoredResult) -> str:
    words = result.scenario.oov_tokens
    found = {
        name: by_unit(result, OOV, words, item.oov_nll) for name, item in result.methods.items()
    }
    title = f"Nats a {unit_of_parts(result)} on new words by occurrence"
    return _titled(title, _least(found, lambda value: display(value, "nll", 2)), result)


def suggestions(result: StoredResult) -> str:
    found = {
        name: part.top5
        for name, item in result.methods.items()
        for part in item.accuracy
        if part.part == ALL
    }
    most = {name: None if share is None else -share for name, share in found.items()}
    return _titled(
        "Words among five that are suggested",
        _least(most, lambda value: f"{-100 * value:.1f} %"),
        result,
    )


def _least(values: Mapping[str, float | None], shown: Callable[[float], str]) -> str:
    """Return the method with the lowest value, and the base, each with its own."""
    known = {name: value for name, value in values.items() if value is not None}
    least = min(known, key=known.__getitem__, default=BASE)
    return ", ".join(
        f"{_name(name)} {shown(known[name])}"
        for name in dict.fromkeys([least, BASE])
        if name in known
    )


def _gain(title: str, result: StoredResult) -> str:
    """Return a title with the gain of the method with the lowest loss apart from the base."""
    others = [name for name in by_loss(result) if name != BASE]
    gain = difference(result.methods[BASE].loss, result.methods[others[0]].loss)
    shown = "" if gain is None else f"{_name(others[0])} {display(gain, 'signed', 3)}"
    return _titled(f"{title}, nats a {unit(result)}", shown, result)


def _name(method: str) -> str:
    return name_of(method).removesuffix(" (ours)")


def _titled(text: str, shown: str, result: StoredResult) -> str:
    return f"{text}\n{result.scenario.label}{': ' if shown else ''}{shown}"
