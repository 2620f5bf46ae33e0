"""The model against a step-by-step LSTM in float64, with the masks recovered by drawing them
again.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from awd_lstm import AWDLSTM, AWDLSTMConfig, State, detach, grow_vocabulary
from awd_lstm.model import LSTMLayer, NewRows
from awd_lstm.regularization import connection_mask, locked_mask

V, D, H = 23, 6, 9
RATES = {"dropout": 0.4, "dropouth": 0.25, "dropouti": 0.5, "dropoute": 0.3, "wdrop": 0.5}
NO_RATES = dict.fromkeys(RATES, 0.0)


def build(
    dtype: torch.dtype = torch.float64, layers: int = 3, seed: int = 0, **rates: float
) -> AWDLSTM:
    torch.manual_seed(seed)
    return AWDLSTM(AWDLSTMConfig(V, D, H, layers, **{**RATES, **rates})).to(dtype)


def tokens(batch: int, steps: int, seed: int = 0) -> Tensor:
    return torch.randint(V, (batch, steps), generator=torch.Generator().manual_seed(seed))


def plain_lstm(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the textbook equations step by step, x (T, B, I) -> (T, B, H)."""
    outputs = []
    for step in x:
        i, f, g, o = (step @ w_ih.t() + b_ih + h @ w_hh.t() + b_hh).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), h, c


def redrawn_reference(model: AWDLSTM, ids: Tensor, state: State) -> tuple[Tensor, Tensor]:
    """Return hidden states after and before output dropout (B, T, D) by the plain equations."""
    config, w = model.config, model.embedding
    table = w * (w.new_empty(V, 1).bernoulli_(1 - config.dropoute) / (1 - config.dropoute))
    x = table[ids.t()]
    x = x * locked_mask(x, config.dropouti)
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, LSTMLayer)
        dropped = layer.weight_hh * connection_mask(layer.weight_hh, config.wdrop)
        x, _, _ = plain_lstm(
            x, *state[index], layer.weight_ih, dropped, layer.bias_ih, layer.bias_hh
        )
        if index + 1 < config.layers:
            x = x * locked_mask(x, config.dropouth)
    return (x * locked_mask(x, config.dropout)).transpose(0, 1), x.transpose(0, 1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_a_weight_dropped_layer_equals_the_plain_lstm_with_its_mask(
    dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    layer = LSTMLayer(5, 8, wdrop=0.5).to(dtype).train()
    x = torch.randn(11, 3, 5, dtype=dtype)
    state = torch.randn(3, 8, dtype=dtype), torch.randn(3, 8, dtype=dtype)
    upstream = torch.randn(11, 3, 8, dtype=torch.float64)

    torch.manual_seed(7)
    output, (h, c) = layer(x, state)
    torch.manual_seed(7)
    mask = connection_mask(torch.empty(32, 8, dtype=dtype), 0.5).double()
    weights = [p.detach().double().requires_grad_() for p in layer.parameters()]  # ih, hh, biases
    x64, h64, c64 = x.double(), state[0].double(), state[1].double()
    reference = plain_lstm(x64, h64, c64, weights[0], weights[1] * mask, *weights[2:])

    assert 0.4 < (mask == 0).double().mean() < 0.6
    for got, want in zip((output, h, c), reference, strict=True):
        assert_close(got.double(), want, rtol=tolerance, atol=tolerance)
    got_grads = torch.autograd.grad((output.double() * upstream).sum(), list(layer.parameters()))
    want_grads = torch.autograd.grad((reference[0] * upstream).sum(), weights)
    for mine, true in zip(got_grads, want_grads, strict=True):
        assert_close(mine.double(), true, rtol=tolerance, atol=10 * tolerance)
    assert torch.equal(got_grads[1][mask == 0], torch.zeros_like(got_grads[1][mask == 0]))


def test_a_layer_trained_in_bfloat16_is_near_its_plain_form_and_evaluates_in_full() -> None:
    torch.manual_seed(0)
    layer = LSTMLayer(20, 30, wdrop=0.3)
    x, state = torch.randn(11, 3, 20), (torch.randn(3, 30), torch.randn(3, 30))
    upstream = torch.randn(11, 3, 30)

    def run(products: torch.dtype | None) -> tuple[Tensor, ...]:
        layer.products = products
        torch.manual_seed(7)
        output, (h, c) = layer(x, state)
        return (
            output,
            h,
            c,
            *torch.autograd.grad((output * upstream).sum(), list(layer.parameters())),
        )

    plain, low = run(None), run(torch.bfloat16)
    for value, wanted in zip(low, plain, strict=True):
        assert value.dtype == torch.float32
        assert not torch.equal(value, wanted)
        assert (value - wanted).norm() < 0.03 * wanted.norm()
    layer.eval()
    assert all(torch.equal(*pair) for pair in zip(run(None), run(torch.bfloat16), strict=True))


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 999),
    layers=st.integers(1, 3),
    batch=st.integers(1, 3),
    steps=st.integers(1, 5),
)
def test_training_equals_the_plain_model_with_the_same_masks(
    seed: int, layers: int, batch: int, steps: int
) -> None:
    model = build(layers=layers, seed=seed).train()
    ids = tokens(batch, steps, seed)
    state = tuple((torch.randn_like(h), torch.randn_like(c)) for h, c in model.initial_state(batch))
    torch.manual_seed(seed + 1)
    out = model(ids, state)
    torch.manual_seed(seed + 1)
    hidden, raw = redrawn_reference(model, ids, state)
    assert_close(out.hidden, hidden, rtol=1e-12, atol=1e-12)
    assert_close(out.raw, raw, rtol=1e-12, atol=1e-12)
    # the head is not in the loss
    parameters = [p for name, p in model.named_parameters() if name != "bias"]
    got = [grad.to_dense() for grad in torch.autograd.grad(out.hidden.square().sum(), parameters)]
    want = list(torch.autograd.grad(hidden.square().sum(), parameters))
    assert_close(got, want, rtol=1e-10, atol=1e-12)


