from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.report.result.parts import parse_edges
from hebblm.report.result.tokens import TokenLosses, check_same_run, running_curve, with_edges
from hebblm.report.tables.texts import word_table

from .samples import sample_result, sample_tokens


def write_parquet(path: Path, tokens: TokenLosses) -> Path:
    columns = {
        "position": np.arange(tokens.words.size),
        "token": tokens.words.tolist(),
        "train_count": tokens.train_counts,
        "is_oov": tokens.oov,
        **{f"nll_{method}": losses for method, losses in tokens.nll.items()},
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_round_trip_in_which_one_long_word_takes_no_memory_for_the_others(
    tmp_path: Path,
) -> None:
    tokens = sample_tokens(1000)
    tokens.words[0] = "x" * 4096
    path = write_parquet(tmp_path / "tokens.parquet", tokens)
    tracemalloc.start()
    try:
        loaded = TokenLosses.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
    assert (loaded.words == tokens.words).all()
    assert (loaded.train_counts == tokens.train_counts).all()
    assert (loaded.oov == tokens.oov).all()
    assert set(loaded.nll) == set(tokens.nll)
    assert all((loaded.nll[method] == tokens.nll[method]).all() for method in tokens.nll)


def test_bad_token_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tokens.parquet"
    with pytest.raises(UserError, match="log_samples=True"):
        TokenLosses.load(path)
    write_parquet(path, sample_tokens(300))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="not a readable parquet"):
        TokenLosses.load(path)
    pq.write_table(pa.table({"token": ["a"], "train_count": [1], "is_oov": [False]}), path)
    with pytest.raises(UserError, match="nll_"):
        TokenLosses.load(path)
    pq.write_table(pa.table({"token": ["a"], "train_count": [1], "nll_lstm": [1.0]}), path)
    with pytest.raises(UserError, match="'is_oov'"):
        TokenLosses.load(path)
    columns = {"token": ["a"], "train_count": [1], "is_oov": [False], "nll_lstm": [float("nan")]}
    pq.write_table(pa.table(columns), path)
    with pytest.raises(UserError, match=r"nan.*'lstm'"):
        TokenLosses.load(path)
    for column, told in (
        ([float("nan")], "among the pieces"),
        (["two"], "'pieces' does not hold numbers"),
    ):
        pq.write_table(pa.table({**columns, "nll_lstm": [1.0], "pieces": column}), path)
        with pytest.raises(UserError, match=told):
            TokenLosses.load(path)
    offsets, letters = pa.py_buffer(struct.pack("<2i", 0, 1)), pa.py_buffer(b"\x81")
    no_text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, letters])
    pq.write_table(pa.table({**columns, "token": no_text, "nll_lstm": [1.0]}), path)
    with pytest.raises(UserError, match="not a readable parquet"):
        TokenLosses.load(path)


def test_other_edges_recombine_to_the_same_loss() -> None:
    result = with_edges(sample_result(500), sample_tokens(500), [10, 1000])
    item = result.methods["hebb"]
    assert [bucket.bucket for bucket in item.frequency] == ["<10", "10-1000", ">1000"]
    total = sum(bucket.tokens * (bucket.nll or 0.0) for bucket in item.frequency) / 500
    assert total == pytest.approx(item.nll, abs=1e-12)
    parts = {gain.part: gain.tokens for gain in item.gains}
    assert [parts[bucket.bucket] for bucket in item.frequency] == [
        bucket.tokens for bucket in item.frequency
    ]
    assert "50-100" not in parts


def test_bad_edges_are_refused_before_anything_is_counted() -> None:
    assert parse_edges(["50,100", 500]) == parse_edges([50, 100, 500]) == (50, 100, 500)
    for edges in ([], [50, 10], [0], [5, "x"]):
        with pytest.raises(UserError, match="frequency edges"):
            with_edges(sample_result(200), sample_tokens(200), edges)


def test_tokens_of_another_run_are_refused() -> None:
    with pytest.raises(UserError, match="400 tokens"):
        with_edges(sample_result(500), sample_tokens(400), [50])
    other = TokenLosses(
        **{name: getattr(sample_tokens(500), name) for name in ("words", "train_counts", "oov")},
        nll={method: losses + 0.1 for method, losses in sample_tokens(500).nll.items()},
    )
    with pytest.raises(UserError, match="averages"):
        with_edges(sample_result(500), other, [50])
    with pytest.raises(UserError, match="'hebb'"):
        check_same_run(
            sample_result(500, methods=("lstm", "hebb")), sample_tokens(500, methods=("lstm",))
        )


@settings(deadline=None)
@given(st.lists(st.floats(0, 50), min_size=1, max_size=300), st.integers(1, 50))
def test_running_curve_against_plain_means(losses: list[float], points: int) -> None:
    assert running_curve(np.zeros(0)) == ()
    curve = running_curve(np.asarray(losses), points)
    assert 1 <= len(curve) <= points
    assert curve[-1][0] == len(losses)
    assert [at for at, _ in curve] == sorted({at for at, _ in curve})
    for position, mean in curve:
        assert mean == pytest.approx(float(np.mean(losses[:position])), abs=1e-9)


def test_word_gains_are_sums_over_occurrences() -> None:
    result = sample_result(4, source="ptb", target="ptb", methods=("lstm", "hebb"))
    tokens = TokenLosses(
        words=np.asarray(["a", "b", "a", "c"], dtype=np.object_),
        train_counts=np.asarray([5, 6, 5, 7]),
        oov=np.asarray([True, False, True, False]),
        nll={"lstm": np.asarray([3.0, 1.0, 3.0, 2.0]), "hebb": np.asarray([1.0, 2.0, 2.0, 2.0])},
    )
    best = {
        name: replace(item, nll=1.75 if name == "hebb" else 2.25)
        for name, item in result.methods.items()
    }
    table = word_table(replace(result, methods=best), tokens)
    assert table is not None
    assert table.cells() == [("a", 2, 5, "yes", 3.0, 1.5), ("b", 1, 6, "no", -1.0, -1.0)]
    for alone in (("lstm",), ("hebb", "mbpa")):
        assert word_table(sample_result(50, methods=alone), sample_tokens(50)) is None


def test_infinite_losses_do_not_spoil_word_gains() -> None:
    tokens = sample_tokens(200, methods=("lstm", "hebb"))
    tokens.nll["hebb"][0] = np.inf
    result = sample_result(200, methods=("lstm", "hebb"))
    infinite = replace(result.methods["hebb"], nll=np.inf, perplexity=np.inf)
    table = word_table(replace(result, methods={**result.methods, "hebb": infinite}), tokens)
    assert table is not None
    assert all(np.isfinite(row[4]) for row in table.cells() if isinstance(row[4], float))
