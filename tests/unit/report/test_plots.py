from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from hebblm.report.plots.drawing import End, label_ends, render, save, spread
from hebblm.report.plots.figures import (
    CAPTIONS,
    comparison_figure,
    figures,
    frequency_figure,
    occurrence_figure,
    running_figure,
)
from hebblm.report.render.result import Result
from hebblm.report.result.methods import name_of
from hebblm.report.tables.overall import by_loss

from .samples import ACCURACY, sample_result

PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("lstm", "mixture", "hebb")


@settings(deadline=None)
@given(st.lists(st.floats(-10, 10), max_size=12), st.floats(0.01, 2))
def test_spread_keeps_order_and_gap(wishes: list[float], gap: float) -> None:
    assert spread([3.0, 1.0, 2.0], 0.5) == [3.0, 1.0, 2.0], "what is apart stays"
    taken = spread(wishes, gap)
    order = sorted(range(len(wishes)), key=wishes.__getitem__)
    assert all(taken[high] - taken[low] >= gap - 1e-9 for low, high in pairwise(order))
    assert sum(taken) == pytest.approx(sum(wishes), abs=1e-6 + gap * len(wishes) ** 2)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_no_leader_crosses_a_label(scale: str) -> None:
    figure = Figure(figsize=(6, 3), layout="constrained")
    axis = figure.subplots()
    axis.set_xlim(0, 1)
    axis.set_ylim(10, 100)
    axis.set_yscale(scale)
    ends = [
        End(f"a long name {at}", value, "#000000")
        for at, value in enumerate((95, 30, 30.1, 30.2, 12))
    ]
    label_ends(axis, ends)
    FigureCanvasAgg(figure).draw()
    labels = [text for text in axis.texts if isinstance(text, Annotation)]
    assert [label.get_text() for label in labels] == [end.text for end in ends]
    boxes = []
    for label, end in zip(labels, ends, strict=True):
        assert label.arrow_patch is not None
        # Between the axis and the text: the annotation's own extent would hold both.
        leader = label.arrow_patch.get_path().get_extents(label.arrow_patch.get_transform())
        assert axis.get_window_extent().x1 - 1 <= leader.x0 < leader.x1
        assert leader.x1 <= axis.transAxes.transform((1.035, 0))[0] + 1
        assert axis.transAxes.transform(label.xy)[1] == pytest.approx(
            axis.transData.transform((1, end.value))[1]
        )
        boxes.append(axis.transAxes.transform(label.xyann)[1])
    least = 0.9 * 8.5 / 72 * figure.dpi
    assert all(high - low >= least for low, high in pairwise(sorted(boxes)))


def test_frequency_figure_shows_every_bucket_and_method() -> None:
    result = sample_result(400, methods=SMALL)
    figure = frequency_figure(result)
    assert figure is not None
    level, gain = figure.axes
    assert level.get_yscale() == "log"
    buckets = [bucket for bucket in result.methods["lstm"].frequency if bucket.tokens]
    assert len(level.patches) == len(buckets) * len(SMALL)
    assert len(gain.patches) == len(buckets) * (len(SMALL) - 1)
    assert [label.get_text().split("\n")[0] for label in gain.get_xticklabels()] == [
        b.bucket for b in buckets
    ]
    assert {round(bar.get_height(), 6) for bar in level.patches} == {
        round(bucket.perplexity or 0, 6)
        for item in result.methods.values()
        for bucket in item.frequency
        if bucket.tokens
    }


def test_bars_of_one_colour_are_hatched_apart() -> None:
    family = ("best", "dynamic+best", "best-of-both")
    sample = sample_result(400, methods=SMALL).methods
    result = sample_result(400, methods=SMALL)
    result = replace(
        result, methods={"lstm": sample["lstm"], **dict.fromkeys(family, sample["hebb"])}
    )
    for figure, shown in ((frequency_figure(result), 4), (comparison_figure(result), 3)):
        assert figure is not None
        bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
        assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == shown


