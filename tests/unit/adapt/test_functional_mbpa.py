from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.adapt import functional
from hebblm.errors import UserError
from hebblm.types import Neighbors, OutputHead

from ...support import equations

VALID = {"lr": 0.1, "steps": 2, "eps": 1e-3}


def problem(
    seed: int = 0,
    *,
    n: int = 4,
    k: int = 6,
    d: int = 5,
    v: int = 9,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, Neighbors, OutputHead]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    hidden, keys, head = normal(n, d), normal(n, k, d), OutputHead(normal(v, d), normal(v))
    values = torch.randint(0, v, (n, k), generator=generator)
    distances, order = (keys - hidden[:, None]).square().sum(2).sort(1)
    keys = keys.gather(1, order[:, :, None].expand_as(keys))
    mask = torch.ones(n, k, dtype=torch.bool)
    return hidden, Neighbors(keys, values, distances, mask, head.logits(keys).logsumexp(2)), head


def neighbor_loss(
    hidden: torch.Tensor, neighbors: Neighbors, head: OutputHead, **options: object
) -> torch.Tensor:
    """Return the neighbours' weighted loss of each query under its adapted head.

    A key asked in place of the query meets the same adapted head, because distances and labels are
    given.
    """
    losses = torch.zeros(len(hidden), dtype=hidden.dtype)
    for j in range(neighbors.keys.shape[1]):
        asked = functional.mbpa_logits(neighbors.keys[:, j], neighbors, head, **options)
        taken = asked.log_softmax(1).gather(1, neighbors.values[:, j : j + 1]).squeeze(1)
        losses -= (
            functional.kernel_weight(neighbors.distances, neighbors.mask, eps=1e-3)[:, j] * taken
        )
    return losses


# The two narrowest vocabularies of which the fast form leaves out classes, with stored normalisers
# and without.
WIDE = {True: 512, False: 1024}


def awkward(
    seed: int, *, norm: float, head_scale: float, bias: bool, stored: bool
) -> tuple[torch.Tensor, Neighbors, OutputHead]:
    """Return queries in single precision: duplicates of all keys and of some, few entries, none."""
    hidden, neighbors, head = problem(seed, n=5, k=12, v=WIDE[stored])
    keys, mask = neighbors.keys, neighbors.mask
    keys[0], keys[1, :3] = hidden[0], hidden[1]
    mask[2, 3:], mask[3] = False, False
    keys = keys.masked_fill(~mask[:, :, None], 0).mul(norm).float()
    hidden = (norm * hidden).float()
    assert head.bias is not None
    head = OutputHead((head_scale * head.weight).float(), head.bias.float() if bias else None)
    distances = (keys - hidden[:, None]).square().sum(2).masked_fill(~mask, torch.inf)
    logs = head.logits(keys).logsumexp(2) if stored else None
    return hidden, Neighbors(keys, neighbors.values, distances, mask, logs), head


