"""One mixture of all components whose shares depend on the query: a softmax gate that goes on learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hebblm.adapt import checks
from hebblm.adapt import functional as F
from hebblm.adapt.methods.best_weights import WEIGHTS
from hebblm.adapt.methods.cache import Cache, CacheConfig
from hebblm.adapt.methods.hebb import hebb_rule
from hebblm.adapt.methods.knn import KnnConfig, KnnLM
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mbpa import Mbpa
from hebblm.adapt.methods.mixture import Mixture, MixtureConfig
from hebblm.adapt.methods.remembering import PAIR
from hebblm.adapt.methods.rule import Method, Needs, Rule
from hebblm.errors import UserError
from hebblm.suggest import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.context import EvalBatch
    from hebblm.adapt.settings import MethodSettings


COMPONENTS = ("base", "cache", "frequency", "knn", "mixture", "mbpa", "hebb")
LONG = 3785  # latest words whose frequencies are a component: the window published for WikiText-2's cache


@dataclass(frozen=True, slots=True)
class BestConfig:
    """The mixture of all components; MbPA and Hebb are those of their own settings.

    Args:
        parts: comma-separated components; a gate without some has the weights of the others.
        window: number of most recent tokens that the cache remembers.
        rate: of the gate's step at each token that was scored; 0 keeps the weights that are shipped.
    """

    parts: str = ",".join(COMPONENTS)
    window: int = 500
    rate: float = 0.01

    def __post_init__(self) -> None:
        checks.at_least("best.window", self.window, 1)
        checks.at_least("best.rate", self.rate, 0)
        for name in self.names:
            if name not in COMPONENTS:
                raise unknown("component", name, COMPONENTS, f"best.parts knows {', '.join(COMPONENTS)}")
        if len(set(self.names)) < len(self.names):
            raise UserError(f"best.parts = {self.parts!r} names a component twice; name each once")

    @property
    def names(self) -> tuple[str, ...]:
        """The components."""
        return tuple(self.parts.split(","))


@dataclass(frozen=True, slots=True)
class Best:
    """``sum_c w_c P_c`` with ``w = softmax(W x)``: shares of the components that depend on the query.

    x (F) are those of :data:`hebblm.adapt.features.NAMES`, none of which depends on the answer. W starts from
    weights fitted on validation text and goes on learning from the tokens already scored, see
    :class:`hebblm.adapt.functional.LearnedGate`.

    Args:
        config: components and rate.
        rules: of each row of W, by its name there.
    """

    config: BestConfig
    rules: tuple[tuple[str, Rule], ...]

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats."""

        def compute() -> Tensor:
            shares = self._log_shares(batch).to(batch.logits.dtype)  # (N, C)
            total = self.rules[0][1].log_probs(batch) + shares[:, :1]
            for at, (_, rule) in enumerate(self.rules[1:], 1):
                total = total.logaddexp(rule.log_probs(batch) + shares[:, at : at + 1])
            return total

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""

        def compute() -> Tensor:
            losses = F.gated_losses(self._losses(batch, targets), self._log_shares(batch))
            return losses.to(batch.logits.dtype)

        return batch.scored(self, targets, compute)

    @property
    def needs(self) -> Needs:
        """What the components need, and those of the gate's features."""
        found = Needs(retrieval=True, shares=(self,) if self.config.rate else ())
        for _, rule in self.rules:
            found = rule.needs | found
        return found

    @property
    def beginning(self) -> F.LearnedGate:
        """The gate as it is shipped."""
        import torch

        weights = torch.tensor([WEIGHTS[name] for name, _ in self.rules], dtype=torch.float64)
        return F.LearnedGate(weights, self.config.rate)

    def evidence(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return of each token its losses under the parts, nats, and its features, (N, C + F) float64."""
        import torch

        return torch.cat([self._losses(batch, targets), self._features(batch)], 1)

    def _features(self, batch: EvalBatch) -> Tensor:
        """Return x (N, F), float64."""
        from hebblm.adapt.features import gate_features  # it loads torch

        return gate_features(batch)

    def _losses(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the losses (N, C) of the components, nats, float64."""
        import torch

        def compute() -> Tensor:
            return torch.stack([rule.score(batch, targets) for _, rule in self.rules], 1).double()

        return batch.scored(("components", self), targets, compute)

    def _log_shares(self, batch: EvalBatch) -> Tensor:
        """Return log w (N, C), float64."""

        def compute() -> Tensor:
            import torch

            if not self.config.rate:
                weights = self.beginning.weights.to(batch.hidden.device)[None]  # (1, C, F)
            else:
                gates, rows = batch.learned(self)
                steps = torch.stack([gate.weights for gate in gates]).to(batch.hidden.device)  # (S, C, F)
                weights = steps[rows]  # (N, C, F)
            return F.log_softmax_shares(self._features(batch), weights)

        return batch.shared(("shares", self), compute)


def best_rule(settings: MethodSettings) -> Rule:
    """Return the mixture of the components that are set."""
    config, base = settings.best, Unadapted()
    flat, sharp = PAIR
    every: dict[str, tuple[tuple[str, Rule], ...]] = {
        "base": (("base", base),),
        "cache": tuple(
            (name, Cache(CacheConfig(config.window, theta, 1.0), base))
            for name, theta in (("cache sharp", sharp), ("cache flat", flat))
        ),
        "frequency": (("frequency", Cache(CacheConfig(LONG, 0.0, 1.0), base)),),
        "knn": tuple(
            (name, KnnLM(KnnConfig(temperature, 1.0)))
            for name, temperature in (("knn sharp", flat), ("knn flat", sharp))
        ),
        "mixture": tuple(
            (name, Mixture(MixtureConfig(theta, 1.0)))
            for name, theta in (("mixture sharp", sharp), ("mixture flat", flat))
        ),
        "mbpa": (("mbpa", Mbpa(settings.mbpa)),),
        "hebb": (("hebb", hebb_rule(settings)),),
    }
    return Best(config, tuple(row for name in config.names for row in every[name]))


_SECTIONS = ("best", "mbpa", "hebb")
BEST = Method("best", "Best (ours)", "ours", best_rule, _SECTIONS, tuned=False)
DYNAMIC_BEST = Method(
    "dynamic+best", "Dynamic+Best (ours)", "ours", best_rule, _SECTIONS, moving=True, tuned=False
)