def test_a_method_keeps_its_colour_across_plots() -> None:
    result = sample_result(400, methods=SMALL)
    frequency, running = frequency_figure(result), running_figure(result)
    assert frequency is not None
    assert running is not None
    legend = {
        text.get_text(): patch.get_facecolor()
        for text, patch in zip(
            frequency.legends[0].get_texts(), frequency.legends[0].get_patches(), strict=True
        )
    }
    drawn = {
        text.get_text().split("  ")[0]: line.get_color()
        for text, line in zip(running.axes[0].texts, running.axes[0].get_lines(), strict=False)
    }
    assert list(legend) == ["Base", "Mixture", "Hebb"]
    assert list(drawn) == ["Mixture", "Hebb"]
    for name, color in drawn.items():
        assert tuple(round(part * 255) for part in legend[name][:3]) == tuple(
            bytes.fromhex(str(color)[1:])
        )


def test_plots_without_data_are_left_out() -> None:
    result = sample_result(200, methods=("hebb",))
    bare = replace(result.methods["hebb"], running=(), frequency=(), oov_occurrences=())
    assert figures(replace(result, methods={"hebb": bare})) == []
    assert [picture.name for picture in figures(result)] == ["occurrences", "frequency"], (
        "without the base there is no gain"
    )


def test_plots_show_six_methods_and_say_how_many_they_leave_out() -> None:
    result = sample_result(3000)
    made = {picture.name: picture.figure for picture in figures(result, 6)}
    names = {
        "frequency": [text.get_text() for text in made["frequency"].legends[0].get_texts()],
        "occurrences": [text.get_text() for text in made["occurrences"].legends[0].get_texts()],
        "running": [
            "Base",
            *(text.get_text().split("  ")[0] for text in made["running"].axes[0].texts),
        ],
        "comparison": [
            "Base",
            *(text.get_text() for text in made["comparison"].axes[0].get_yticklabels()),
        ],
    }
    by_loss = sorted(result.methods, key=lambda name: result.methods[name].nll)
    best = {name_of(name) for name in ("lstm", *[name for name in by_loss if name != "lstm"][:5])}
    for name in ("frequency", "running", "comparison"):
        assert len(names[name]) == 6
        assert set(names[name]) == best
    by_oov = sorted(result.methods, key=lambda name: result.methods[name].oov_nll or 0.0)
    assert set(names["occurrences"]) == {name_of(name) for name in ("lstm", *by_oov[:5])}
    for figure in made.values():
        assert [text.get_text() for text in figure.texts][-1] == "4 more methods: see the tables"


def test_occurrence_figure_has_a_line_a_method_and_leaves_out_infinite_points() -> None:
    result = sample_result(3000, methods=SMALL)
    item = result.methods["hebb"]
    first = replace(item.oov_occurrences[0], nll=math.inf, perplexity=math.inf)
    broken = replace(item, oov_occurrences=(first, *item.oov_occurrences[1:]))
    figure = occurrence_figure(replace(result, methods={**result.methods, "hebb": broken}))
    assert figure is not None
    lines = {str(line.get_label()): line for line in figure.axes[0].get_lines()}
    assert list(lines) == ["Base", "Mixture", "Hebb"]
    buckets = [bucket.nll for bucket in result.methods["lstm"].oov_occurrences if bucket.tokens]
    assert list(lines["Base"].get_ydata()) == buckets
    assert list(lines["Hebb"].get_xdata()) == list(range(1, len(buckets)))
    assert render(figure, "png").startswith(PNG)
    assert occurrence_figure(sample_result(200, source="ptb", target="ptb", methods=SMALL)) is None


@pytest.mark.usefixtures("drawn_pictures")
def test_the_same_figure_gives_the_same_file(tmp_path: Path) -> None:
    result = sample_result(200, methods=("lstm", "hebb"))
    written = []
    for name in ("a", "b"):
        figure = running_figure(result)
        assert figure is not None
        written.append(
            [save(figure, tmp_path / f"{name}.{suffix}").read_bytes() for suffix in ("png", "svg")]
        )
    assert written[0] == written[1]
    assert written[0][0].startswith(PNG)
    assert b"PLTE" in written[0][0]
    assert b"<svg" in written[0][1]


