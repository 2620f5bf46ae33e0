"""Equations as pure functions of tensors: queries (N, D), their neighbours, and the output head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.runtime.lazy import lazily

if TYPE_CHECKING:
    from hebblm.adapt.checks import Scale
    from hebblm.adapt.functional.changes import CompactChange
    from hebblm.adapt.functional.gating import (
        FADING,
        LearnedGate,
        anchored,
        gated_losses,
        label_entropy,
        log_softmax_weights,
        placed,
    )
    from hebblm.adapt.functional.grouping import label_sums
    from hebblm.adapt.functional.hebbian import (
        HebbianTerm,
        hebb_combine,
        hebb_logits,
        hebb_weights,
        hebbian_term,
    )
    from hebblm.adapt.functional.losses import (
        changed_losses,
        growth,
        logit_sum_losses,
        mixture_losses,
    )
    from hebblm.adapt.functional.mbpa import MbpaResult, mbpa_delta, mbpa_logits
    from hebblm.adapt.functional.mixture_weights import OnlineMixtureWeights, log_mixture
    from hebblm.adapt.functional.mixtures import memory_mixture, mixture_from, mixture_log_probs
    from hebblm.adapt.functional.normalizers import log_normalizers, with_rows
    from hebblm.adapt.functional.rows import RowStats, row_stats
    from hebblm.adapt.functional.scales import kernel_weight, log_weights, relative_distances
    from hebblm.adapt.solvers.problem import key_products

__all__ = [
    "FADING",
    "CompactChange",
    "HebbianTerm",
    "LearnedGate",
    "MbpaResult",
    "OnlineMixtureWeights",
    "RowStats",
    "Scale",
    "anchored",
    "changed_losses",
    "gated_losses",
    "growth",
    "hebb_combine",
    "hebb_logits",
    "hebb_weights",
    "hebbian_term",
    "kernel_weight",
    "key_products",
    "label_entropy",
    "label_sums",
    "log_mixture",
    "log_normalizers",
    "log_softmax_weights",
    "log_weights",
    "logit_sum_losses",
    "mbpa_delta",
    "mbpa_logits",
    "memory_mixture",
    "mixture_from",
    "mixture_log_probs",
    "mixture_losses",
    "placed",
    "relative_distances",
    "row_stats",
    "with_rows",
]

if not TYPE_CHECKING:  # the type checker still reports a name that does not exist
    __getattr__ = lazily(
        __name__,
        *(
            "changes",
            "gating",
            "grouping",
            "hebbian",
            "losses",
            "mbpa",
            "mixtures",
            "normalizers",
            "rows",
            "scales",
            "mixture_weights",
        ),
    )
