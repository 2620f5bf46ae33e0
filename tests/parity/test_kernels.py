"""Compiled kernels beside their plain forms."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.solvers import compiled, fast, newton
from hebblm.errors import UserError
from hebblm.kernels import forms, tensors
from hebblm.memory import FlatMemory
from hebblm.memory.base import signed_sqrt
from hebblm.memory.causal import WrittenBlock
from hebblm.memory.found import Found
from hebblm.types import Neighbors, OutputHead

from .problems import language_like

pytest.importorskip("numba")
OPTIONS = {
    "lr": 0.0, "steps": 3, "eps": 3e-3, "solver": "fast", "optimizer": "newton",
    "l2_to_base": 0.0035, "scale": "relative",
}  # fmt: skip
WEIGHTS = torch.tensor([[0.0, 0.5, 1.0, 1.5]])


@pytest.fixture(params=["float32", "bfloat16"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Compute in one form, whatever the environment says."""
    monkeypatch.setenv(forms.VARIABLE, request.param)
    forms.form.cache_clear()
    if forms.form() != request.param:
        pytest.skip("the processor has no products of bfloat16")
    yield request.param
    forms.form.cache_clear()


def half(tensor: Tensor) -> Tensor:
    """Return numbers that are exact in bfloat16."""
    return tensor.bfloat16().float()


def problem(
    seed: int = 5, *, n: int = 9, k: int = 40, d: int = 24, v: int = 900, bias: bool = True,
    cap: float | None = None,
) -> tuple[Tensor, Neighbors, OutputHead]:  # fmt: skip
    """Return queries, neighbours and head; the second query has few neighbours, the third none, the
    fourth neighbours of one label.
    """
    hidden, near, head = language_like(seed, n=n, k=k, d=d, v=v)
    hidden, keys, weight = half(hidden.float()), half(near.keys.float()), half(head.weight.float())
    known = OutputHead(
        weight, half(head.bias.float()) if bias and head.bias is not None else None, cap
    )
    mask, values = near.mask.clone(), near.values.clone()
    mask[1, 3:] = False
    mask[2] = False
    values[3] = values[3, 0]
    distances = (keys - hidden[:, None]).square().sum(2)
    order = distances.argsort(1)
    keys = keys.gather(1, order[:, :, None].expand_as(keys)).masked_fill(~mask[:, :, None], 0)
    distances = distances.gather(1, order).masked_fill(~mask, torch.inf)
    logs = known.logits(keys).logsumexp(2)
    return hidden, Neighbors(keys, values.masked_fill(~mask, 0), distances, mask, logs), known


def plainly(monkeypatch: pytest.MonkeyPatch, *given: object, **options: object) -> F.MbpaResult:
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "applies", lambda *ignored: False)
        return F.mbpa_delta(*given, **{**OPTIONS, **options})  # type: ignore[arg-type]


def in_float64(near: Neighbors, hidden: Tensor, head: OutputHead, *, roots: bool = False) -> Tensor:
    """Return the change (N, V) by the plain form in float64."""
    bias = None if head.bias is None else head.bias.double()
    wide = OutputHead(head.weight.double(), bias, head.cap)
    logs = near.log_normalizers
    assert logs is not None
    known = Neighbors(
        near.keys.double(), near.values, near.distances.double(), near.mask, logs.double()
    )
    queries = hidden.double()
    return F.mbpa_delta(
        queries, known, wide, wide.logits(queries), signed_sqrt=roots, **OPTIONS
    ).delta


def total_change(one: Tensor, other: Tensor, logits: Tensor) -> Tensor:
    """Return the mean difference (N,) of log-probabilities, weighed by what they are of, nats."""
    first, second = (logits + one).log_softmax(1), (logits + other).log_softmax(1)
    return (first.exp() * (first - second).abs()).sum(1)


@pytest.mark.parametrize("classes", [3, 31, 32, 65, 1000, 4097])
def test_row_statistics(form: str, classes: int) -> None:
    logits = 5 * torch.randn(7, classes)
    logits[2, 1] = -torch.inf
    logits[3] = 2.0  # all alike: the first is the favourite
    logits[4, -1] = 40.0
    found, favorite = tensors.row_statistics(logits)
    log_p = logits.double().log_softmax(1)
    close = {"rtol": 1e-5, "atol": 2e-6, "check_dtype": False}
    torch.testing.assert_close(found[:, 0], logits.double().logsumexp(1), **close)
    torch.testing.assert_close(found[:, 1], torch.special.entr(log_p.exp()).sum(1), **close)
    torch.testing.assert_close(found[:, 2], log_p.amax(1), **close)
    assert torch.equal(favorite, logits.argmax(1))


