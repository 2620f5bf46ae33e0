"""Every equation as a pure function of tensors: queries (N, D), their neighbours, and the output head."""

from __future__ import annotations

from hebblm.adapt import checks as checks
from hebblm.adapt.checks import Scale
from hebblm.adapt.functional.closeness import closeness
from hebblm.adapt.functional.hebbian import (
    HebbianTerm,
    hebb_combine,
    hebb_logits,
    hebb_weights,
    hebbian_term,
    stepped_weights,
)
from hebblm.adapt.functional.mbpa import MbpaResult, mbpa_delta, mbpa_logits
from hebblm.adapt.functional.mixtures import (
    cache_log_probs,
    interpolate_log_probs,
    knn_log_probs,
    memory_mixture,
    mixture_from,
    mixture_log_probs,
)
from hebblm.adapt.functional.normalizers import log_normalizers, with_rows
from hebblm.adapt.functional.scales import log_weights, relative_distances
from hebblm.adapt.solvers.problem import key_products

__all__ = [
    "HebbianTerm",
    "MbpaResult",
    "Scale",
    "cache_log_probs",
    "closeness",
    "hebb_combine",
    "hebb_logits",
    "hebb_weights",
    "hebbian_term",
    "interpolate_log_probs",
    "key_products",
    "knn_log_probs",
    "log_normalizers",
    "log_weights",
    "mbpa_delta",
    "mbpa_logits",
    "memory_mixture",
    "mixture_from",
    "mixture_log_probs",
    "relative_distances",
    "stepped_weights",
    "with_rows",
]
