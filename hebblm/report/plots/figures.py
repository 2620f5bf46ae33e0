"""Plots of a result: losses by count and occurrence, gains of the methods, overall and over the
stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from hebblm.report.plots.drawing import (
    STYLE,
    TALLEST,
    End,
    Picture,
    by_bucket,
    grouped_bars,
    label_ends,
    line,
    note,
    short,
)
from hebblm.report.result.methods import BASE, Look, best_of, looks, without_base
from hebblm.report.result.numbers import difference, display, perplexity
from hebblm.report.result.parts import (
    ALL,
    KNOWN,
    OOV,
    FrequencyBucket,
    Gain,
    part_label,
    sizes,
)
from hebblm.report.result.schema import StoredResult, count_label, counted_in
from hebblm.report.tables.overall import by_loss
from hebblm.report.tables.units import buckets_by_unit, gains_by_unit, unit, unit_of_parts

R = TypeVar("R", bound=StoredResult)
Curve = list[tuple[float, float]]
NEW_WORDS = "occurrences"
CAPTIONS = {
    NEW_WORDS: "Loss on new words by occurrence",
    "comparison": "Gain over the base",
    "frequency": "Perplexity by frequency of words",
    "running": "Gain over the base so far",
    "accuracy": "Words among five that are suggested, and keystrokes saved",
}
"""What each plot of a result shows, by its name: its title, and its caption on a page."""
_WARM_UP = 0.05  # share of the stream whose running mean is too noisy to set the scale
_ZERO: Any = {"color": "#555555", "linewidth": 0.8}  # the line of the base


def figures(result: StoredResult, most: int = 0) -> list[Picture]:
    """Return the plots that a result has data for, that of new words first, of ``most`` methods (0
    for all).
    """
    makers: dict[str, Callable[[StoredResult], Figure | None]] = {
        NEW_WORDS: occurrence_figure,
        "comparison": comparison_figure,
        "frequency": frequency_figure,
        "running": running_figure,
        "accuracy": accuracy_figure,
    }
    rest = len(result.methods) - most
    pictures = []
    for name, make in makers.items():
        figure = make(_of_the_best(result, most, new_words=name == NEW_WORDS))
        if figure is None:
            continue
        if most and rest > 0:
            methods = "method" if rest == 1 else "methods"
            note(figure, f"{rest} more {methods}: see the tables")
        pictures.append(Picture(name, CAPTIONS[name], figure))
    return pictures


def _of_the_best(result: R, most: int, *, new_words: bool) -> R:
    """Return the result with the base and the methods that have the lowest losses; 0 for all."""
    if not most:
        return result
    losses = {}
    for name, item in result.methods.items():
        losses[name] = item.oov_nll if new_words else item.nll
    chosen = best_of(losses, most)
    methods = {name: item for name, item in result.methods.items() if name in chosen}
    return replace(result, methods=methods)


def frequency_figure(result: StoredResult) -> Figure | None:
    """Perplexity by training count (above, logarithmic) and the gain over the base in nats
    (below).
    """
    by_method: dict[str, list[FrequencyBucket]] = {}
    for name, item in result.methods.items():
        if any(bucket.tokens for bucket in item.frequency):
            by_method[name] = buckets_by_unit(result, item.frequency)
    if not by_method:
        return None
    styles = looks(by_method)
    buckets = [bucket for bucket in by_method[next(iter(styles))] if bucket.tokens]
    losses = {}
    levels = {}
    for method in styles:
        losses[method] = _losses(by_method[method], buckets)
        levels[method] = [None if nll is None else perplexity(nll) for nll in losses[method]]
    of = unit_of_parts(result)
    with rc_context(STYLE):
        if BASE in losses:
            figure = Figure(figsize=(8.4, 6.0), layout="constrained")
            axis, below = figure.subplots(2, 1, sharex=True)
            _bars_of_gains(below, losses, styles)
            below.set_ylabel(f"Gain (nats a {of})")
        else:
            figure = Figure(figsize=(8.4, 3.8), layout="constrained")
            axis = figure.subplots()
        grouped_bars(axis, levels, styles)
        axis.set_yscale("log")
        axis.set_ylim(bottom=_least_drawn(levels) / 1.6)
        axis.yaxis.set_major_formatter(FuncFormatter(short))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_ylabel(f"Perplexity a {of} (log scale)")
        axis.set_title(_title("frequency", result))
        label = f"Occurrences of the word in {counted_in(result)}"
        by_bucket(figure, sizes(buckets), label, of)
    return figure


def _losses(
    own_buckets: Sequence[FrequencyBucket], buckets: Sequence[FrequencyBucket]
) -> list[float | None]:
    """Return a method's losses in some buckets; None where it has no such bucket."""
    losses = {bucket.bucket: bucket.nll for bucket in own_buckets}
    return [losses.get(bucket.bucket) for bucket in buckets]