def test_the_running_figure_shows_the_gain_so_far() -> None:
    result = sample_result(3000, methods=SMALL)
    figure = running_figure(result)
    assert figure is not None
    [axis] = figure.axes
    assert axis.get_ylabel() == "Gain so far (nats a token)"
    base = dict(result.methods["lstm"].running)
    for name, line in zip(
        sorted(SMALL[1:], key=lambda name: result.methods[name].nll), axis.get_lines(), strict=False
    ):
        points = result.methods[name].running
        assert list(line.get_xdata()) == [at for at, _ in points]
        assert list(line.get_ydata()) == pytest.approx([base[at] - nll for at, nll in points])
    gain = result.methods["lstm"].nll - result.methods["hebb"].nll
    assert f"Hebb  {gain:+.3f}" in [text.get_text() for text in axis.texts]
    assert -1 < axis.get_ylim()[0] < 0 < axis.get_ylim()[1] < 3, (
        "it begins near no perplexity of 10,000"
    )


def test_bars_have_their_intervals_and_the_order_of_the_table() -> None:
    result = sample_result(3000)
    figure = comparison_figure(result)
    assert figure is not None
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == [name_of(name) for name in by_loss(result) if name != "lstm"]
    for axis, part in zip(figure.axes, ("All", "OOV", "Known"), strict=True):
        lines = [line for line in axis.get_lines() if line.get_marker() == "|"]
        assert len(lines) == len(names)
        for line, name in zip(
            lines, [name for name in by_loss(result) if name != "lstm"], strict=True
        ):
            gain = result.gain(name, part=part)
            assert gain is not None
            assert list(line.get_xdata()) == [gain.low, gain.high]
    few = comparison_figure(sample_result(300))
    assert few is not None
    assert not [line for line in few.axes[0].get_lines() if line.get_marker() == "|"], (
        "too few for an interval"
    )


def test_comparison_has_a_panel_for_new_words_only_across_domains() -> None:
    for target, titles in (
        ("ptb", ["All tokens", "New words", "Known words"]),
        ("wt2", ["All tokens"]),
    ):
        figure = comparison_figure(sample_result(400, target=target, methods=SMALL))
        assert figure is not None
        assert [axis.get_title(loc="left") for axis in figure.axes] == titles


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("loss", [math.inf, math.log(1e293)], ids=["infinite", "diverged"])
def test_a_method_that_diverged_can_be_drawn_and_does_not_flatten_the_others(loss: float) -> None:
    result = sample_result(400, methods=SMALL)
    item = result.methods["hebb"]
    broken = replace(
        item,
        nll=loss,
        perplexity=math.exp(loss),
        frequency=tuple(
            replace(bucket, nll=loss, perplexity=math.exp(loss)) for bucket in item.frequency
        ),
        running=tuple((at, loss if at > 100 else nll) for at, nll in item.running),
    )
    pictures = figures(replace(result, methods={**result.methods, "hebb": broken}))
    made = {picture.name: picture.figure for picture in pictures}
    assert all(render(figure, "png").startswith(PNG) for figure in made.values())
    assert made["running"].axes[0].get_ylim()[0] > -2
    level, gain = ([text.get_text() for text in axis.texts] for axis in made["frequency"].axes)
    assert all(math.isfinite(bar.get_height()) for bar in made["frequency"].axes[1].patches)
    if math.isinf(loss):
        assert "Hebb  -inf" in [text.get_text() for text in made["running"].axes[0].texts]
        assert "-inf" in [text.get_text() for text in made["comparison"].axes[0].texts]
        assert "\u221e" in level
        assert "\u2212\u221e" in gain
    else:
        assert "\u2191" in level


def test_a_plot_has_the_title_that_its_caption_has() -> None:
    result = Result.load(ACCURACY)
    for name, caption, figure in figures(result):
        titles = [axis.get_title(loc="left") for axis in figure.axes]
        titles.append(figure.get_suptitle())
        assert caption == CAPTIONS[name]
        assert f"{caption}: {result.scenario.label}" in titles
