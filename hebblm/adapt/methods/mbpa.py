"""MbPA: the head adapted to the neighbours, to the optimum of their loss or by the paper's gradient
steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from hebblm.adapt import functional as F
from hebblm.adapt.checks import LrUnits, Scale
from hebblm.adapt.methods.predictor import Method, Predictor
from hebblm.adapt.requirements import Requirements
from hebblm.adapt.settings import MethodSettings, NonNegative, Positive, Section, Steps, Weight
from hebblm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.adapt.functional.mixture_weights import LearnedWeight
    from hebblm.adapt.grid import Axes, Grid

MEASURED = 1000  # one query in so many is adapted by the exact form as well


@dataclass(frozen=True, slots=True)
class MbpaConfig(Section):
    """Memory-based parameter adaptation (Sprechmann et al. 2018).

    Args:
        optimizer: newton (to the optimum of the loss with a pull; has no rate), sgd (plain descent:
            best with some 15 steps and no pull) or rmsprop (fresh state for each query; exact and
            slow).
        lr: learning rate of sgd and rmsprop: relative, in units of 1 over the largest eigenvalue of
            the query's curvature, or lambda.
        lr_units: relative to the curvature of each query's own problem (the loss cannot rise for lr
            <= 4), absolute, or guarded: absolute, but a query that diverges is run again at a
            stable rate, and counted.
        steps: steps for each query.
        solver: fast (follows a few hundred classes) or exact.
        eps: constant in the closeness 1 / (eps + squared distance).
        scale: distances and eps relative to the mean squared distance of a query's neighbours, or
            absolute.
        kernel_weight: raw as printed, or scaled to sum 1 or max 1; with a relative rate all three
            are the same.
        l2_to_base: pull back to the base head. For newton in units of the geometric mean of the
            largest eigenvalue and the sum of all others; for sgd in units of the largest, and each
            step takes lr * pull of the change back.
        weight: factor s of the change d of the logits f, which become f + s d: a number, or learned
            online within 0 and 3/2. 1 is MbPA itself.
    """

    section: ClassVar[str] = "mbpa"

    optimizer: Literal["newton", "sgd", "rmsprop"] = "newton"
    lr: NonNegative = 8.0
    lr_units: LrUnits = "relative"
    steps: Steps = 3
    solver: Literal["fast", "exact"] = "fast"
    eps: Positive = 3e-3
    scale: Scale = "relative"
    kernel_weight: Literal["raw", "sum", "max"] = "raw"
    l2_to_base: NonNegative = 0.0035
    weight: Weight = "online"

    def __post_init__(self) -> None:
        if (
            self.lr_units != "guarded"
            and self.optimizer != "newton"
            and self.lr * self.l2_to_base > 1
        ):
            raise UserError(
                f"mbpa.lr = {self.lr} and mbpa.l2_to_base = {self.l2_to_base} take back more than "
                "the change; "
                "choose them so that their product is at most 1"
            )
        if self.optimizer == "newton" and not self.l2_to_base > 0:
            raise UserError(
                f"mbpa.l2_to_base = {self.l2_to_base} must be a number above 0 for mbpa.optimizer "
                "= newton"
            )
        if self.optimizer == "rmsprop" and (self.solver == "fast" or self.lr_units == "relative"):
            raise UserError(
                "mbpa.optimizer = 'rmsprop' follows all classes at its own rate; set "
                "mbpa.solver=exact and "
                "mbpa.lr_units=guarded or absolute as well"
            )


@dataclass(frozen=True, slots=True)
class MbpaAbsoluteConfig(Section):
    """MbPA at the paper's absolute rate, even if it diverges.

    Args:
        lr: learning rate lambda.
        steps: gradient steps for each query.
        eps: constant in the closeness 1 / (eps + squared distance).
    """

    section: ClassVar[str] = "mbpa_absolute"

    lr: NonNegative = 1.0
    steps: Steps = 5
    eps: Positive = 1e-3

    def over(self, mbpa: MbpaConfig) -> MbpaConfig:
        """Return the settings of MbPA at this rate; all other values are those of ``mbpa``."""
        return replace(
            mbpa,
            optimizer="sgd",
            l2_to_base=0.0,
            lr=self.lr,
            steps=self.steps,
            eps=self.eps,
            lr_units="absolute",
            scale="absolute",
            kernel_weight="raw",
            weight=1.0,
        )


@dataclass(frozen=True, slots=True)
class Mbpa:
    """MbPA: the head adapted to the neighbours (Eq. 5)."""

    name: ClassVar[str] = "mbpa"

    config: MbpaConfig

    def log_probs(self, batch: EvalBatch) -> Tensor:
        return batch.shared(self, lambda: adapted_logits(batch, self.config)[0].log_softmax(1))

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        def compute() -> Tensor:
            change = mbpa_result(batch, self.config).change
            return _losses(batch, targets, change, _weights(batch, self.config)).squeeze(1)

        return batch.scored(self, targets, compute)

    @property
    def requirements(self) -> Requirements:
        return adaptation(self.config)

    def kernel_weight(self, batch: EvalBatch) -> Tensor:
        """How close each neighbour (N, K) is, of sum 1."""
        return shared_kernel_weight(batch, self.config)


@dataclass(frozen=True, slots=True)
class MbpaWeight:
    """The weight of MbPA's change, learned from the scored tokens."""

    learned_as: ClassVar[str] = "weight of mbpa/1"

    config: MbpaConfig

    @property
    def initial(self) -> LearnedWeight:
        from hebblm.adapt.functional.mixture_weights import LearnedWeight  # it loads torch

        return LearnedWeight()

    def evidence(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return losses of each target at the weights 1/2, 1 and 3/2, (N, 3) float64, nats."""

        def compute() -> Tensor:
            change = mbpa_result(batch, self.config).change
            weights = batch.hidden.new_tensor([[0.5, 1.0, 1.5]]).expand(len(batch.hidden), -1)
            return _losses(batch, targets, change, weights).double()

        return batch.scored(self, targets, compute).clone()


def adaptation(config: MbpaConfig) -> Requirements:
    """Return the needs of a rule that uses MbPA."""
    learned = (MbpaWeight(_whole(config)),) if isinstance(config.weight, str) else ()
    return Requirements(retrieval=True, descents=(_whole(config),), mixture_weights=learned)


@cache  # every mini-batch needs it for every method
def _whole(config: MbpaConfig) -> MbpaConfig:
    """Return the settings at weight 1, which the solver uses for any weight."""
    return replace(config, weight=1.0)


def mbpa_result(batch: EvalBatch, config: MbpaConfig) -> F.MbpaResult:
    """Return the change of the logits by MbPA at weight 1, computed once per mini-batch and
    configuration.
    """
    batch.check_keys("MbPA")
    return batch.shared(_whole(config), lambda: _mbpa(batch, config, slice(None)))


def mbpa_change(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """Return ``s d`` (N, V), the weighted change of the logits by MbPA, computed once."""

    def compute() -> Tensor:
        return _weights(batch, config) * mbpa_result(batch, config).delta

    return batch.shared(("change", config), compute)


def _weights(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """Return s (N, 1), the weight of each query's change."""
    if not isinstance(config.weight, str):
        return batch.hidden.new_full((len(batch.hidden), 1), config.weight)
    return batch.learned_share(MbpaWeight(_whole(config)))[:, None].to(batch.hidden.dtype)


def _losses(
    batch: EvalBatch, targets: Tensor, change: Tensor | F.CompactChange, weights: Tensor
) -> Tensor:
    """Return losses (N, W) of targets (N,) with a change of the logits at weights (N, W), nats."""
    base = batch.base_losses(targets)[:, None]
    if isinstance(change, F.CompactChange):
        return base + change.losses(targets, weights)
    change_of_target = weights * change.gather(1, targets[:, None])
    return base + F.growth(batch.logits, batch.log_normalizers, change, weights) - change_of_target


def _mbpa(batch: EvalBatch, config: MbpaConfig, rows: slice | list[int]) -> F.MbpaResult:
    """Return the change of the logits by MbPA for some queries of a mini-batch."""
    return F.mbpa_delta(
        batch.hidden[rows],
        batch.found.rows(rows),
        batch.head,
        batch.logits[rows],
        lr=config.lr,
        steps=config.steps,
        eps=config.eps,
        lr_units=config.lr_units,
        solver=config.solver,
        optimizer=config.optimizer,
        l2_to_base=config.l2_to_base,
        kernel_normalization=config.kernel_weight,
        scale=config.scale,
        normalizers=batch.log_normalizers[rows],
        signed_sqrt=batch.context.memory.signed_sqrt,
        groups=batch.groups[rows],
        products=None if batch.context.memory.signed_sqrt else batch.products[rows],
    )


def shared_kernel_weight(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """Return MbPA's closeness c_k of each neighbour (N, K), scaled to sum 1."""
    near = batch.found
    return F.kernel_weight(
        near.distances, near.mask, eps=config.eps, normalization="sum", scale=config.scale
    )


def adapted_logits(batch: EvalBatch, config: MbpaConfig) -> tuple[Tensor, Tensor]:
    """Return logits after MbPA (N, V) and their logsumexp (N,), computed once per mini-batch and
    configuration.
    """

    def compute() -> tuple[Tensor, Tensor]:
        logits = batch.logits + mbpa_change(batch, config)
        return logits, logits.logsumexp(1)

    return batch.shared(("adapted", config), compute)


def fast_errors(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """Return the error (M,) of MbPA's fast form against the exact one, on one query in a thousand
    of the stream.

    It is the mean of ``|log p - log p_exact|`` over the exact distribution, in nats a token, for
    the M queries measured in this mini-batch. Only their position in the stream decides which
    queries are measured.
    """

    def compute() -> Tensor:
        start = int(batch.context.observed.sum())
        rows = [row for row in range(len(batch.hidden)) if _measured(start + row)]
        if config.solver == "exact" or not rows:
            return batch.hidden.new_zeros(0)
        weights, logits = _weights(batch, config)[rows], batch.logits[rows]
        exact = (
            logits + weights * _mbpa(batch, replace(config, solver="exact"), rows).delta
        ).log_softmax(1)
        change = mbpa_result(batch, config).change
        if isinstance(change, F.CompactChange):
            delta = change.rows(rows).dense()
        else:
            delta = change[rows]
        fast = (logits + weights * delta).log_softmax(1)
        return (exact.exp() * (fast - exact).abs()).sum(1)

    return batch.shared(("fast errors", config), compute)


def _measured(position: int) -> bool:
    """Return whether to measure the fast form's error at a position of the stream: one random
    position per thousand.
    """
    block, offset = divmod(position, MEASURED)
    return offset == Random(block).randrange(MEASURED)


@dataclass(frozen=True, slots=True)
class Safeguards:
    """Outcome of a rule's gradient steps, for each query of a mini-batch."""

    loss_increased: Tensor  # (N,) bool, the neighbours' loss rose
    retried: Tensor  # (N,) bool, it was run again at a stable rate
    errors: Tensor  # (M,) of the fast form, nats a token, for the queries where it was measured

    @classmethod
    def of(cls, predictor: Predictor, batch: EvalBatch) -> Safeguards:
        """Return the outcome for a rule; without gradient steps it is all False."""
        import torch

        nothing = torch.zeros(len(batch.hidden), dtype=torch.bool, device=batch.hidden.device)
        loss_increased, retried, errors = nothing, nothing, [batch.hidden.new_zeros(0)]
        for config in cast(tuple[MbpaConfig, ...], predictor.requirements.descents):
            result = mbpa_result(batch, config)
            loss_increased, retried = (
                loss_increased | result.loss_increased,
                retried | result.retried,
            )
            errors.append(fast_errors(batch, config))
        return cls(loss_increased, retried, torch.cat(errors))


def _search_space(settings: MethodSettings, grid: Grid) -> Axes:
    """Return the values to try: pull and weight for Newton's steps, rate and number of steps for
    others.
    """
    if settings[MbpaConfig].optimizer == "newton":
        return {"l2_to_base": grid.mbpa_l2_to_base, "weight": grid.mbpa_weight}
    return {"lr": grid.mbpa_lr, "steps": grid.mbpa_steps}


MBPA = Method(
    "mbpa",
    "MbPA",
    "paper",
    lambda s: Mbpa(s[MbpaConfig]),
    (MbpaConfig,),
    search_space=_search_space,
    plot_style=("#ddaa33",),
)
MBPA_ABSOLUTE = Method(
    "mbpa-absolute",
    "MbPA-absolute",
    "ours",
    lambda s: Mbpa(s[MbpaAbsoluteConfig].over(s[MbpaConfig])),
    (MbpaAbsoluteConfig, MbpaConfig),
    search_space=lambda s, grid: {"lr": grid.absolute_lr, "steps": [s[MbpaAbsoluteConfig].steps]},
)