@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_so(form: str, odd: float) -> None:
    hidden, near, head = problem()
    logits = head.logits(hidden)
    logits[0, 7] = odd
    found, _ = tensors.row_statistics(logits)
    assert found[0].isnan().any()
    assert found[1:].isfinite().all()
    normalizers = logits.logsumexp(1)
    result = F.mbpa_delta(hidden, near, head, logits, normalizers=normalizers, **OPTIONS)
    assert isinstance(result.change, F.CompactChange)
    losses = result.change.losses(torch.zeros(len(hidden), dtype=torch.int64), WEIGHTS.expand(9, 4))
    assert losses[0].isnan().all()
    assert losses[1:].isfinite().all()


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"bias": False},
        {"cap": 4.0},
        {"d": 33, "v": 1001},
        {"k": 3, "d": 5, "v": 203},
        {"k": 200, "d": 64, "v": 5000, "n": 4},
        {"k": 100, "d": 16, "v": 403, "n": 4},  # more labels than some queries leave room for
    ],
)
def test_newton_steps(form: str, shape: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, near, head = problem(**shape)
    logits = head.logits(hidden)
    found = F.mbpa_delta(hidden, near, head, logits, **OPTIONS)
    plain = plainly(monkeypatch, hidden, near, head, logits)
    assert compiled.applies(hidden, near, head, logits)
    assert plain.delta.abs().amax(1)[[0, 1, 3]].min() > 0.1
    assert not found.delta[2].any()
    assert torch.equal(found.loss_increased, plain.loss_increased)
    exact = in_float64(near, hidden, head)
    assert total_change(found.delta, exact, logits.double()).max() < 3e-5
    assert total_change(plain.delta, exact, logits.double()).max() < 3e-5


def test_which_classes_are_followed(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, near, head = problem()
    logits = head.logits(hidden)
    found = F.mbpa_delta(hidden, near, head, logits, **OPTIONS).change
    plain = plainly(monkeypatch, hidden, near, head, logits).change
    assert isinstance(found, F.CompactChange)
    assert isinstance(plain, F.CompactChange)
    for row in (0, 1, 3, 5):
        assert set(found.classes[row].tolist()) == set(plain.classes[row].tolist())
    for name in ("mass", "moments", "largest"):
        own, other = getattr(found, name)[3:], getattr(plain, name)[3:]
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-9)


def test_equal_logits_leave_a_choice_but_no_gap(form: str) -> None:
    hidden, near, head = problem()
    logits = torch.zeros_like(head.logits(hidden))
    found = F.mbpa_delta(hidden, near, head, logits, **OPTIONS).change
    assert isinstance(found, F.CompactChange)
    for row in (0, 3):
        wanted = set(near.values[row].tolist())
        chosen = found.classes[row].tolist()
        assert wanted <= set(chosen)
        assert len(set(chosen)) == (len(wanted) + fast.SPARE) // fast.STEP * fast.STEP + 31
    sums = found.log_p.exp().sum(1) + found.mass
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=1e-5, atol=0)


