from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.predictor import Predictor
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.vocabulary import OpenVocabulary, UnionVocabulary
from hebblm.memory import FlatMemory
from hebblm.models.awd import AwdBase
from hebblm.models.dynamic import DynamicBase, DynamicConfig

from ...support import toy


def checked_vocabulary(rows_seen: list[int]) -> OpenVocabulary:
    """Return a vocabulary that proves every scored distribution to be one over everything that can
    occur.
    """

    class Checked(OpenVocabulary):
        def losses(self, predictor: Predictor, batch: EvalBatch, targets: Tensor) -> Tensor:
            losses, log_probs = (
                super().losses(predictor, batch, targets),
                predictor.log_probs(batch),
            )
            full = toy.open_distribution(self, log_probs)
            assert full.shape[1] == self.size
            assert torch.allclose(
                full.exp().sum(1), torch.ones(len(full), dtype=full.dtype), atol=1e-5, rtol=0
            )
            # The steps of this rate change logits by 200 nats, which single precision holds to
            # 2e-5.
            assert torch.allclose(losses, -full.gather(1, targets[:, None]).squeeze(1), atol=5e-5)
            return losses

        def charged(self, losses: Tensor, targets: Tensor, rows: int) -> Tensor:
            rows_seen.append(rows)
            return super().charged(losses, targets, rows)

    return Checked(toy.UNK, toy.WORDS, 0.4)


@pytest.mark.parametrize("lr", [0.0, 0.3], ids=["fixed", "moving"])
def test_a_row_appears_when_its_word_is_first_observed_and_all_sums_to_one(lr: float) -> None:
    ids = toy.by_first_appearance(toy.tokens(8, 260))
    assert len(np.unique(ids[ids >= toy.SOURCE])) >= 2
    stream = toy.stream_of(ids)
    base = toy.base_of(toy.tiny_model(), rows=0, lr=lr)
    context = toy.context_of(base, FlatMemory(toy.DIM), stream, novel=True)
    predictors = {name: METHODS[name].predictor(toy.SETTINGS) for name in STATIC_METHODS}
    rows: list[int] = []
    scores = evaluate(base, [context], predictors, stream, checked_vocabulary(rows), Schedule(10))
    expected = [
        max(toy.SOURCE, ids[:start].max(initial=0) + 1)
        for start in range(0, len(ids), 10)
        for _ in STATIC_METHODS
    ]
    assert rows == expected
    assert rows[0] == toy.SOURCE
    assert len(set(rows)) > 1
    assert base.model.embedding.shape[0] == base.model.bias.shape[0] == ids.max() + 1
    assert context.new_classes is not None
    assert int(context.new_classes.sum()) == ids.max() + 1 - toy.SOURCE
    assert all(np.isfinite(losses).all() for losses in scores.nll.values())


def test_dynamic_evaluation_grows_too() -> None:
    ids = toy.by_first_appearance(toy.tokens(8, 200))
    stream, rows = toy.stream_of(ids), []
    model = toy.tiny_model()
    squares = [p.detach().square() + 0.1 for p in model.parameters()]
    for base in (
        DynamicBase(AwdBase(model), DynamicConfig("sgd", lr=0.1), None),
        DynamicBase(AwdBase(model), DynamicConfig("rms", lr=0.01), squares),
    ):
        nll = toy.alone(base, stream, checked_vocabulary(rows), segment=10)
        assert np.isfinite(nll).all()
        assert base.head.weight.shape[0] == ids.max() + 1
    assert rows[0] == toy.SOURCE < rows[-1]


@given(seed=st.integers(0, 10_000), rows=st.integers(3, 9), share=st.floats(0.01, 0.99))
def test_distribution_sums_to_one_and_score_gathers_from_it(
    seed: int, rows: int, share: float
) -> None:
    vocabulary = OpenVocabulary(unk=1, size=9, share=share)
    log_probs = toy.randn(seed, 9, rows, dtype=torch.float64).log_softmax(1)
    before = log_probs.clone()
    full = toy.open_distribution(vocabulary, log_probs)
    assert torch.allclose(full.exp().sum(1), torch.ones(9, dtype=torch.float64), atol=1e-12)
    targets = torch.arange(9)
    expected = -full[targets, targets]
    losses = -log_probs[targets, vocabulary.readable(targets, rows)]
    assert torch.allclose(vocabulary.charged(losses, targets, rows), expected, atol=1e-12)
    assert torch.equal(log_probs, before)
    assert vocabulary.readable(targets, rows).tolist() == [t if t < rows else 1 for t in range(9)]
    assert vocabulary.new_rows(targets[:4], rows) == max(0, 4 - rows)


def test_union_charges_every_word_by_its_own_row() -> None:
    vocabulary, targets = UnionVocabulary(), torch.tensor([6, 0, 3, 3, 1])
    model = toy.base_of(toy.tiny_model())
    context = toy.context_of(model, FlatMemory(toy.DIM), toy.stream_of(targets.numpy()))
    batch = EvalBatch(toy.randn(0, 5, toy.DIM), context)
    losses = vocabulary.losses(METHODS["lstm"].predictor(toy.SETTINGS), batch, targets)
    assert torch.allclose(losses, -batch.log_probs[torch.arange(5), targets])
    assert torch.equal(vocabulary.readable(targets, 4), targets)
    assert vocabulary.new_rows(targets, 7) == 0
