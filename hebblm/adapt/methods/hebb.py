"""Hebb: MbPA's change, and the Hebbian term on the labels of the neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from hebblm.adapt import functional as F
from hebblm.adapt.checks import Scale
from hebblm.adapt.methods.mbpa import (
    MbpaConfig,
    adaptation,
    adapted_logits,
    mbpa_change,
    shared_kernel_weight,
)
from hebblm.adapt.methods.predictor import Method, Predictor
from hebblm.adapt.requirements import Requirements
from hebblm.adapt.settings import Decay, Fraction, MethodSettings, NonNegative, Section

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch


@dataclass(frozen=True, slots=True)
class HebbConfig(Section):
    """Memory-based Hebbian parameter adaptation (Mi, Lin and Faltings 2021); its MbPA term uses the
    ``mbpa`` settings.

    Args:
        beta: decay of the Hebbian term's weight with the count of a class.
        eta: strength of the Hebbian term; if relative, the nats that a label at closeness 1 gains.
        gate: gated keeps the whole MbPA change of a class without a Hebbian term; literal shrinks
            it by 1 - E.
        classes: labels in N^new: new (not in the training vocabulary), all, or auto (new if there
            are new words, else all).
        constant: the constant E of variant v3.
        counts: examples that n_i counts; observed (training and stream) or memory (entries only).
        kernel_weight: closeness of the Hebbian term's entries: raw as printed, or scaled to sum 1
            or max 1, which bounds the term.
        scale: relative (closeness to the neighbours' mean squared distance, the term to its value
            at the query itself) or absolute as printed.
    """

    section: ClassVar[str] = "hebb"

    beta: Decay = 0.99
    eta: NonNegative = 8.0
    gate: Literal["gated", "literal"] = "gated"
    classes: Literal["auto", "new", "all"] = "auto"
    constant: Fraction = 0.5
    counts: Literal["observed", "memory"] = "observed"
    kernel_weight: Literal["raw", "sum", "max"] = "max"
    scale: Scale = "relative"


@dataclass(frozen=True, slots=True)
class HebbianLogits:
    """Logits after adaptation: those of ``dense`` and their change by the Hebbian term."""

    dense: Tensor  # (N, V)
    normalizers: Tensor  # (N,) their logsumexp
    labels: Tensor  # (N, K) of the neighbours
    chosen: Tensor  # (N, K) bool, one entry for each label that has a Hebbian term
    changes: Tensor  # (N, K) of the logit of each entry's label, where chosen


@dataclass(frozen=True, slots=True)
class Hebb:
    """Hebb: MbPA and the Hebbian term, weighted by the count of a class (Eq. 4 and 7).

    Variant ``v1`` is the Hebbian term alone, ``v2`` takes it over all of N, ``v3`` weighs it by a
    constant; None is the method itself.
    """

    config: HebbConfig
    mbpa: MbpaConfig
    variant: str | None = None

    def log_probs(self, batch: EvalBatch) -> Tensor:
        def compute() -> Tensor:
            adapted = self._adapted(batch)
            logits = adapted.dense.scatter_add(
                1, adapted.labels, adapted.changes.where(adapted.chosen, 0)
            )
            return logits.log_softmax(1)

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        def compute() -> Tensor:
            a = self._adapted(batch)
            return F.changed_losses(a.dense, a.normalizers, a.labels, a.chosen, a.changes, targets)

        return batch.scored(self, targets, compute)

    @property
    def name(self) -> str:
        return f"hebb-{self.variant}" if self.variant else "hebb"

    @property
    def requirements(self) -> Requirements:
        return Requirements(retrieval=True) if self.variant == "v1" else adaptation(self.mbpa)

    def kernel_weight(self, batch: EvalBatch) -> Tensor:
        """Return the closeness of each neighbour (N, K), with sum 1."""
        return shared_kernel_weight(batch, self.mbpa)

    def _adapted(self, batch: EvalBatch) -> HebbianLogits:
        """Return ``f_i + (1 - E_i) MbPA_i + E_i eta D_i . h`` (Eq. 7) for the labels, and the other
        logits.
        """
        return batch.shared(("adapted", self), lambda: self._compute(batch))

    def _compute(self, batch: EvalBatch) -> HebbianLogits:
        from hebblm.adapt.counts import class_weights, entry_weights  # it loads torch

        config = self.config
        classes = self._classes(batch.context.new_classes)
        term = hebbian_term(batch, self.mbpa, config, classes)
        changes = config.eta * term.values  # (N, K)
        if self.variant == "v1":
            return HebbianLogits(
                batch.logits, batch.log_normalizers, term.labels, term.chosen, changes
            )
        delta = mbpa_change(batch, self.mbpa)  # (N, V)
        constant = (
            changes.new_full(changes.shape, config.constant) if self.variant == "v3" else None
        )
        weights = constant  # E (N, K)
        if weights is None:
            weights = entry_weights(batch, config.beta, config.counts, term.labels)
        if config.gate == "gated":
            dense, normalizers = adapted_logits(batch, self.mbpa)
            changes = weights * (changes - delta.gather(1, term.labels))
        else:
            every = (
                class_weights(batch, config.beta, config.counts)
                if constant is None
                else constant[:, :1]
            )
            dense = batch.logits + (1 - every) * delta
            normalizers = dense.logsumexp(1)
            changes = weights * changes
        return HebbianLogits(dense, normalizers, term.labels, term.chosen, changes)

    def _classes(self, new: Tensor | None) -> Tensor | None:
        """Return the classes of N^new, None for all."""
        wanted = "all" if self.variant == "v2" else self.config.classes
        if wanted == "all" or (wanted == "auto" and new is None):
            return None
        return new


def hebbian_term(
    batch: EvalBatch, mbpa: MbpaConfig, hebb: HebbConfig, classes: Tensor | None
) -> F.HebbianTerm:
    """Return the Hebbian term of a mini-batch over N^new (V,) bool, computed once for rules with
    the same closeness.

    The closeness has MbPA's eps, in the unit of ``hebb.scale``.
    """
    batch.check_keys("Hebb")

    def compute() -> F.HebbianTerm:
        return F.hebbian_term(
            batch.near_states,
            batch.hidden,
            eps=mbpa.eps,
            hebbian_classes=classes,
            kernel_normalization=hebb.kernel_weight,
            bias=batch.head.bias is not None,
            products=batch.state_products,
            groups=batch.groups,
            scale=hebb.scale,
        )

    return batch.shared(
        ("hebbian", classes is None, mbpa.eps, hebb.kernel_weight, hebb.scale), compute
    )


def hebb_rule(settings: MethodSettings, variant: str | None = None) -> Hebb:
    """Return Hebb, or a variant of it."""
    return Hebb(settings[HebbConfig], settings[MbpaConfig], variant)


def _literal_predictor(settings: MethodSettings) -> Predictor:
    return Hebb(replace(settings[HebbConfig], gate="literal"), settings[MbpaConfig])


BOTH = (MbpaConfig, HebbConfig)
HEBB = Method("hebb", "Hebb", "paper", hebb_rule, BOTH, parts=("mbpa",), plot_style=("#cc6677",))
VARIANTS = (
    Method("hebb-v1", "Hebb-v1", "variant", lambda s: hebb_rule(s, "v1"), BOTH),
    Method("hebb-v2", "Hebb-v2", "variant", lambda s: hebb_rule(s, "v2"), BOTH),
    Method("hebb-v3", "Hebb-v3", "variant", lambda s: hebb_rule(s, "v3"), BOTH),
    Method("hebb-literal", "Hebb-literal", "variant", _literal_predictor, BOTH),
)
