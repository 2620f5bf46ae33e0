from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.adapt import functional
from hebblm.adapt.functional.guard import largest_eigenvalue
from hebblm.adapt.functional.problem import Problem
from hebblm.errors import UserError
from hebblm.types import Neighbors, OutputHead

VALID = {"lr": 0.1, "steps": 2, "eps": 1e-3}


def problem(
    seed: int = 0, *, n: int = 4, k: int = 6, d: int = 5, v: int = 9, dtype: torch.dtype = torch.float64
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

    A key asked in place of the query meets the same adapted head, because distances and labels are given.
    """
    losses = torch.zeros(len(hidden), dtype=hidden.dtype)
    for j in range(neighbors.keys.shape[1]):
        asked = functional.mbpa_logits(neighbors.keys[:, j], neighbors, head, **options)
        taken = asked.log_softmax(1).gather(1, neighbors.values[:, j : j + 1]).squeeze(1)
        losses -= functional.closeness(neighbors.distances, neighbors.mask, eps=1e-3)[:, j] * taken
    return losses


@given(st.integers(0, 10_000), st.sampled_from(["exact", "fast"]), st.floats(0, 1e6), st.integers(0, 6))
@settings(max_examples=40, deadline=None)
def test_guarded_logits_are_finite_and_normalise(seed: int, method: str, lr: float, steps: int) -> None:
    hidden, neighbors, head = problem(seed, v=60, dtype=torch.float32)
    logits = functional.mbpa_logits(
        hidden, neighbors, head, lr=lr, steps=steps, eps=1e-3, method=method, active=40
    )
    assert torch.isfinite(logits).all()
    torch.testing.assert_close(logits.softmax(1).sum(1), torch.ones(4))


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop"])
@pytest.mark.parametrize("seed", range(5))
def test_guarded_loss_of_the_neighbors_never_rises(optimizer: str, seed: int) -> None:
    hidden, neighbors, head = problem(seed, k=20, d=3)  # more neighbours than a linear head can separate
    options = {"steps": 5, "eps": 1e-3, "optimizer": optimizer}
    for lr in (0.01, 1.0, 100.0):
        before = neighbor_loss(hidden, neighbors, head, lr=0.0, **options)
        assert (neighbor_loss(hidden, neighbors, head, lr=lr, **options) <= before * (1 + 1e-9)).all()
    literal = neighbor_loss(hidden, neighbors, head, lr=100.0, guard=False, **options)
    result = functional.mbpa_delta(hidden, neighbors, head, head.logits(hidden), lr=100.0, **options)
    assert result.stabilized.any()
    assert torch.equal(result.stabilized, literal > before)


@pytest.mark.parametrize("method", ["exact", "fast"])
def test_guard_marks_only_what_it_changed(method: str) -> None:
    hidden, neighbors, head = problem(3, n=6, k=30, d=3, v=80)
    closer = neighbors.distances.clone()
    closer[:2] = 0  # c = 1000: only these two cannot bear the rate
    neighbors = replace(neighbors, distances=closer)
    options = {"lr": 0.1, "steps": 5, "eps": 1e-3, "method": method, "active": 45}
    base = head.logits(hidden)
    guarded = functional.mbpa_delta(hidden, neighbors, head, base, **options)
    literal = functional.mbpa_delta(hidden, neighbors, head, base, guard=False, **options)
    assert guarded.stabilized.tolist() == [True, True, False, False, False, False]
    assert not literal.stabilized.any()
    same = torch.isclose(guarded.delta, literal.delta, rtol=1e-12, atol=1e-12).all(1)
    assert same.tolist() == [False, False, True, True, True, True]


def test_guard_leaves_a_stable_rate_alone() -> None:
    hidden, neighbors, head = problem(4)
    base = head.logits(hidden)
    guarded = functional.mbpa_delta(hidden, neighbors, head, base, lr=0.01, steps=5, eps=1.0)
    literal = functional.mbpa_delta(hidden, neighbors, head, base, lr=0.01, steps=5, eps=1.0, guard=False)
    assert torch.equal(guarded.delta, literal.delta)
    assert not guarded.stabilized.any()


def test_guard_with_a_pull_that_is_too_strong() -> None:
    hidden, neighbors, head = problem(5)
    options = {"lr": 0.5, "steps": 40, "eps": 1e-3, "pull": 50.0}
    literal = functional.mbpa_logits(hidden, neighbors, head, guard=False, **options)
    guarded = functional.mbpa_logits(hidden, neighbors, head, **options)
    assert guarded.abs().max() < 100 < literal.abs().max()


def test_power_iteration_finds_the_largest_eigenvalue() -> None:
    hidden, neighbors, head = problem(6, n=20, k=15)
    weights = functional.closeness(neighbors.distances, neighbors.mask, eps=1e-3)
    parts = Problem(head, hidden, neighbors.keys, neighbors.values, weights, head.logits(hidden), None)
    expected = torch.linalg.eigvals(torch.diag_embed(weights) @ parts.gram).real.amax(1)
    found = largest_eigenvalue(parts)
    assert (found <= expected * (1 + 1e-9)).all()
    assert (found >= 0.95 * expected).all()


@pytest.mark.parametrize("method", ["exact", "fast"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_batch_mates_change_nothing(method: str, dtype: torch.dtype, tolerance: float) -> None:
    hidden, neighbors, head = problem(7, n=8, v=90, dtype=dtype)
    options = {"lr": 0.05, "steps": 5, "eps": 0.1, "method": method, "active": 45}
    whole = functional.mbpa_logits(hidden, neighbors, head, **options)
    for row in range(8):
        one = slice(row, row + 1)
        alone = Neighbors(
            neighbors.keys[one],
            neighbors.values[one],
            neighbors.distances[one],
            neighbors.mask[one],
            None if neighbors.log_normalizers is None else neighbors.log_normalizers[one],
        )
        actual = functional.mbpa_logits(hidden[one], alone, head, **options)
        torch.testing.assert_close(actual, whole[one], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop"])
def test_inputs_stay_as_they_are(optimizer: str) -> None:
    hidden, neighbors, head = problem(8)
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
    counts = torch.arange(9)
    functional.mbpa_logits(hidden, neighbors, head, lr=50.0, steps=3, eps=1e-3, optimizer=optimizer)
    functional.hebb_logits(hidden, neighbors, head, eta=0.5, beta=0.5, counts=counts, **VALID)
    functional.mixture_log_probs(hidden, neighbors, head, theta=0.5, gamma=0.5)
    functional.knn_log_probs(hidden, neighbors, head, temperature=1.0, weight=0.5)
    for old, new in zip(before, given, strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize(("lr", "steps"), [(0.0, 5), (0.1, 0)])
def test_no_descent_is_the_base(lr: float, steps: int) -> None:
    hidden, neighbors, head = problem(9)
    assert torch.equal(
        functional.mbpa_logits(hidden, neighbors, head, lr=lr, steps=steps, eps=1e-3), head.logits(hidden)
    )


@pytest.mark.parametrize("options", [{}, {"method": "fast", "active": 40}, {"optimizer": "rmsprop"}])
def test_a_head_in_training_is_taken(options: dict[str, object]) -> None:
    hidden, neighbors, head = problem(12, v=80)
    assert head.bias is not None
    trained = OutputHead(torch.nn.Parameter(head.weight), torch.nn.Parameter(head.bias))
    assert torch.equal(
        functional.mbpa_logits(hidden, neighbors, trained, **VALID, **options),
        functional.mbpa_logits(hidden, neighbors, head, **VALID, **options),
    )


def test_half_precision_keys_are_taken() -> None:
    hidden, neighbors, head = problem(10, dtype=torch.float32)
    half = replace(neighbors, keys=neighbors.keys.half())
    rounded = replace(neighbors, keys=neighbors.keys.half().float())
    assert torch.equal(
        functional.mbpa_logits(hidden, half, head, **VALID),
        functional.mbpa_logits(hidden, rounded, head, **VALID),
    )


@pytest.mark.parametrize("normalization", ["sum", "max"])
def test_normalised_closeness_is_a_rate_of_its_own(normalization: str) -> None:
    hidden, neighbors, head = problem(11, n=1)
    raw = functional.closeness(neighbors.distances, neighbors.mask, eps=1e-3)
    scale = float(raw.sum() if normalization == "sum" else raw.max())
    options = {"steps": 3, "eps": 1e-3, "guard": False}
    scaled = functional.mbpa_logits(
        hidden, neighbors, head, lr=0.2, closeness_normalization=normalization, **options
    )
    torch.testing.assert_close(
        scaled, functional.mbpa_logits(hidden, neighbors, head, lr=0.2 / scale, **options)
    )


def test_closeness_of_duplicates_and_masked_entries() -> None:
    distances = torch.tensor([[0.0, 3.0, torch.inf], [torch.inf, torch.inf, torch.inf]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert torch.equal(
        functional.closeness(distances, mask, eps=0.5), torch.tensor([[2.0, 1 / 3.5, 0], [0, 0, 0]])
    )
    summed = functional.closeness(distances, mask, eps=0.5, normalization="sum")
    torch.testing.assert_close(summed.sum(1), torch.tensor([1.0, 0.0]))
    assert functional.closeness(distances, mask, eps=0.5, normalization="max")[0, 0] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -0.5}, "lr = -0.5"),
        ({"lr": float("nan")}, "lr = nan"),
        ({"steps": -1}, "steps = -1"),
        ({"eps": 0.0}, "eps = 0.0"),
        ({"pull": -2.0}, "pull = -2.0"),
        ({"active": 0}, "active = 0"),
        ({"method": "quick"}, "method = 'quick'"),
        ({"optimizer": "adam"}, "optimizer = 'adam'"),
        ({"closeness_normalization": "mean"}, "normalization = 'mean'"),
        ({"method": "fast", "optimizer": "rmsprop"}, "choose method = 'exact'"),
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
        functional.knn_log_probs(hidden, none, head, temperature=1.0, weight=0.1)