@pytest.mark.parametrize("size", [1.0, 8.0, 300.0])
def test_losses(form: str, size: float) -> None:
    hidden, near, head = problem()
    logits = head.logits(hidden)
    change = F.mbpa_delta(hidden, near, head, logits, **OPTIONS).change
    assert isinstance(change, F.CompactChange)
    change.change.mul_(size)
    change.moved.mul_(size)
    targets = torch.cat([change.classes[:5, 4], torch.arange(4)])
    weights = WEIGHTS.expand(len(hidden), -1)
    found = change.losses(targets, weights)
    dense = change.dense().double()
    log_p = logits.double().log_softmax(1)
    base = -log_p.gather(1, targets[:, None])
    for column in range(weights.shape[1]):
        changed = (log_p + weights[:, column, None] * dense).log_softmax(1)
        expected = -changed.gather(1, targets[:, None]) - base
        torch.testing.assert_close(found[:, column, None].double(), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("roots", [False, True])
def test_keys_are_read_where_a_memory_has_them(form: str, dtype: torch.dtype, roots: bool) -> None:
    hidden, near, head = problem(n=12, k=60)
    states = near.keys[3:].reshape(-1, hidden.shape[1])
    labels = near.values[3:].flatten()
    memory = FlatMemory(hidden.shape[1], dtype=dtype)
    turned = signed_sqrt if roots else (lambda each: each)
    memory.add(turned(states.clone()), labels, head.logits(states).logsumexp(1))
    block = WrittenBlock(
        memory, turned(hidden.clone()), torch.arange(12), torch.arange(12) // 5 * 5,
        head.logits(hidden).logsumexp(1),
    )  # fmt: skip
    found = block.find(40)
    assert isinstance(found, Found)
    logits = head.logits(hidden)
    changed = F.mbpa_delta(hidden, found, head, logits, signed_sqrt=roots, **OPTIONS)
    near = found.neighbors(torch.float32)
    exact = in_float64(near, hidden, head, roots=roots)
    error = total_change(changed.delta, exact, logits.double())
    # The root of a bfloat16 is no bfloat16: in that form a key may be rounded once more.
    once_more = roots and form == "bfloat16" and dtype != torch.float32
    assert error.max() < (0.1 if once_more else 1e-4)


def test_threads_share_the_rows(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, near, head = problem(n=40)
    logits = head.logits(hidden)
    alone = F.mbpa_delta(hidden, near, head, logits, **OPTIONS).delta
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert torch.equal(F.mbpa_delta(hidden, near, head, logits, **OPTIONS).delta, alone)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("rows", "columns"), [(32, 17), (40, 200), (200, 255), (5, 16), (8, 3)])
def test_products_of_bfloat16(rows: int, columns: int) -> None:
    half_products = forms.compiled("half")
    room = (rows + 31) // 32 * 32
    a = torch.zeros(room, 96, dtype=torch.bfloat16)
    a[:rows] = torch.randn(rows, 96)
    b = torch.randn(300, 96).bfloat16()
    places = torch.randint(0, 300, (columns + 31,))
    expected = a.double() @ b.double()[places[:columns]].t()
    ways = [half_products.by_loop, half_products.products]
    if half_products.has_instruction():
        ways.append(half_products._by_instruction)
    for way in ways:
        wide = (columns + 15) // 16 * 16
        out = torch.zeros(room, wide)
        pairs = torch.zeros(48, max(wide, 32), dtype=torch.int32)
        bits = [each.view(torch.int16).numpy() for each in (a, b)]
        way(*bits, places.numpy(), out.numpy(), rows, columns, pairs.numpy())
        torch.testing.assert_close(
            out[:rows, :columns].double(), expected[:rows], rtol=0, atol=1e-4
        )


OLDER = """
import torch
from hebblm.kernels import forms

half = forms.compiled("half")
assert forms.form() == "float32"
assert half.products is half.by_loop
a, b = (torch.randn(rows, 96).bfloat16() for rows in (32, 20))
bits = [each.view(torch.int16).numpy() for each in (a, b)]
out, pairs = torch.zeros(32, 32), torch.zeros(48, 32, dtype=torch.int32)
half.products(*bits, torch.arange(20).numpy(), out.numpy(), 32, 20, pairs.numpy())
torch.testing.assert_close(out[:, :20], a.float() @ b.float().t(), rtol=0, atol=1e-4)
wide = forms.compiled("products")
assert wide.LANES == 8
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a processor of that kind")
def test_kernels_take_no_instruction_that_numba_is_told_to_leave_out(tmp_path: Path) -> None:
    told = {
        "HEBBLM_KERNELS": "bfloat16",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", OLDER], env={**os.environ, **told}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_weights_that_are_not_exact_in_bfloat16_stay_in_float32() -> None:
    weight = half(torch.randn(50, 40))
    if tensors.uses_bfloat16():
        assert tensors._bits_of(weight) is not None
    weight[3, 3] += 1e-5
    assert tensors._bits_of(weight) is None
    assert not tensors._is_half(weight)


def test_kernels_follow_the_constants_of_the_plain_form() -> None:
    kernel = forms.compiled("newton")
    assert (kernel.SPARE, kernel.STEP, kernel.RANK) == (fast.SPARE, fast.STEP, fast.RANK)
    assert [float(kernel.RIDGE), float(kernel.TAIL), float(kernel.FAR)] == pytest.approx(
        [fast.RIDGE, fast.TAIL, fast.FAR]
    )
    names = ("SMALL", "LEVEL", "DAMPED", "OWN", "DUPLICATES")
    for name in names:
        assert float(getattr(kernel, name)) == pytest.approx(getattr(newton, name))


@pytest.mark.parametrize(
    ("wanted", "message"), [("fast", "choose bfloat16, float32, torch"), ("float32", None)]
)
def test_the_form_is_chosen_by_name(
    wanted: str, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(forms.VARIABLE, wanted)
    forms.form.cache_clear()
    try:
        if message is None:
            assert forms.form() == wanted
            assert forms.description().startswith(f"{wanted} by numba ")
        else:
            with pytest.raises(UserError, match=message):
                forms.form()
    finally:
        forms.form.cache_clear()


def test_without_numba_the_plain_form_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "find_spec", lambda name: None)
    monkeypatch.delenv(forms.VARIABLE, raising=False)
    forms.form.cache_clear()
    try:
        assert forms.description() == "torch"
        assert not tensors.takes(torch.zeros(2))
        monkeypatch.setenv(forms.VARIABLE, "bfloat16")
        forms.form.cache_clear()
        with pytest.raises(UserError, match=r"needs numba; .*pip install -e '\.\[fast\]'"):
            forms.form()
    finally:
        forms.form.cache_clear()
