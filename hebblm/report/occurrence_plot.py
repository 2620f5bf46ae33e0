"""Plot of the loss on out-of-vocabulary words by how often each occurred so far."""

from __future__ import annotations

import math

from matplotlib import rc_context
from matplotlib.figure import Figure

from hebblm.report.drawing import STYLE, TALLEST
from hebblm.report.methods import looks
from hebblm.report.result import Result


def occurrence_figure(result: Result) -> Figure | None:
    """Return nats on new words against their occurrence, one line a method; None where there are no new words.

    A loss that is infinite, or that of a diverged method, has no point.
    """
    losses = {name: item.oov_occurrences for name, item in result.methods.items() if item.oov_occurrences}
    if not losses:
        return None
    styles = looks(losses)
    buckets = [bucket for bucket in losses[next(iter(styles))] if bucket.tokens]
    place = {bucket.bucket: at for at, bucket in enumerate(buckets)}
    with rc_context(STYLE):
        figure = Figure(figsize=(8.4, 4.4), layout="constrained")
        axis = figure.subplots()
        for method, look in styles.items():
            points = [
                (place[bucket.bucket], bucket.nll)
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
        axis.set_xticks(range(len(buckets)), [f"{b.bucket}\n{b.tokens:,} tokens" for b in buckets])
        axis.set_xlabel("Occurrence of the word in the stream")
        axis.set_ylabel("Nats per token")
        axis.set_title(f"Loss on OOV words by occurrence, {result.scenario.label}")
        axis.grid(visible=False, axis="x")
        handles, names = axis.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper")
    return figure