def _least_drawn(levels: Mapping[str, Sequence[float | None]]) -> float:
    """Return the least level that is drawn as a bar; 1 without any."""
    least = math.inf
    for level in levels.values():
        for value in level:
            if value and value <= TALLEST:
                least = min(least, value)
    if not math.isfinite(least):
        return 1.0
    return least


def _bars_of_gains(
    axis: Axes, losses: Mapping[str, Sequence[float | None]], styles: Mapping[str, Look]
) -> None:
    gains = {}
    for method in styles:
        if method != BASE:
            pairs = zip(losses[BASE], losses[method], strict=True)
            gains[method] = [difference(base, nll) for base, nll in pairs]
    grouped_bars(axis, gains, styles)
    axis.axhline(0, **_ZERO)


def occurrence_figure(result: StoredResult) -> Figure | None:
    """Draw nats on new words against their occurrence, one line per method; None without new words.

    A loss that is infinite, or that of a diverged method, has no point.
    """
    losses = {}
    for name, item in result.methods.items():
        if item.oov_occurrences:
            losses[name] = buckets_by_unit(result, item.oov_occurrences, f"{OOV} ")
    if not losses:
        return None
    styles = looks(losses)
    buckets = [bucket for bucket in losses[next(iter(styles))] if bucket.tokens]
    places = {bucket.bucket: at for at, bucket in enumerate(buckets)}
    of = unit_of_parts(result)
    with rc_context(STYLE):
        figure = Figure(figsize=(8.4, 4.4), layout="constrained")
        axis = figure.subplots()
        for method, look in styles.items():
            points: Curve = []
            for bucket in losses[method]:
                if bucket.nll is not None and bucket.nll <= math.log(TALLEST):
                    points.append((places[bucket.bucket], bucket.nll))
            line(axis, look, points, marker="o")
        axis.set_ylabel(f"Nats a {of}")
        axis.set_title(_title(NEW_WORDS, result))
        label = "Occurrence of the word in the stream"
        by_bucket(figure, sizes(buckets), label, of)
    return figure


def running_figure(result: StoredResult) -> Figure | None:
    """Draw the gain over the base on all of the text so far, one line per method; None without the
    base.

    A gain that is infinite, or that of a diverged method, has no point.
    """
    if BASE not in result.methods:
        return None
    curves = {}
    for method in by_loss(result):
        curve = _gain_so_far(result, method)
        if method != BASE and len(curve) > 1:
            curves[method] = curve
    if not curves:
        return None
    end = max(curve[-1][0] for curve in curves.values())
    settled = [0.0]
    for curve in curves.values():
        settled += [gain for at, gain in curve if at >= _WARM_UP * end]
    margin = 0.05 * (max(settled) - min(settled)) or 0.05
    styles = looks(result.methods)
    with rc_context(STYLE):
        figure = Figure(figsize=(8.4, 4.4), layout="constrained")
        axis = figure.subplots()
        ends = []
        for method, curve in curves.items():
            look = styles[method]
            line(axis, look, curve)
            last = display(_last_gain(result, method), "signed", 3)
            ends.append(End(f"{look.name}  {last}", curve[-1][1], look.color))
        axis.axhline(0, **_ZERO)
        axis.set_ylim(min(settled) - margin, max(settled) + margin)
        axis.xaxis.set_major_formatter(FuncFormatter(short))
        axis.set_xlim(0, end)
        axis.set_xlabel(f"{unit(result).capitalize()}s scored so far")
        axis.set_ylabel(f"Gain so far (nats a {unit(result)})")
        axis.set_title(_title("running", result))
        label_ends(axis, ends)
    return figure


def _scale(result: StoredResult) -> float:
    """Return the units of the page per unit of a curve: an older result of pieces has the mean loss
    of words.
    """
    counted = max(at for at, _ in result.methods[BASE].running)
    if not result.of_pieces:
        return 1.0
    return float(result.scenario.extra.get("pieces", counted) / counted)


def _gain_so_far(result: StoredResult, method: str) -> Curve:
    """Return a method's gains on all of the text so far, by its length, both in units of the
    page.
    """
    base = dict(result.methods[BASE].running)
    if not base:
        return []
    scale = _scale(result)
    curve: Curve = []
    for at, nll in result.methods[method].running:
        gain = difference(base.get(at), nll)
        if gain is not None and abs(gain) <= math.log(TALLEST):
            curve.append((at * scale, gain / scale))
    return curve


def _last_gain(result: StoredResult, method: str) -> float | None:
    base = result.methods[BASE]
    item = result.methods[method]
    gain = difference(base.running[-1][1], item.running[-1][1])
    if gain is None:
        return None
    return gain / _scale(result)


