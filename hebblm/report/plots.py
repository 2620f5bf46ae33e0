"""Plots of a result: losses by count and occurrence, gains of the methods, overall and over the
stream.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image

from hebblm.io.files import write_bytes
from hebblm.report import titles
from hebblm.report.buckets import ALL, KNOWN, OOV, part_label
from hebblm.report.drawing import STYLE, TALLEST, End, by_bucket, grouped_bars, label_ends, short
from hebblm.report.gains import Gain
from hebblm.report.methods import BASE, Look, best_of, looks
from hebblm.report.numbers import difference, display, perplexity
from hebblm.report.result import Result
from hebblm.report.stored import count_label, counted_in
from hebblm.report.tables import by_loss
from hebblm.report.units import buckets_by_unit, gains_by_unit, unit, unit_of_parts

_WARM_UP = 0.05  # share of the stream whose running mean is too noisy to set the scale


Kind = Literal["png", "svg"]
KINDS: tuple[Kind, ...] = ("png", "svg")


def figures(result: Result, most: int = 0) -> dict[str, Figure]:
    """Return the plots that a result has data for, by name, that of new words first."""
    makers: dict[str, Callable[[Result], Figure | None]] = {
        "occurrences": occurrence_figure,
        "comparison": comparison_figure,
        "frequency": frequency_figure,
        "running": running_figure,
        "accuracy": accuracy_figure,
    }
    made = {
        name: make(_drawn(result, most, new_words=name == "occurrences"))
        for name, make in makers.items()
    }
    rest = len(result.methods) - most
    if most and rest > 0:
        note = f"{rest} more method{'s' if rest > 1 else ''}: see the tables"
        for figure in filter(None, made.values()):
            # In an empty corner: the lower right one, or the upper one next to a title of all axes.
            height, side = (0.985, "top") if figure.get_suptitle() else (0.012, "bottom")
            with rc_context(STYLE):
                figure.text(0.995, height, note, ha="right", va=side, fontsize=7.5, color="#666666")
    return {name: figure for name, figure in made.items() if figure is not None}


def _drawn(result: Result, most: int, *, new_words: bool) -> Result:
    losses = {
        name: item.oov_nll if new_words else item.nll for name, item in result.methods.items()
    }
    chosen = best_of(losses, most) if most else set(losses)
    return replace(
        result, methods={name: item for name, item in result.methods.items() if name in chosen}
    )


def frequency_figure(result: Result) -> Figure | None:
    """Perplexity by training count (above, logarithmic) and the gain over the base in nats
    (below).
    """
    styles = looks(
        name for name, item in result.methods.items() if any(b.tokens for b in item.frequency)
    )
    if not styles:
        return None
    found = {method: buckets_by_unit(result, result.methods[method].frequency) for method in styles}
    buckets = [bucket for bucket in found[next(iter(styles))] if bucket.tokens]
    labels = [bucket.bucket for bucket in buckets]
    nll = {method: {bucket.bucket: bucket.nll for bucket in found[method]} for method in styles}
    base = nll.get(BASE)
    with rc_context(STYLE):
        figure = Figure(figsize=(8.4, 6.0 if base else 3.8), layout="constrained")
        axes = figure.subplots(2 if base else 1, 1, sharex=True, squeeze=False)[:, 0]
        level = {
            method: [
                None if (loss := losses.get(label)) is None else perplexity(loss)
                for label in labels
            ]
            for method, losses in nll.items()
        }
        grouped_bars(axes[0], level, styles)
        axes[0].set_yscale("log")
        drawn = [
            value for values in level.values() for value in values if value and value <= TALLEST
        ]
        axes[0].set_ylim(bottom=min(drawn, default=1.0) / 1.6)
        axes[0].yaxis.set_major_formatter(FuncFormatter(short))
        axes[0].yaxis.set_minor_formatter(NullFormatter())
        axes[0].set_ylabel("Perplexity (log scale)")
        axes[0].set_title(titles.by_frequency(result))
        if base:
            gains = {
                method: [difference(base.get(label), nll[method].get(label)) for label in labels]
                for method in styles
                if method != BASE
            }
            grouped_bars(axes[1], gains, styles)
            axes[1].axhline(0, color="#555555", linewidth=0.8)
            axes[1].set_ylabel(f"Gain (nats a {unit_of_parts(result)})")
        by_bucket(
            figure,
            [(bucket.bucket, bucket.tokens) for bucket in buckets],
            f"Occurrences of the word in {counted_in(result)}",
            unit_of_parts(result),
        )
    return figure


def occurrence_figure(result: Result) -> Figure | None:
    """Draw nats on new words against their occurrence, one line per method; None without new words.

    A loss that is infinite, or that of a diverged method, has no point.
    """
    losses = {
        name: buckets_by_unit(result, item.oov_occurrences, f"{OOV} ")
        for name, item in result.methods.items()
        if item.oov_occurrences
    }
    if not losses:
        return None
    styles = looks(losses)
    buckets = [bucket for bucket in losses[next(iter(styles))] if bucket.tokens]
    positions = {bucket.bucket: at for at, bucket in enumerate(buckets)}
    with rc_context(STYLE):
        figure = Figure(figsize=(8.4, 4.4), layout="constrained")
        axis = figure.subplots()
        for method, look in styles.items():
            points = [
                (positions[bucket.bucket], bucket.nll)
                for bucket in losses[method]
                if bucket.nll is not None and bucket.nll <= math.log(TALLEST)
            ]
            axis.plot(
                [at for at, _ in points],
                [nll for _, nll in points],
                color=look.color,
                linestyle=look.line,
                linewidth=1.6,
                marker="o",
                markersize=3.5,
                label=look.name,
            )
        axis.set_ylabel(f"Nats a {unit_of_parts(result)}")
        axis.set_title(titles.by_occurrence(result))
        by_bucket(
            figure,
            [(bucket.bucket, bucket.tokens) for bucket in buckets],
            "Occurrence of the word in the stream",
            unit_of_parts(result),
        )
    return figure


def running_figure(result: Result) -> Figure | None:
    """Draw the gain over the base on all of the text so far, one line per method; None without the
    base.

    A gain that is infinite, or that of a diverged method, has no point.
    """
    if BASE not in result.methods:
        return None
    base = dict(result.methods[BASE].running)
    curves = {
        method: [
            (at, gain)
            for at, nll in result.methods[method].running
            if (gain := difference(base.get(at), nll)) is not None
            and abs(gain) <= math.log(TALLEST)
        ]
        for method in by_loss(result)
        if method != BASE
    }
    curves = {method: points for method, points in curves.items() if len(points) > 1}
    if not curves:
        return None
    items = [(method, result.methods[method]) for method in curves]
    styles = looks(result.methods)
    counted = max(at for at, _ in result.methods[BASE].running)
    pieces = result.scenario.extra.get("pieces", counted) if result.of_pieces else counted
    scale = pieces / counted  # an older result of pieces has the mean loss of words
    lines = {
        method: [(at * scale, gain / scale) for at, gain in points]
        for method, points in curves.items()
    }
    end = max(points[-1][0] for points in lines.values())
    settled = [
        0.0,
        *(gain for points in lines.values() for at, gain in points if at >= _WARM_UP * end),
    ]
    low, high = min(settled), max(settled)
    margin = 0.05 * (high - low) or 0.05
    with rc_context(STYLE):
        figure = Figure(figsize=(8.4, 4.4), layout="constrained")
        axis = figure.subplots()
        for method, points in lines.items():
            look = styles[method]
            axis.plot(
                *zip(*points, strict=True), color=look.color, linestyle=look.line, linewidth=1.6
            )
        axis.axhline(0, color="#555555", linewidth=0.8)
        axis.set_ylim(low - margin, high + margin)
        axis.xaxis.set_major_formatter(FuncFormatter(short))
        axis.set_xlim(0, end)
        axis.set_xlabel(f"{unit(result).capitalize()}s scored so far")
        axis.set_ylabel(f"Gain so far (nats a {unit(result)})")
        axis.set_title(titles.running(result))
        last = {
            method: difference(result.methods[BASE].running[-1][1], item.running[-1][1])
            for method, item in items
        }
        label_ends(
            axis,
            [
                End(
                    f"{styles[method].name}  {display(_over(last[method], scale), 'signed', 3)}",
                    points[-1][1],
                    styles[method].color,
                )
                for method, points in lines.items()
            ],
        )
    return figure


def _over(gain: float | None, scale: float) -> float | None:
    return None if gain is None else gain / scale


def comparison_figure(result: Result) -> Figure | None:
    """Draw what every method gains over the base, the best first, with intervals: in all, on new
    and on known words.
    """
    others = [method for method in by_loss(result) if method != BASE]
    if BASE not in result.methods or not others:
        return None
    titled = {ALL: f"All {unit(result)}s"}
    if result.methods[BASE].oov_nll is not None and unit_of_parts(result) == unit(result):
        titled |= {OOV: "New words", KNOWN: "Known words"}
    panels = {
        title: {name: _gain_on(result, name, part) for name in others}
        for part, title in titled.items()
    }
    styles = looks(result.methods)
    with rc_context(STYLE):
        figure = Figure(
            figsize=(3.0 + 2.6 * len(panels), 1.5 + 0.34 * len(others)), layout="constrained"
        )
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, gains) in zip(axes, panels.items(), strict=True):
            _gain_bars(axis, gains, styles)
            axis.set_title(title, fontsize=9, fontweight="normal")
        axes[0].set_yticks(range(len(others)), [styles[method].name for method in others])
        axes[0].invert_yaxis()
        interval = f"lines: {100 * result.bootstrap.level:g} % intervals"
        label = f"Gain over the base (nats a {unit(result)}, higher is better; {interval})"
        figure.supxlabel(label, fontsize=9, color="#333333")
        figure.suptitle(titles.overall(result), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def _gain_on(result: Result, method: str, part: str) -> Gain:
    """Return a method's gain on all, new or known words by the page's unit; an older result has no
    interval.
    """
    base, item = result.methods[BASE], result.methods[method]
    losses = {ALL: (base.loss, item.loss), OOV: (base.oov_nll, item.oov_nll)}
    gain = difference(*losses.get(part, (base.in_vocabulary_nll, item.in_vocabulary_nll)))
    known = gains_by_unit(result, method, unit(result)).get(part)
    if gain is not None and math.isfinite(gain) and known is not None and known.gain is not None:
        return known
    return Gain(part, 0, gain, None, None)


def accuracy_figure(result: Result) -> Figure | None:
    """Draw how often a word is among five suggestions (above), and the keystrokes saved (below),
    part by part.

    None without suggestions, or without a word.
    """
    items = {
        name: item.accuracy
        for name, item in result.methods.items()
        if any(part.tokens for part in item.accuracy)
    }
    if not items:
        return None
    styles = looks(items)
    shown = [
        at
        for at, part in enumerate(items[next(iter(styles))])
        if part.tokens and part.part not in (OOV, KNOWN)
    ]
    parts = [items[next(iter(styles))][at] for at in shown]
    with rc_context(STYLE):
        figure = Figure(figsize=(max(8.4, 1.1 * len(parts)), 6.0), layout="constrained")
        axes = figure.subplots(2, 1, sharex=True)
        for axis, measure, title in (
            (axes[0], "top5", "Word among five that are suggested (%)"),
            (axes[1], "saved", "Keystrokes saved (%)"),
        ):
            values = {
                name: [
                    None if (value := getattr(item[at], measure)) is None else 100 * value
                    for at in shown
                ]
                for name, item in items.items()
            }
            grouped_bars(axis, values, styles)
            axis.axhline(0, color="#555555", linewidth=0.8)
            axis.set_ylabel(title)
        axes[0].set_title(titles.suggestions(result))
        by_bucket(
            figure,
            [(part_label(part.part), part.tokens) for part in parts],
            f"{count_label(result)}, or occurrence of a new word",
            "word" if result.of_pieces else "token",
        )
    return figure


def render(figure: Figure, kind: Kind) -> bytes:
    """Return a figure as the bytes of an image file, the same bytes for the same figure.

    PNG has a palette of 256 colours, which look like millions in a plot and take a third of the
    bytes.
    """
    stream = io.BytesIO()
    FigureCanvasAgg(figure)
    with rc_context(STYLE):
        if kind == "svg":
            figure.savefig(stream, format="svg", dpi=160, metadata={"Date": None})
            return stream.getvalue()
        figure.savefig(stream, format="png", dpi=160, pil_kwargs={"compress_level": 0})
    few = io.BytesIO()
    with Image.open(stream) as picture:
        indexed = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    indexed.save(few, "PNG", optimize=True)
    return few.getvalue()


def save(figure: Figure, path: Path) -> Path:
    """Write a figure atomically as ``.png`` or ``.svg`` by the suffix of ``path``."""
    return write_bytes(path, render(figure, "svg" if path.suffix == ".svg" else "png"))


def _gain_bars(axis: Axes, gains: Mapping[str, Gain], styles: Mapping[str, Look]) -> None:
    ends = [0.0]
    for at, (method, gain) in enumerate(gains.items()):
        value = gain.gain
        length = value if value is not None and math.isfinite(value) else 0.0
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
        side = -1 if length < 0 else 1
        axis.annotate(
            display(value, "signed", 3),
            (min(low, length) if side < 0 else max(high, length), at),
            xytext=(4 * side, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=8,
            color="#333333",
        )
        ends += [low, high, length]
    axis.axvline(0, color="#555555", linewidth=0.8)
    axis.grid(visible=False, axis="y")
    axis.spines["left"].set_visible(False)
    # Room for the numbers at both ends of the bars.
    span = (max(ends) - min(ends)) or 1.0
    axis.set_xlim(min(ends) - (0.32 * span if min(ends) < 0 else 0), max(ends) + 0.32 * span)
    axis.locator_params(axis="x", nbins=4)
