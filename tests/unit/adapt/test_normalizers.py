from __future__ import annotations

import pytest
import torch

from hebblm.adapt.functional import log_normalizers, normalizers, with_rows
from hebblm.types import OutputHead

from ...support import toy


def head_of(rows: int, bias: bool) -> OutputHead:
    offset = toy.randn(2, rows, dtype=torch.float64)
    return OutputHead(toy.randn(1, rows, toy.DIM, dtype=torch.float64), offset if bias else None)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "logits"), [(1024, 2**19), (3, 3 * 4), (5, 1)])
def test_cuts_change_nothing(
    bias: bool, rows: int, logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normalizers, "ROWS", rows)
    monkeypatch.setattr(normalizers, "LOGITS", logits)
    head, keys = head_of(11, bias), toy.randn(3, 7, toy.DIM, dtype=torch.float64)
    expected = torch.stack([head.logits(key).exp().sum().log() for key in keys])
    torch.testing.assert_close(log_normalizers(keys, head), expected, rtol=1e-13, atol=1e-14)
    assert log_normalizers(keys[:0], head).shape == (0,)


@pytest.mark.parametrize("scale", [1e-6, 30.0, 1e4])
@pytest.mark.parametrize(("offset", "bias"), [(-1e4, True), (95.0, True), (0.0, False)])
def test_in_float32_it_is_that_of_float64(scale: float, offset: float, bias: bool) -> None:
    keys, weight = toy.randn(5, 1500, toy.DIM), toy.randn(6, 3001, toy.DIM) * scale
    head = OutputHead(weight, toy.randn(7, 3001) + offset if bias else None)
    wide = OutputHead(weight.double(), None if head.bias is None else head.bias.double())
    found = log_normalizers(keys, head)
    assert found.dtype == torch.float32
    expected = wide.logits(keys.double()).logsumexp(1)
    # Logits are sums of products of the size of the largest, each rounded.
    largest = float((keys.double().abs() @ weight.double().abs().t()).amax()) + abs(offset) * bias
    assert float((found - expected).abs().max()) < 1e-6 + 4e-7 * largest


def test_a_class_may_be_ruled_out() -> None:
    head, keys = head_of(11, True), toy.randn(3, 7, toy.DIM, dtype=torch.float64)
    assert head.bias is not None
    head.bias[4:] = -torch.inf
    expected = log_normalizers(keys, OutputHead(head.weight[:4], head.bias[:4]))
    torch.testing.assert_close(log_normalizers(keys, head), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("bias", [True, False])
def test_further_rows_belong_to_the_normalizer(bias: bool) -> None:
    head, keys = head_of(11, bias), toy.randn(3, 7, toy.DIM, dtype=torch.float64)
    known = OutputHead(head.weight[:6], None if head.bias is None else head.bias[:6])
    for rows in (slice(6, 11), slice(6, 6)):
        new = OutputHead(head.weight[rows], None if head.bias is None else head.bias[rows])
        both = OutputHead(
            torch.cat([known.weight, new.weight]),
            None if known.bias is None or new.bias is None else torch.cat([known.bias, new.bias]),
        )
        torch.testing.assert_close(
            with_rows(log_normalizers(keys, known), keys, new), log_normalizers(keys, both)
        )


def test_rows_that_are_equal_are_counted() -> None:
    head, keys = head_of(4, True), toy.randn(3, 7, toy.DIM, dtype=torch.float64)
    assert head.bias is not None
    index = torch.tensor([0, 0, 0, 1, 1, 2])
    repeated = OutputHead(head.weight[index], head.bias[index])
    nothing = torch.full((7,), -torch.inf, dtype=torch.float64)
    torch.testing.assert_close(with_rows(nothing, keys, repeated), log_normalizers(keys, repeated))


def test_zero_rows_add_exactly_their_number() -> None:
    normalizers = torch.tensor([0.0, 3.0, -2.0], dtype=torch.float64)
    zero = OutputHead(
        torch.zeros(800, 5, dtype=torch.float64), torch.zeros(800, dtype=torch.float64)
    )
    expected = (normalizers.exp() + 800).log()
    unread = torch.full((3, 5), torch.nan, dtype=torch.float64)
    torch.testing.assert_close(with_rows(normalizers, unread, zero), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_out_of_range_are_taken_again(dtype: torch.dtype) -> None:
    keys = torch.eye(4, dtype=dtype)[[0, 1, 2, 3, 0]]
    head = OutputHead(
        torch.tensor([[2000.0, -2000.0, 0.0, -110.0]] * 3, dtype=dtype),
        torch.arange(3, dtype=dtype),
    )
    expected = head.logits(keys).logsumexp(1)
    assert (expected.abs() > 100).sum() == 4
    torch.testing.assert_close(log_normalizers(keys, head), expected, rtol=1e-6, atol=0)
