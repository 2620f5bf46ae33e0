from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hebblm.errors import UserError
from hebblm.report.render.result import Result
from hebblm.report.render.table import texts
from hebblm.report.result.parts import Bootstrap, Gain, lead
from hebblm.report.result.schema import MethodResult
from hebblm.report.tables.overall import by_loss, summary_table

from .samples import sample_result

RESULTS = Path(__file__).parents[3] / "recipes" / "results"


def made(
    nll: dict[str, float], gains: dict[str, tuple[float | None, float | None]], tokens: int = 9000
) -> Result:
    """Return a result with given losses and intervals, without new words."""
    sample = sample_result(300, source="ptb", target="ptb", methods=("lstm", "hebb"))
    base = nll.get("lstm", math.nan)
    methods: dict[str, MethodResult] = {}
    for at, (name, loss) in enumerate(nll.items()):
        found = (Gain("All", tokens, base - loss, *gains[name]),) if name in gains else ()
        methods[name] = replace(
            sample.methods["lstm"],
            nll=loss,
            perplexity=math.exp(loss) if loss < 700 else math.inf,
            tokens_per_second=1000.0 / 2**at,
            gains=found,
        )
    return replace(sample, methods=methods, scenario=replace(sample.scenario, tokens=tokens))


def test_a_certain_gain_names_the_best_its_gain_and_its_cost() -> None:
    result = made(
        {"lstm": 5.0, "hebb": 4.9, "mixture": 4.8},
        {"hebb": (0.09, 0.11), "mixture": (0.187, 0.2134)},
    )
    lead = {"best": "mixture", "next": "hebb", "gain": 0.1, "low": 0.08, "high": 0.12}
    measured = (
        "perplexity 121.51 instead of 148.41, 0.200 nats a token below the base (95 % interval "
        "0.187 to 0.213)."
    )
    known = replace(result, extra={"lead": lead})
    assert known.verdict() == f"Lowest loss: Mixture, {measured} Next: Hebb."
    abbreviated = made({"lstm": 5.0, "dynamic": 4.9, "mixture": 4.8}, {"mixture": (0.187, 0.2134)})
    text = replace(abbreviated, extra={"lead": {**lead, "next": "dynamic"}}).verdict()
    assert text.endswith("Next: Dynamic eval."), "one full stop"
    undecided = replace(result, extra={"lead": {**lead, "low": -0.01}})
    assert undecided.verdict() == f"Lowest loss: Mixture, {measured} Next: Hebb, too close to call."
    for unknown in ({}, {"lead": {**lead, "next": "knn"}}, {"lead": {**lead, "low": None}}):
        text = replace(result, extra=unknown).verdict()
        said = "Next: Hebb; no interval between the two is known."
        assert text == f"Lowest loss: Mixture, {measured} {said}"


def test_the_lead_is_the_paired_gain_over_the_next() -> None:
    generator = np.random.default_rng(3)
    shared = generator.gamma(2.0, size=4000)
    nll = {
        "lstm": shared + 1, "knn": shared + 0.5,
        "hebb": shared + 0.45 + 0.01 * generator.normal(size=4000),
        "mbpa": np.full(4000, np.inf),
    }  # fmt: skip
    found = lead(nll, Bootstrap())
    assert found is not None
    assert (found["best"], found["next"]) == ("hebb", "knn")
    assert found["gain"] == pytest.approx((nll["knn"] - nll["hebb"]).mean())
    assert found["low"] < found["gain"] < found["high"]
    assert found["low"] > 0.04, "the losses that both share cancel"
    assert lead({"lstm": shared, "hebb": shared}, Bootstrap()) is None


def test_an_interval_that_holds_0_cannot_tell() -> None:
    result = made(
        {"lstm": 5.0, "hebb": 4.99, "knn": 4.995}, {"hebb": (-0.01, 0.03), "knn": (0.004, 0.006)}
    )
    assert result.verdict() == (
        "9,000 tokens cannot tell whether Hebb is better than the base: perplexity 146.94 instead "
        "of 148.41, "
        "0.010 nats a token below the base (95 % interval -0.010 to 0.030). kNN-LM is better for "
        "certain."
    )
    worse = made({"lstm": 5.0, "hebb": 5.01}, {"hebb": (-0.03, 0.01)})
    assert "cannot tell whether Hebb is better than the base: perplexity 149.90" in worse.verdict()
    assert "0.010 nats a token above the base (95 % interval -0.010 to 0.030)." in worse.verdict()


def test_too_few_tokens_for_an_interval_are_called_so() -> None:
    text = made({"lstm": 5.0, "hebb": 4.8}, {"hebb": (None, None)}, tokens=1000).verdict()
    assert text == (
        "1,000 tokens are too few to tell who is best; read a text of 2,000 tokens or more. "
        "So far Hebb has the lowest loss: perplexity 121.51 instead of 148.41."
    )
    worse = made({"lstm": 5.0, "cache": 5.053}, {"cache": (None, None)}, tokens=1000).verdict()
    assert "So far no method is below the base, Cache the closest: perplexity 156.49" in worse


def test_an_older_result_without_intervals_says_so() -> None:
    text = made({"lstm": 5.0, "hebb": 4.8}, {}).verdict()
    assert text.startswith(
        "The result holds no interval; Hebb has the lowest loss: perplexity 121.51"
    )
    worse = made({"lstm": 5.0, "hebb": 5.1}, {}).verdict()
    assert worse.startswith(
        "The result holds no interval; no method is below the base, Hebb the closest: "
    )