@given(
    seed=st.integers(0, 10_000),
    rate=st.sampled_from(["relative", "absolute", "guarded"]),
    scale=st.sampled_from(["relative", "absolute"]),
    powers=st.tuples(st.floats(-6, 6), st.floats(-12, 1), st.floats(-6, 6)),
    steps=st.sampled_from([1, 2, 5]),
    matched=st.booleans(),
    bias=st.booleans(),
    stored=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_no_finite_input_gives_a_score_that_is_not_finite(
    seed: int,
    rate: str,
    scale: str,
    powers: tuple[float, float, float],
    steps: int,
    matched: bool,
    bias: bool,
    stored: bool,
) -> None:
    lr, eps, norm = (10.0**power for power in powers)
    case = awkward(
        seed, norm=norm, head_scale=1 / norm if matched else 1.0, bias=bias, stored=stored
    )
    for method in ("exact", "fast"):
        options = {"lr_units": rate, "scale": scale, "solver": method}
        logits = functional.mbpa_logits(*case, lr=lr, steps=steps, eps=eps, **options)
        assert torch.isfinite(logits.log_softmax(1)).all()
        assert torch.equal(logits[3], case[2].logits(case[0])[3])


@given(st.integers(0, 10_000), st.floats(1e-3, 4.0), st.integers(1, 30), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_relative_rate_of_at_most_4_never_raises_the_loss_of_the_neighbors(
    seed: int, lr: float, steps: int, bias: bool
) -> None:
    # more neighbours than a linear head can separate
    hidden, neighbors, head = problem(seed, k=20, d=3)
    head = OutputHead(head.weight, head.bias if bias else None)
    options = {"eps": 1e-3, "lr_units": "relative"}
    before = neighbor_loss(hidden, neighbors, head, lr=0.0, steps=0, **options)
    after = neighbor_loss(hidden, neighbors, head, lr=lr, steps=steps, **options)
    assert (after <= before * (1 + 1e-9)).all()
    base = head.logits(hidden)
    assert not functional.mbpa_delta(
        hidden, neighbors, head, base, lr=lr, steps=steps, **options
    ).loss_increased.any()


def test_a_relative_rate_above_that_says_where_the_loss_rose() -> None:
    hidden, neighbors, head = problem(0, n=8, k=20, d=3)
    options = {"lr": 100.0, "eps": 1e-3, "lr_units": "relative"}
    before = neighbor_loss(hidden, neighbors, head, steps=0, **options)
    last = neighbor_loss(hidden, neighbors, head, steps=4, **options)  # before the last step
    found = functional.mbpa_delta(hidden, neighbors, head, head.logits(hidden), steps=5, **options)
    assert torch.equal(found.loss_increased, last > before)
    assert found.loss_increased.any()
    assert not found.retried.any()


@pytest.mark.parametrize("method", ["exact", "fast"])
@pytest.mark.parametrize("stored", [True, False])
def test_a_relative_rate_has_no_unit(method: str, stored: bool) -> None:
    hidden, neighbors, head = problem(1, k=12, v=WIDE[stored])
    head = OutputHead(head.weight, None)
    neighbors = replace(
        neighbors, log_normalizers=head.logits(neighbors.keys).logsumexp(2) if stored else None
    )
    options = {
        "lr": 8.0,
        "steps": 5,
        "eps": 3e-3,
        "lr_units": "relative",
        "scale": "relative",
        "solver": method,
    }
    base = head.logits(hidden)
    expected = functional.mbpa_delta(hidden, neighbors, head, base, **options).delta
    for factor in (1e-6, 1e6):
        keys, distances = factor * neighbors.keys, factor**2 * neighbors.distances
        found = functional.mbpa_delta(
            factor * hidden,
            replace(neighbors, keys=keys, distances=distances),
            OutputHead(head.weight / factor, None),
            base,
            **options,
        )
        torch.testing.assert_close(found.delta, expected, rtol=1e-7, atol=1e-7)
    for factor in (1e-6, 1e6):  # c_k times a constant
        scaled = replace(neighbors, distances=factor * neighbors.distances)
        found = functional.mbpa_delta(
            hidden, scaled, head, base, **{**options, "scale": "absolute", "eps": factor * 3e-3}
        )
        one = functional.mbpa_delta(
            hidden, neighbors, head, base, **{**options, "scale": "absolute"}
        )
        torch.testing.assert_close(found.delta, one.delta, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop"])
@pytest.mark.parametrize("seed", [0, 3])
def test_guarded_loss_of_the_neighbors_never_rises(optimizer: str, seed: int) -> None:
    # more neighbours than a linear head can separate
    hidden, neighbors, head = problem(seed, k=20, d=3)
    options = {"steps": 5, "eps": 1e-3, "optimizer": optimizer}
    for lr in (0.01, 1.0, 100.0):
        before = neighbor_loss(hidden, neighbors, head, lr=0.0, **options)
        assert (
            neighbor_loss(hidden, neighbors, head, lr=lr, **options) <= before * (1 + 1e-9)
        ).all()
    literal = neighbor_loss(hidden, neighbors, head, lr=100.0, lr_units="absolute", **options)
    result = functional.mbpa_delta(
        hidden, neighbors, head, head.logits(hidden), lr=100.0, **options
    )
    assert result.retried.any()
    assert torch.equal(result.retried, literal > before)


def test_guard_with_a_pull_that_is_too_strong() -> None:
    hidden, neighbors, head = problem(5)
    options = {"lr": 0.5, "steps": 40, "eps": 1e-3, "l2_to_base": 50.0}
    literal = functional.mbpa_logits(hidden, neighbors, head, lr_units="absolute", **options)
    guarded = functional.mbpa_logits(hidden, neighbors, head, **options)
    assert guarded.abs().max() < 100 < literal.abs().max()


@pytest.mark.parametrize(
    ("method", "rate"), [("exact", "guarded"), ("fast", "guarded"), ("fast", "relative")]
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_batch_mates_change_nothing(
    method: str, rate: str, dtype: torch.dtype, tolerance: float
) -> None:
    hidden, neighbors, head = problem(7, n=8, v=WIDE[True], dtype=dtype)
    lr = 3.0 if rate == "relative" else 0.05
    options = {"lr": lr, "steps": 5, "eps": 0.1, "solver": method, "lr_units": rate}
    whole = functional.mbpa_logits(hidden, neighbors, head, **options)
    for row in range(8):
        one = slice(row, row + 1)
        actual = functional.mbpa_logits(hidden[one], neighbors.rows(one), head, **options)
        torch.testing.assert_close(actual, whole[one], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", [{}, {"solver": "fast", "lr_units": "relative"}])
def test_inputs_stay_as_they_are(options: dict[str, object]) -> None:
    hidden, neighbors, head = problem(8, v=WIDE[True])
    given = [
        hidden,
        neighbors.keys,
        neighbors.values,
        neighbors.distances,
        neighbors.mask,
        head.weight,
        head.bias,
    ]
    before = [tensor.clone() for tensor in given if tensor is not None]
    counts = torch.arange(WIDE[True])
    functional.mbpa_logits(hidden, neighbors, head, lr=50.0, steps=3, eps=1e-3, **options)
    functional.hebb_logits(hidden, neighbors, head, eta=0.5, beta=0.5, counts=counts, **VALID)
    functional.mixture_log_probs(hidden, neighbors, head, theta=0.5, gamma=0.5)
    equations.knn_log_probs(hidden, neighbors, head, temperature=1.0, weight=0.5)
    for old, new in zip(before, given, strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize(("lr", "steps", "rate"), [(0.0, 5, "relative"), (0.1, 0, "guarded")])
def test_no_descent_is_the_base(lr: float, steps: int, rate: str) -> None:
    hidden, neighbors, head = problem(9)
    found = functional.mbpa_logits(
        hidden, neighbors, head, lr=lr, steps=steps, eps=1e-3, lr_units=rate
    )
    assert torch.equal(found, head.logits(hidden))


@pytest.mark.parametrize("options", [{"solver": "fast"}, {"optimizer": "rmsprop"}])
def test_a_head_in_training_is_taken(options: dict[str, object]) -> None:
    hidden, neighbors, head = problem(12, v=WIDE[True])
    assert head.bias is not None
    trained = OutputHead(torch.nn.Parameter(head.weight), torch.nn.Parameter(head.bias))
    assert torch.equal(
        functional.mbpa_logits(hidden, neighbors, trained, **VALID, **options),
        functional.mbpa_logits(hidden, neighbors, head, **VALID, **options),
    )


@pytest.mark.parametrize(("method", "rate"), [("exact", "guarded"), ("fast", "relative")])
def test_half_precision_keys_are_taken(method: str, rate: str) -> None:
    hidden, neighbors, head = problem(10, v=WIDE[True], dtype=torch.float32)
    half = replace(neighbors, keys=neighbors.keys.half())
    rounded = replace(neighbors, keys=neighbors.keys.half().float())
    assert torch.equal(
        functional.mbpa_logits(hidden, half, head, solver=method, lr_units=rate, **VALID),
        functional.mbpa_logits(hidden, rounded, head, solver=method, lr_units=rate, **VALID),
    )


@pytest.mark.parametrize("normalization", ["sum", "max"])
def test_normalised_closeness_is_a_rate_of_its_own(normalization: str) -> None:
    hidden, neighbors, head = problem(11, n=1)
    raw = functional.kernel_weight(neighbors.distances, neighbors.mask, eps=1e-3)
    scale = float(raw.sum() if normalization == "sum" else raw.max())
    options = {"steps": 3, "eps": 1e-3, "lr_units": "absolute"}
    scaled = functional.mbpa_logits(
        hidden, neighbors, head, lr=0.2, kernel_normalization=normalization, **options
    )
    torch.testing.assert_close(
        scaled, functional.mbpa_logits(hidden, neighbors, head, lr=0.2 / scale, **options)
    )


def test_closeness_of_duplicates_and_masked_entries() -> None:
    distances = torch.tensor([[0.0, 3.0, torch.inf], [torch.inf, torch.inf, torch.inf]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert torch.equal(
        functional.kernel_weight(distances, mask, eps=0.5),
        torch.tensor([[2.0, 1 / 3.5, 0], [0, 0, 0]]),
    )
    summed = functional.kernel_weight(distances, mask, eps=0.5, normalization="sum")
    torch.testing.assert_close(summed.sum(1), torch.tensor([1.0, 0.0]))
    assert functional.kernel_weight(distances, mask, eps=0.5, normalization="max")[0, 0] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -0.5}, "lr = -0.5"),
        ({"lr": float("nan")}, "lr = nan"),
        ({"steps": -1}, "steps = -1"),
        ({"eps": 0.0}, "eps = 0.0"),
        ({"l2_to_base": -2.0}, "l2_to_base = -2.0"),
        ({"lr_units": "fixed"}, "lr_units = 'fixed'"),
        ({"solver": "quick"}, "solver = 'quick'"),
        ({"optimizer": "adam"}, "optimizer = 'adam'"),
        ({"kernel_normalization": "mean"}, "normalization = 'mean'"),
        ({"solver": "fast", "optimizer": "rmsprop"}, "choose solver = 'exact'"),
        ({"lr_units": "relative", "optimizer": "rmsprop"}, "choose lr_units = 'guarded'"),
    ],
)
def test_bad_values_are_named(options: dict[str, object], words: str) -> None:
    hidden, neighbors, head = problem()
    with pytest.raises(UserError, match=words):
        functional.mbpa_logits(hidden, neighbors, head, **{**VALID, **options})


def test_no_neighbors_asked_for() -> None:
    hidden, neighbors, head = problem()
    none = Neighbors(
        *(t[:, :0] for t in (neighbors.keys, neighbors.values, neighbors.distances, neighbors.mask))
    )
    with pytest.raises(UserError, match="K = 0"):
        functional.mbpa_logits(hidden, none, head, **VALID)
    with pytest.raises(UserError, match="K = 0"):
        functional.mixture_log_probs(hidden, none, head, theta=0.1, gamma=0.1)
    with pytest.raises(UserError, match="K = 0"):
        equations.knn_log_probs(hidden, none, head, temperature=1.0, weight=0.1)