def comparison_figure(result: StoredResult) -> Figure | None:
    """Draw what every method gains over the base, the best first, with intervals: in all, on new
    and on known words.
    """
    others = without_base(by_loss(result))
    if BASE not in result.methods or not others:
        return None
    of = unit(result)
    panels = {ALL: f"All {of}s"}
    if result.methods[BASE].oov_nll is not None and unit_of_parts(result) == of:
        panels[OOV] = "New words"
        panels[KNOWN] = "Known words"
    styles = looks(result.methods)
    with rc_context(STYLE):
        size = (3.0 + 2.6 * len(panels), 1.5 + 0.34 * len(others))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, part in zip(axes, panels, strict=True):
            _gain_bars(axis, {name: _gain_on(result, name, part) for name in others}, styles)
            axis.set_title(panels[part], fontsize=9, fontweight="normal")
        axes[0].set_yticks(range(len(others)), [styles[method].name for method in others])
        axes[0].invert_yaxis()
        interval = f"lines: {100 * result.bootstrap.level:g} % intervals"
        label = f"Gain over the base (nats a {of}, higher is better; {interval})"
        figure.supxlabel(label, fontsize=9, color="#333333")
        title = _title("comparison", result)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def _gain_on(result: StoredResult, method: str, part: str) -> Gain:
    """Return a method's gain on all, new or known words by the page's unit; an older result has no
    interval.
    """
    base = result.methods[BASE]
    item = result.methods[method]
    if part == ALL:
        gain = difference(base.loss, item.loss)
    elif part == OOV:
        gain = difference(base.oov_nll, item.oov_nll)
    else:
        gain = difference(base.in_vocabulary_nll, item.in_vocabulary_nll)
    known = gains_by_unit(result, method, unit(result)).get(part)
    if gain is not None and math.isfinite(gain) and known is not None and known.gain is not None:
        return known
    return Gain(part, 0, gain, None, None)


def _gain_bars(axis: Axes, gains: Mapping[str, Gain], styles: Mapping[str, Look]) -> None:
    ends = [0.0]
    for at, (method, gain) in enumerate(gains.items()):
        length = 0.0
        if gain.gain is not None and math.isfinite(gain.gain):
            length = gain.gain
        look = styles[method]
        axis.barh(
            at, length, 0.7, color=look.color, hatch=look.hatch, edgecolor="white", linewidth=0
        )
        low = high = length
        if gain.low is not None and gain.high is not None:
            low, high = gain.low, gain.high
            axis.plot(
                [low, high], [at, at], color="#8a8a8a", linewidth=1.3, marker="|", markersize=6
            )
        # the number stands beyond the bar and its interval, away from 0
        side, place, align = 1, max(high, length), "left"
        if length < 0:
            side, place, align = -1, min(low, length), "right"
        axis.annotate(
            display(gain.gain, "signed", 3),
            (place, at),
            xytext=(4 * side, 0),
            textcoords="offset points",
            ha=align,
            va="center",
            fontsize=8,
            color="#333333",
        )
        ends += [low, high, length]
    axis.axvline(0, **_ZERO)
    axis.grid(visible=False, axis="y")
    axis.spines["left"].set_visible(False)
    # Room for the numbers at both ends of the bars.
    room = 0.32 * ((max(ends) - min(ends)) or 1.0)
    left = min(ends)
    if left < 0:
        left -= room
    axis.set_xlim(left, max(ends) + room)
    axis.locator_params(axis="x", nbins=4)


def accuracy_figure(result: StoredResult) -> Figure | None:
    """Draw how often a word is among five suggestions (above), and the keystrokes saved (below),
    part by part.

    None without suggestions, or without a word.
    """
    items = {}
    for name, item in result.methods.items():
        if any(part.tokens for part in item.accuracy):
            items[name] = item.accuracy
    if not items:
        return None
    styles = looks(items)
    shown = []
    parts = []
    for at, part in enumerate(items[next(iter(styles))]):
        if part.tokens and part.part not in (OOV, KNOWN):
            shown.append(at)
            parts.append((part_label(part.part), part.tokens))
    with rc_context(STYLE):
        figure = Figure(figsize=(max(8.4, 1.1 * len(parts)), 6.0), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        for axis, measure in ((above, "top5"), (below, "saved")):
            values: dict[str, list[float | None]] = {}
            for name, accuracy in items.items():
                values[name] = []
                for at in shown:
                    share = getattr(accuracy[at], measure)
                    values[name].append(None if share is None else 100 * share)
            grouped_bars(axis, values, styles)
            axis.axhline(0, **_ZERO)
        above.set_ylabel("Word among five that are suggested (%)")
        below.set_ylabel("Keystrokes saved (%)")
        above.set_title(_title("accuracy", result))
        label = f"{count_label(result)}, or occurrence of a new word"
        by_bucket(figure, parts, label, "word" if result.of_pieces else "token")
    return figure


def _title(name: str, result: StoredResult) -> str:
    return f"{CAPTIONS[name]}: {result.scenario.label}"
