from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.summary import method_result
from hebblm.report import MethodResult
from hebblm.report.result.parts import recombine
from hebblm.text import EvaluationStream
from hebblm.text.words import words_of

from ...support import toy


def summarised(
    nll: np.ndarray,
    stream: EvaluationStream | None = None,
    *,
    seconds: float = 2.0,
    errors: tuple[float, ...] = (),
    edges: tuple[int, ...] = (50, 100, 500),
    whole: bool = True,
    checked: bool = True,
) -> MethodResult:
    scores = EvaluationScores({"hebb": nll.astype(np.float32)})
    scores.seconds["hebb"] = seconds
    scores.loss_increased["hebb"], scores.retried["hebb"] = 7, 4
    scores.errors["hebb"] += errors
    stream = toy.stream_of(toy.tokens(0, len(nll))) if stream is None else stream
    return method_result("hebb", scores, stream, {}, edges, measured=whole, checked=checked)


@given(seed=st.integers(0, 1000), count=st.integers(1, 400), edge=st.integers(1, 3000))
def test_buckets_and_vocabulary_parts_recombine_to_the_whole(
    seed: int, count: int, edge: int
) -> None:
    nll, ids = np.random.default_rng(seed).exponential(5, count), toy.tokens(seed, count)
    result = summarised(nll, toy.stream_of(ids), edges=(edge, edge + 7))
    assert recombine(result.frequency) == pytest.approx(result.nll, rel=1e-9)
    assert sum(bucket.tokens for bucket in result.frequency) == count
    oov = int((ids >= toy.SOURCE).sum())
    parts = (result.oov_nll or 0) * oov + (result.in_vocabulary_nll or 0) * (count - oov)
    assert parts / count == pytest.approx(result.nll, rel=1e-9)
    assert (result.oov_nll is None) == (oov == 0)
    assert (result.in_vocabulary_nll is None) == (oov == count)
    assert result.perplexity == pytest.approx(math.exp(result.nll))
    assert sum(bucket.tokens for bucket in result.oov_occurrences) == oov
    if oov:
        assert recombine(result.oov_occurrences) == pytest.approx(result.oov_nll, rel=1e-9)


def test_perplexity_a_word_and_bits_a_byte_count_the_text_and_not_its_pieces() -> None:
    ids = toy.tokens(0, 50)
    # as if words were cut into pieces
    stream = replace(toy.stream_of(ids), words=17, lines=3, bytes=123)
    nll = np.linspace(1, 3, 50).astype(np.float32)
    whole = summarised(nll, stream, checked=False)
    total = float(nll.astype(float).sum())
    assert whole.words_perplexity == pytest.approx(math.exp(total / 20))
    # each is spelled once
    new = {stream.symbols[index] for index in ids.tolist() if index >= toy.SOURCE}
    assert new
    bits = total / math.log(2) + 8 * sum(len(word) + 1 for word in new)
    assert whole.bits_per_byte == pytest.approx(bits / 123)
    assert whole.piece_nll is whole.piece_perplexity is None
    assert whole.stabilized_queries is whole.rose_queries is None
    counted = summarised(nll, stream, errors=(0.0, 0.3))
    assert (counted.rose_queries, counted.stabilized_queries) == (7, 4)
    assert counted.extra == {"fast_error": {"queries": 2, "mean": 0.15, "max": 0.3}}
    assert whole.extra == {}
    part = summarised(nll, stream, whole=False)
    assert part.words_perplexity is part.bits_per_byte is None


def test_pieces_have_losses_of_their_own_and_words_the_sums_of_theirs() -> None:
    pieces = toy.stream_of(toy.tokens(0, 4))
    words = toy.stream_of(np.array([3, 4]))
    lie = words_of("ab c", [(0, 1), (1, 2), (2, 4), (4, 4)])
    spelled = np.array([0, 5, 0, 0])
    found = summarised(
        np.array([1.0, 2, 3, 4]),
        replace(pieces, pieces=lie, by_word=words, unknown=spelled, bytes=4),
    )
    assert (found.nll, found.piece_nll) == (5.0, 2.5)
    assert found.perplexity == pytest.approx(math.exp(5))
    assert found.piece_perplexity == pytest.approx(math.exp(2.5))
    assert found.bits_per_byte == pytest.approx((10 / math.log(2) + 8 * 5) / 4)


def test_a_zero_probability_is_an_infinite_loss_and_never_dropped() -> None:
    log_probs = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf]])
    nll = -log_probs[[0, 1], [0, 1]].numpy()
    result = summarised(nll, toy.stream_of(np.array([0, 1])))
    assert result.nll == result.perplexity == math.inf
    assert sum(bucket.tokens for bucket in result.frequency) == 2
    assert any(bucket.nll == math.inf for bucket in result.frequency)


def test_speed_is_tokens_by_seconds() -> None:
    assert summarised(np.ones(50), seconds=4.0).tokens_per_second == 12.5
    assert summarised(np.ones(50)).running[-1] == (50, 1.0)
