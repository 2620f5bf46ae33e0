from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hebblm.evaluation.metrics import method_result
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.report import MethodResult
from hebblm.report.parts import recombine

from ...support import toy


def summarised(nll: np.ndarray, ids: np.ndarray | None = None, **changes: object) -> MethodResult:
    stream = toy.stream_of(toy.tokens(0, len(nll)) if ids is None else ids)
    arguments = {
        "hyperparameters": {},
        "seconds": 2.0,
        "stabilized": None,
        "edges": (50, 100, 500),
        "whole": True,
    }
    return method_result(nll.astype(np.float32), stream, **{**arguments, **changes})  # type: ignore[arg-type]


@given(seed=st.integers(0, 1000), count=st.integers(1, 400), edge=st.integers(1, 3000))
def test_buckets_and_vocabulary_parts_recombine_to_the_whole(seed: int, count: int, edge: int) -> None:
    nll, ids = np.random.default_rng(seed).exponential(5, count), toy.tokens(seed, count)
    result = summarised(nll, ids, edges=(edge, edge + 7))
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
    stream = replace(toy.stream_of(ids), words=17, lines=3, bytes=123)  # as if words were cut into pieces
    options = {"hyperparameters": {}, "seconds": 1.0, "stabilized": 4, "edges": (10,)}
    nll = np.linspace(1, 3, 50).astype(np.float32)
    whole = method_result(nll, stream, whole=True, **options)  # type: ignore[arg-type]
    total = float(nll.astype(float).sum())
    assert whole.words_perplexity == pytest.approx(math.exp(total / 20))
    assert whole.bits_per_byte == pytest.approx(total / math.log(2) / 123)
    assert whole.stabilized_queries == 4
    assert whole.rose_queries is None
    counted = method_result(nll, stream, whole=True, rose=7, errors=[0.0, 0.3], **options)  # type: ignore[arg-type]
    assert counted.rose_queries == 7
    assert counted.extra == {"fast_error": {"queries": 2, "mean": 0.15, "max": 0.3}}
    assert whole.extra == {}
    part = method_result(nll, stream, whole=False, **options)  # type: ignore[arg-type]
    assert part.words_perplexity is part.bits_per_byte is None


def test_a_zero_probability_is_an_infinite_loss_and_never_dropped() -> None:
    log_probs = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf]])
    nll = UnionVocabulary().score(log_probs, torch.tensor([0, 1])).numpy()
    result = summarised(nll, np.array([0, 1]))
    assert result.nll == result.perplexity == math.inf
    assert sum(bucket.tokens for bucket in result.frequency) == 2
    assert any(bucket.nll == math.inf for bucket in result.frequency)


def test_speed_is_tokens_by_seconds() -> None:
    assert summarised(np.ones(50), seconds=4.0).tokens_per_second == 12.5
    assert summarised(np.ones(50)).running[-1] == (50, 1.0)
