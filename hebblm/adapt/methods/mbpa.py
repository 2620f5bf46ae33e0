"""MbPA: the head adapted to the neighbours, to the optimum of their loss or by the paper's gradient steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from hebblm.adapt import functional as F
from hebblm.adapt.checks import LrUnits, Scale
from hebblm.adapt.methods.rule import Method, Rule
from hebblm.adapt.needs import Needs
from hebblm.adapt.settings import MethodSettings, NonNegative, Positive, Section, Steps, Weight
from hebblm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.adapt.functional.shares import LearnedWeight
    from hebblm.adapt.grid import Axes, Grid

MEASURED = 1000  # one query in so many is adapted by the exact form as well


@dataclass(frozen=True, slots=True)
class MbpaConfig(Section):
    """Memory-based parameter adaptation (Sprechmann et al. 2018).

    Args:
        optimizer: newton (to the optimum of the loss with a pull; knows no rate), sgd (plain descent: some 15 steps
            and no pull serve it best) or rmsprop (fresh state a query; exact and slow).
        lr: learning rate of sgd and rmsprop: relative, in units of 1 over the largest eigenvalue of the query's
            curvature, or lambda.
        lr_units: relative to the curvature of each query's own problem (cannot climb for lr <= 4), absolute, or
            guarded: absolute, and a query that diverges is run again at a stable rate, and counted.
        steps: steps a query.
        solver: fast (a few hundred classes followed) or exact.
        eps: constant in the closeness 1 / (eps + squared distance).
        scale: of distances and eps: relative to the mean squared distance of a query's neighbours, or absolute.
        closeness: raw as printed, or scaled to sum 1 or max 1; a relative rate makes all three the same.
        pull: pull back to the base head: of newton in units of the geometric mean of the largest eigenvalue and the
            sum of all others, of sgd in units of the largest; a step of sgd takes lr * pull of the change back.
        weight: s of the change d of the logits f, which become f + s d: a number, or learned online
            within 0 and 3/2. 1 is MbPA itself.
    """

    section: ClassVar[str] = "mbpa"

    optimizer: Literal["newton", "sgd", "rmsprop"] = "newton"
    lr: NonNegative = 8.0
    lr_units: LrUnits = "relative"
    steps: Steps = 3
    solver: Literal["fast", "exact"] = "fast"
    eps: Positive = 3e-3
    scale: Scale = "relative"
    closeness: Literal["raw", "sum", "max"] = "raw"
    pull: NonNegative = 0.0035
    weight: Weight = "online"

    def __post_init__(self) -> None:
        if self.lr_units != "guarded" and self.optimizer != "newton" and self.lr * self.pull > 1:
            raise UserError(
                f"mbpa.lr = {self.lr} and mbpa.pull = {self.pull} take back more than was changed; "
                "choose them so that their product is at most 1"
            )
        if self.optimizer == "newton" and not self.pull > 0:
            raise UserError(f"mbpa.pull = {self.pull} must be a number above 0 for mbpa.optimizer = newton")
        if self.optimizer == "rmsprop" and (self.solver == "fast" or self.lr_units == "relative"):
            raise UserError(
                "mbpa.optimizer = 'rmsprop' follows all classes at a rate of its own; set mbpa.solver=exact and "
                "mbpa.lr_units=guarded or absolute as well"
            )


@dataclass(frozen=True, slots=True)
class MbpaAbsoluteConfig(Section):
    """MbPA at the paper's absolute rate, whatever comes of it.

    Args:
        lr: learning rate lambda.
        steps: gradient steps a query.
        eps: constant in the closeness 1 / (eps + squared distance).
    """

    section: ClassVar[str] = "mbpa_absolute"

    lr: NonNegative = 1.0
    steps: Steps = 5
    eps: Positive = 1e-3

    def over(self, mbpa: MbpaConfig) -> MbpaConfig:
        """Settings of MbPA at this rate; all that is not set here is that of ``mbpa``."""
        return replace(
            mbpa,
            optimizer="sgd",
            pull=0.0,
            lr=self.lr,
            steps=self.steps,
            eps=self.eps,
            lr_units="absolute",
            scale="absolute",
            closeness="raw",
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
            change = mbpa_result(batch, self.config).delta
            return _losses(batch, targets, change, _weights(batch, self.config)).squeeze(1)

        return batch.scored(self, targets, compute)

    @property
    def needs(self) -> Needs:
        return adaptation(self.config)

    def closeness(self, batch: EvalBatch) -> Tensor:
        """How close each neighbour (N, K) is, of sum 1."""
        return shared_closeness(batch, self.config)


@dataclass(frozen=True, slots=True)
class MbpaWeight:
    """The weight of MbPA's change, learned from the tokens already scored."""

    learned_as: ClassVar[str] = "weight of mbpa/1"

    config: MbpaConfig

    @property
    def initial(self) -> LearnedWeight:
        from hebblm.adapt.functional.shares import LearnedWeight  # it loads torch

        return LearnedWeight()

    def evidence(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Losses of each target at the weights 1/2, 1 and 3/2, (N, 3) float64, nats."""

        def compute() -> Tensor:
            change = mbpa_result(batch, self.config).delta
            weights = change.new_tensor([[0.5, 1.0, 1.5]]).expand(len(change), -1)
            return _losses(batch, targets, change, weights).double()

        return batch.scored(self, targets, compute).clone()


def adaptation(config: MbpaConfig) -> Needs:
    """Needs of a rule over MbPA."""
    learned = (MbpaWeight(_whole(config)),) if isinstance(config.weight, str) else ()
    return Needs(retrieval=True, descents=(_whole(config),), shares=learned)


@cache  # every mini-batch asks, for every method
def _whole(config: MbpaConfig) -> MbpaConfig:
    """The settings at weight 1: what is solved, whatever becomes of it."""
    return replace(config, weight=1.0)


def mbpa_result(batch: EvalBatch, config: MbpaConfig) -> F.MbpaResult:
    """Change of the logits by MbPA at weight 1, computed once a mini-batch and configuration."""
    batch.check_keys("MbPA")
    return batch.shared(_whole(config), lambda: _mbpa(batch, config, slice(None)))


def mbpa_change(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """``s d`` (N, V), the weighted change of the logits by MbPA, computed once."""

    def compute() -> Tensor:
        return _weights(batch, config) * mbpa_result(batch, config).delta

    return batch.shared(("change", config), compute)


def _weights(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """s (N, 1), the weight of each query's change."""
    if not isinstance(config.weight, str):
        return batch.hidden.new_full((len(batch.hidden), 1), config.weight)
    return batch.learned_share(MbpaWeight(_whole(config)))[:, None].to(batch.hidden.dtype)


def _losses(batch: EvalBatch, targets: Tensor, change: Tensor, weights: Tensor) -> Tensor:
    """Losses (N, W) of targets (N,) with a change (N, V) of the logits at weights (N, W), nats."""
    own = weights * change.gather(1, targets[:, None])
    return batch.base_losses(targets)[:, None] + F.growth(batch.logits, batch.log_normalizers, change, weights) - own


def _mbpa(batch: EvalBatch, config: MbpaConfig, rows: slice | list[int]) -> F.MbpaResult:
    """Change of the logits by MbPA for some queries of a mini-batch."""
    return F.mbpa_delta(
        batch.hidden[rows],
        batch.neighbors.rows(rows),
        batch.head,
        batch.logits[rows],
        lr=config.lr,
        steps=config.steps,
        eps=config.eps,
        lr_units=config.lr_units,
        solver=config.solver,
        optimizer=config.optimizer,
        pull=config.pull,
        closeness_normalization=config.closeness,
        scale=config.scale,
        states=batch.context.memory.states_of,
        groups=batch.groups[rows],
    )


def shared_closeness(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """MbPA's closeness c_k of each neighbour (N, K), scaled to sum 1."""
    near = batch.neighbors
    return F.closeness(near.distances, near.mask, eps=config.eps, normalization="sum", scale=config.scale)


def adapted_logits(batch: EvalBatch, config: MbpaConfig) -> tuple[Tensor, Tensor]:
    """Logits after MbPA (N, V) and their logsumexp (N,), computed once a mini-batch and configuration."""

    def compute() -> tuple[Tensor, Tensor]:
        logits = batch.logits + mbpa_change(batch, config)
        return logits, logits.logsumexp(1)

    return batch.shared(("adapted", config), compute)


def fast_errors(batch: EvalBatch, config: MbpaConfig) -> Tensor:
    """Error (M,) of MbPA's fast form, measured by the exact one on one query in a thousand of the stream.

    In nats a token, the mean of ``|log p - log p_exact|`` over the exact distribution, for the M queries measured in
    this mini-batch. Which ones are measured depends on their position in the stream alone.
    """

    def compute() -> Tensor:
        start = int(batch.context.observed.sum())
        rows = [row for row in range(len(batch.hidden)) if _measured(start + row)]
        if config.solver == "exact" or not rows:
            return batch.hidden.new_zeros(0)
        weights, logits = _weights(batch, config)[rows], batch.logits[rows]
        exact = (logits + weights * _mbpa(batch, replace(config, solver="exact"), rows).delta).log_softmax(1)
        fast = (logits + weights * mbpa_result(batch, config).delta[rows]).log_softmax(1)
        return (exact.exp() * (fast - exact).abs()).sum(1)

    return batch.shared(("fast errors", config), compute)


def _measured(position: int) -> bool:
    """Whether the fast form's error is measured at a position of the stream: at a random one of every thousand."""
    block, offset = divmod(position, MEASURED)
    return offset == Random(block).randrange(MEASURED)


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What happened in the gradient steps that a rule rests on, query by query of a mini-batch."""

    rose: Tensor  # (N,) bool, the neighbours' loss rose
    stabilized: Tensor  # (N,) bool, it was run again at a stable rate
    errors: Tensor  # (M,) of the fast form, nats a token, for the queries where it was measured

    @classmethod
    def of(cls, rule: Rule, batch: EvalBatch) -> Safeguards:
        """Outcome for a rule; nothing happened to one without gradient steps."""
        import torch

        nothing = torch.zeros(len(batch.hidden), dtype=torch.bool, device=batch.hidden.device)
        rose, stabilized, errors = nothing, nothing, [batch.hidden.new_zeros(0)]
        for config in cast(tuple[MbpaConfig, ...], rule.needs.descents):
            result = mbpa_result(batch, config)
            rose, stabilized = rose | result.rose, stabilized | result.stabilized
            errors.append(fast_errors(batch, config))
        return cls(rose, stabilized, torch.cat(errors))


def _search_space(settings: MethodSettings, grid: Grid) -> Axes:
    """Values that are tried: of Newton's steps pull and weight, of others rate and number."""
    if settings[MbpaConfig].optimizer == "newton":
        return {"pull": grid.mbpa_pull, "weight": grid.mbpa_weight}
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