def test_a_loss_for_certain_is_no_gain() -> None:
    text = made({"lstm": 5.0, "hebb": 5.1}, {"hebb": (-0.12, -0.08)}).verdict()
    assert text.startswith(
        "No method gains over the base. The closest is Hebb: perplexity 164.02 instead of 148.41, "
        "0.100 nats a "
        "token above the base (95 % interval 0.080 to 0.120)."
    )


@pytest.mark.parametrize(
    ("nll", "said"),
    [
        ({"lstm": 5.0}, "Base: perplexity 148.41; there is no method to compare it with."),
        ({"hebb": 5.0}, "Hebb: perplexity 148.41; the run has no base to compare with."),
        (
            {"lstm": math.inf, "hebb": 5.0},
            "Hebb: perplexity 148.41; the loss of the base is infinite.",
        ),
        (
            {"lstm": 5.0, "hebb": math.inf},
            "Base: perplexity 148.41; no other method has a finite loss.",
        ),
        ({"lstm": math.inf}, "No method has a finite loss: each gave some token no probability."),
    ],
)
def test_what_cannot_be_compared(nll: dict[str, float], said: str) -> None:
    result = made(nll, {})
    assert result.verdict() == said
    assert len(result.table().splitlines()) == 2 + len(nll)


def test_a_loss_whose_perplexity_no_float_holds_is_told_too() -> None:
    said = made({"lstm": 5.0, "hebb": 1005.0}, {"hebb": (-1001.0, -999.0)}).verdict()
    assert "1000.000 nats a token above the base" in said
    assert "perplexity inf instead of 148.41" in said


def test_the_table_is_sorted_and_has_no_empty_column() -> None:
    across, within = sample_result(3000), sample_result(3000, source="ptb", target="ptb")
    table = summary_table(across)
    assert [column.header for column in table.columns] == [
        "Method", "Perplexity", "Nats", "Gain", "Nats, new words", "Tokens/s",
    ]  # fmt: skip
    assert [row[0] for row in table.cells()][:2] == ["Mixture+Hebb ◄", "Mixture+MbPA"]
    losses = [row[2] for row in table.cells()]
    assert losses == sorted(item.nll for item in across.methods.values())
    assert table.notes == ("Gain: nats a token below the base, ± half of the 95 % interval.",)
    assert "Nats, new words" not in [column.header for column in summary_table(within).columns]
    alone = summary_table(sample_result(300, methods=("hebb",)))
    assert "Gain" not in [column.header for column in alone.columns]
    assert alone.notes == ()
    few = summary_table(sample_result(300))
    assert few.notes == ("Gain: nats a token below the base.",)
    assert not any("±" in cell for row in texts(few) for cell in row)


def test_an_interpreter_and_a_notebook_see_the_verdict_and_the_table_is_aligned_markdown() -> None:
    result = sample_result(3000)
    assert repr(result).splitlines() == [
        "Result of wt2-to-ptb test, 3,000 tokens",
        result.verdict(),
    ]
    html = result._repr_html_()
    assert html.startswith(f"<p>{result.verdict()}</p>")
    assert html.count("<tr") == 1 + len(result.methods)
    lines = result.table().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("| :--")
    assert lines[2].startswith("| Mixture+Hebb ◄ |")


def test_a_data_frame_has_a_row_a_method() -> None:
    pytest.importorskip("pandas")
    result = sample_result(3000)
    frame = result.to_pandas()
    assert list(frame.index) == by_loss(result)
    item = result.methods["hebb"]
    assert frame.loc["hebb", "nll"] == item.nll
    assert frame.loc["hebb", "oov_nll"] == item.oov_nll
    assert frame.loc["hebb", "gain"] == item.gains[0].gain
    assert (
        frame.loc["hebb", "gain_low"] < frame.loc["hebb", "gain"] < frame.loc["hebb", "gain_high"]
    )
    assert frame.loc["lstm", ["gain", "gain_low", "gain_high"]].isna().all()
    assert set(frame.dtypes.astype(str)) == {"float64"}


def test_without_pandas_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[pandas\]'"):
        sample_result(100).to_pandas()


def test_every_committed_result_has_a_verdict() -> None:
    found = [
        path for path in RESULTS.glob("*/result.json") if '"hebblm-result/1"' in path.read_text()
    ]
    assert len(found) >= 10
    for path in found:
        result = Result.load(path)
        text = result.verdict()
        assert "perplexity" in text, path
        assert "nan" not in text
        assert len(result.table().splitlines()) == 2 + len(result.methods)


def test_what_was_checked_stands_below_the_table() -> None:
    result = sample_result(300, methods=("lstm", "mbpa"))
    assert not any("rose" in note or "fast form" in note for note in summary_table(result).notes)
    error = {"queries": 2, "mean": 0.001, "max": 0.002}
    checked = replace(result.methods["mbpa"], rose_queries=1234, extra={"fast_error": error})
    notes = summary_table(replace(result, methods={**result.methods, "mbpa": checked})).notes
    assert "Queries whose neighbours' loss rose: MbPA 1,234." in notes
    assert any("on 2 queries, one in a thousand: 0.00100 nats" in note for note in notes)