def test_evaluation_is_deterministic_and_knows_no_dropout() -> None:
    model, without = build().eval(), build(**NO_RATES).train()
    without.load_state_dict(model.state_dict())
    ids, state = tokens(2, 7), model.initial_state(2)
    out = model(ids, state)
    assert torch.equal(out.hidden, model(ids, state).hidden)
    assert torch.equal(out.hidden, out.raw)
    assert torch.equal(out.hidden, without(ids, state).hidden)
    assert not torch.equal(out.hidden, model.train()(ids, state).hidden)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(1, 12), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_reading_in_segments_of_any_length_changes_nothing(cuts: list[int], seed: int) -> None:
    model = build().eval()
    ids = tokens(2, sum(cuts), seed)
    whole = model(ids, model.initial_state(2))
    state, parts = model.initial_state(2), []
    for segment in ids.split(cuts, dim=1):
        out = model(segment, detach(state))
        state = out.state
        parts.append(out.hidden)
    assert_close(torch.cat(parts, 1), whole.hidden, rtol=1e-12, atol=1e-12)
    assert_close(state, whole.state, rtol=1e-12, atol=1e-12)


def test_a_sequence_does_not_depend_on_those_beside_it() -> None:
    model = build().eval()
    ids = tokens(3, 8)
    together = model(ids, model.initial_state(3)).hidden
    alone = model(ids[1:2], model.initial_state(1)).hidden
    assert_close(together[1:2], alone, rtol=1e-12, atol=1e-12)


def test_the_softmax_is_tied_to_the_embedding() -> None:
    model = build().eval()
    hidden = torch.randn(2, 4, D, dtype=torch.float64)
    assert_close(model.logits(hidden), hidden @ model.embedding.t() + model.bias)
    with torch.no_grad():
        model.embedding[5] += 1.0
    assert_close(model.logits(hidden)[..., 5], hidden @ model.embedding[5] + model.bias[5])


@pytest.mark.parametrize("training", [True, False])
def test_no_pass_warns(training: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = build(torch.float32).train(training)
        state = model.initial_state(4)
        for seed in range(3):
            out = model(tokens(4, 12, seed), detach(state))
            state = out.state
            model.logits(out.hidden).square().mean().backward()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu_and_does_not_warn() -> None:
    model, ids = build(torch.float32, **NO_RATES).train(), tokens(4, 30)
    there = build(torch.float32, **NO_RATES).cuda().train()
    there.load_state_dict(model.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        far = there(ids.cuda(), there.initial_state(4))
        far.hidden.square().sum().backward()
        with torch.no_grad():
            assert_close(
                there.eval()(ids.cuda(), there.initial_state(4)).hidden, far.hidden.detach()
            )
    near = model(ids, model.initial_state(4))
    near.hidden.square().sum().backward()
    assert_close(far.hidden.cpu(), near.hidden, rtol=1e-4, atol=1e-4)
    for mine, true in zip(there.parameters(), model.parameters(), strict=True):
        if true.grad is not None and mine.grad is not None:
            assert_close(mine.grad.cpu(), true.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("init", ["zero", "uniform", "mean"])
def test_new_words_leave_the_old_logits_unchanged(init: NewRows) -> None:
    model = build().eval()
    with torch.no_grad():
        model.bias.uniform_(-1, 1)
    ids = tokens(2, 5)
    before = model(ids, model.initial_state(2)).hidden
    rows, biases, logits = (
        model.embedding.detach().clone(),
        model.bias.detach().clone(),
        model.logits(before),
    )
    grow_vocabulary(model, 4, init, torch.Generator().manual_seed(3))
    after = model(ids, model.initial_state(2)).hidden
    assert torch.equal(after, before)
    assert_close(model.logits(after)[..., :V], logits, rtol=1e-14, atol=1e-14)
    assert model.logits(after).shape[-1] == V + 4
    assert model.config.vocabulary_size == V + 4
    assert torch.equal(model.embedding[:V], rows)
    new, new_bias = model.embedding[V:], model.bias[V:]
    if init == "mean":
        assert_close(new, rows.mean(0).expand(4, D))
        assert_close(new_bias, biases.mean().expand(4))
    else:
        assert torch.equal(new_bias, torch.zeros(4, dtype=torch.float64))
    if init == "zero":
        assert torch.equal(new, torch.zeros(4, D, dtype=torch.float64))
    if init == "uniform":
        assert len(new.unique()) == new.numel()
        assert new.abs().max() <= 0.1
        assert new.abs().max() > 0.05


def test_uniform_rows_come_from_the_generator() -> None:
    first, second, third = build(), build(), build()
    grow_vocabulary(first, 2, "uniform", torch.Generator().manual_seed(1))
    grow_vocabulary(second, 2, "uniform", torch.Generator().manual_seed(1))
    grow_vocabulary(third, 2, "uniform", torch.Generator().manual_seed(2))
    assert torch.equal(first.embedding, second.embedding)
    assert not torch.equal(first.embedding, third.embedding)


def test_new_words_can_be_read_and_trained() -> None:
    model = build().train()
    grow_vocabulary(model, 3)
    out = model(torch.tensor([[V + 2, 0, V]]), model.initial_state(1))
    model.logits(out.hidden).square().sum().backward()
    assert model.embedding.grad is not None
    assert model.embedding.grad.shape == (V + 3, D)
