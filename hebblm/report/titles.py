"""Titles of plots, which say what a plot shows to be so."""

from __future__ import annotations

from hebblm.report.buckets import ALL
from hebblm.report.methods import BASE, name_of
from hebblm.report.numbers import difference, display, perplexity
from hebblm.report.stored import StoredResult
from hebblm.report.tables import by_loss


def overall(result: StoredResult) -> str:
    """Return which method gains most over the base on all tokens."""
    best, base = _best(result), result.methods[BASE].nll
    gain = difference(base, result.methods[best].nll) if best else None
    if best is None or gain is None or gain <= 0:
        return _titled("No method gains over the base", result)
    return _titled(f"{_name(best)} gains {display(gain, 'nll', 3)} nats a {unit(result)} over the base", result)


def by_frequency(result: StoredResult) -> str:
    """Return for which training counts the best method gains most."""
    best = _best(result)
    gains = _gains(result, best, "frequency") if best else []
    known = [(gain, label) for label, gain in gains if gain is not None and gain > 0]
    if best is None:
        return _titled("Perplexity by frequency in training", result)
    if not known:
        return _titled(f"{_name(best)} gains at no frequency in training", result)
    return _titled(f"{_name(best)} gains most on words trained on {max(known)[1]} times", result)


def by_occurrence(result: StoredResult) -> str:
    """Return from which occurrence of a new word on the best method on new words gains."""
    losses = {name: item.oov_nll for name, item in result.methods.items() if item.oov_nll is not None and name != BASE}
    best = min(losses, key=losses.__getitem__, default=None)
    gains = _gains(result, best, "oov_occurrences") if best else []
    if best is None or not gains:
        return _titled("Loss on new words by occurrence", result)
    first = len(gains)
    while first and (gain := gains[first - 1][1]) is not None and gain > 0:
        first -= 1
    if first == len(gains):
        return _titled(f"{_name(best)} gains nothing on the most frequent new words", result)
    return _titled(f"{_name(best)} gains on new words from the {gains[first][0]} occurrence on", result)


def running(result: StoredResult) -> str:
    """Return where the perplexity of the best method ends, and that of the base."""
    ends = {name: item.running[-1][1] for name, item in result.methods.items() if item.running}
    least = min(ends, key=ends.__getitem__)
    text = f"{_name(least)} ends at perplexity {display(perplexity(ends[least]), 'perplexity')} a {unit(result)}"
    if BASE in ends and least != BASE:
        text += f", the base at {display(perplexity(ends[BASE]), 'perplexity')}"
    return _titled(text, result)


def suggestions(result: StoredResult) -> str:
    """Return which method has the word most often among five suggestions."""
    known = {
        name: part.top5
        for name, item in result.methods.items()
        for part in item.accuracy
        if part.part == ALL and part.top5 is not None
    }
    best = max(known, key=known.__getitem__)
    text = f"{_name(best)} has {100 * known[best]:.1f} % of the words among five suggestions"
    if BASE in known and best != BASE:
        text += f", the base {100 * known[BASE]:.1f} %"
    return _titled(text, result)


def _best(result: StoredResult) -> str | None:
    """Return the method with the lowest loss apart from the base, if the base is there."""
    others = [name for name in by_loss(result) if name != BASE]
    return others[0] if others and BASE in result.methods else None


def _gains(result: StoredResult, method: str, field: str) -> list[tuple[str, float | None]]:
    """Return a method's gain over the base in each bucket that has tokens."""
    if BASE not in result.methods:
        return []
    base, ours = (getattr(result.methods[name], field) for name in (BASE, method))
    losses = {bucket.bucket: bucket.nll for bucket in base}
    return [(bucket.bucket, difference(losses.get(bucket.bucket), bucket.nll)) for bucket in ours if bucket.tokens]


def unit(result: StoredResult) -> str:
    """Name what losses are counted by."""
    return "word" if result.of_pieces else "token"


def _name(method: str) -> str:
    return name_of(method).removesuffix(" (ours)")


def _titled(text: str, result: StoredResult) -> str:
    return f"{text}\n{result.scenario.label}"  # names of files may be long
