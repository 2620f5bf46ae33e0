"""The motion of the keys' logits through a thin factor, beside the whole matrix."""

from __future__ import annotations

from dataclasses import replace

import torch

from hebblm.adapt import functional
from hebblm.adapt.functional.active_set import THIN_SHARE, solve_active
from hebblm.adapt.functional.mixing import RANK, ThinMixing, WholeMixing, factor_pays, missed, thin_factor
from hebblm.types import Neighbors, OutputHead

from .problems import make_problem
from .test_fast_form import as_problem


def narrow(seed: int, *, noise: float, n: int = 4, k: int = 70, d: int = 66, v: int = 400):  # type: ignore[no-untyped-def]
    """Return a problem whose keys lie near a subspace of a few directions, and labels that their head expects."""
    hidden, neighbors, head = make_problem(seed, n=n, k=k, d=d, v=v)
    generator = torch.Generator().manual_seed(seed)
    plane = torch.randn(RANK - 4, d, generator=generator, dtype=torch.float64) / d**0.5
    hidden = hidden[:, : RANK - 4] @ plane
    keys = neighbors.keys[:, :, : RANK - 4] @ plane + noise * neighbors.keys
    keys = keys.masked_fill(~neighbors.mask[:, :, None], 0)
    distances = (keys - hidden[:, None]).square().sum(2).masked_fill(~neighbors.mask, torch.inf)
    logs = head.logits(keys).logsumexp(2)
    return hidden, replace(neighbors, keys=keys, distances=distances, log_normalizers=logs), head


def test_both_forms_add_the_same_where_the_factor_is_whole() -> None:
    problem = as_problem(*make_problem(61, k=9))
    step_sizes = 0.1 * problem.weights
    factor = torch.cat([problem.keys, torch.ones_like(problem.keys[:, :, :1])], 2)
    generator = torch.Generator().manual_seed(0)
    logits, other = torch.randn(2, 5, 9, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 6, (5, 9), generator=generator)
    overlap = torch.rand(5, 1, generator=generator, dtype=torch.float64)
    residual = torch.nn.functional.one_hot(labels, 7) - other.softmax(2)
    plain = residual.clone()
    residual[:, :, -1] *= overlap
    expected = logits + problem.gram @ (step_sizes[:, :, None] * residual)
    for mixing in (WholeMixing.of(problem, step_sizes), ThinMixing.of(factor, step_sizes)):
        added, probs = logits.clone(), other.softmax(2)
        mixing.add_to(added, probs, mixing.read() @ plain, labels, overlap)
        torch.testing.assert_close(added, expected)
        torch.testing.assert_close(mixing.product(logits), problem.gram @ (step_sizes[:, :, None] * logits))
        part = mixing.rows(torch.tensor([3]))
        torch.testing.assert_close(part.product(logits[3:4]), mixing.product(logits)[3:4])


def test_keys_of_few_directions_are_factored_without_loss() -> None:
    problem = as_problem(*narrow(62, noise=0.0))
    factor = thin_factor(problem)
    torch.testing.assert_close(factor @ factor.transpose(1, 2), problem.gram, rtol=1e-5, atol=1e-6)
    rest = missed(problem, factor, problem.weights, problem.weights, 5)
    assert rest.abs().max() < 1e-9


def test_what_the_factor_misses_is_told() -> None:
    for seed, noise in ((63, 0.01), (64, 0.1), (65, 0.3)):
        hidden, neighbors, head = narrow(seed, noise=noise)
        problem = as_problem(hidden, neighbors, head)
        assert factor_pays(problem)
        rate = torch.full((4,), 0.02, dtype=torch.float64)
        never = torch.zeros(4, dtype=torch.bool)
        factor = thin_factor(problem)
        step_sizes = rate[:, None] * problem.weights
        told = missed(problem, factor, step_sizes, step_sizes * problem.query_products, 5)
        options = {"steps": 5, "pull": 0.0, "active": 399}
        thin = solve_active(problem, rate, never, tolerance=1e9, **options).delta
        whole = solve_active(
            problem, rate, never, tolerance=float(told.min()) / 2 / THIN_SHARE, **options
        ).delta
        base = head.logits(hidden)
        truth = (base + whole).log_softmax(1)
        error = (truth.exp() * ((base + thin).log_softmax(1) - truth).abs()).sum(1)
        real = neighbors.mask.any(1)
        assert not torch.equal(thin, whole)
        assert (error[real] <= told[real]).all(), (noise, error, told)


def test_a_query_that_needs_the_whole_matrix_gets_it_and_the_others_do_not() -> None:
    rough, smooth = narrow(66, noise=0.5), narrow(66, noise=0.0)
    head = OutputHead(rough[2].weight, rough[2].bias)
    assert rough[1].log_normalizers is not None
    both = Neighbors(
        *(
            torch.cat([getattr(rough[1], name), getattr(smooth[1], name)])
            for name in ("keys", "values", "distances", "mask", "log_normalizers")
        )
    )
    hidden = torch.cat([rough[0], smooth[0]])
    options = {"lr": 0.02, "steps": 5, "eps": 1e-3}
    exact = functional.mbpa_logits(hidden, both, head, **options)
    fast = functional.mbpa_logits(hidden, both, head, method="fast", active=300, **options)
    truth = exact.log_softmax(1)
    assert ((truth.exp() * (fast.log_softmax(1) - truth).abs()).sum(1) <= 1e-3).all()
    for rows, case in ((slice(0, 4), rough), (slice(4, 8), smooth)):
        alone = functional.mbpa_logits(case[0], case[1], head, method="fast", active=300, **options)
        torch.testing.assert_close(fast[rows], alone, rtol=1e-10, atol=1e-10)
