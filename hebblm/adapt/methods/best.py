"""Mixture of all components whose shares depend on the query: a softmax gate that goes on learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.methods.best_weights import WEIGHTS
from hebblm.adapt.methods.cache import Cache, CacheConfig
from hebblm.adapt.methods.knn import KnnConfig, KnnLM
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.rule import Ensemble, Method, Needs, Rule
from hebblm.adapt.section import Count, NonNegative, Section
from hebblm.errors import UserError
from hebblm.suggest import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.adapt.settings import MethodSettings


PAIR = (0.6, 2.0)  # sharpness of the caches; a weight was fitted for each
COMPONENTS = ("base", "short", "medium", "long", "knn", "mbpa")


@dataclass(frozen=True, slots=True)
class BestConfig(Section):
    """The mixture of base, caches of three windows, kNN-LM and MbPA, which is that of its own settings at weight 1.

    Args:
        parts: comma-separated components; a gate without some has the weights of the others.
        short: number of most recent tokens that the first cache remembers.
        medium: of the second.
        long: of the third.
        rate: of the gate's step at each token that was scored; 0 keeps the weights that are shipped.
    """

    section: ClassVar[str] = "best"

    parts: str = ",".join(COMPONENTS)
    short: Count = 300
    medium: Count = 2000
    long: Count = 20_000
    rate: NonNegative = 0.01

    def __post_init__(self) -> None:
        Section.__post_init__(self)
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
    """``sum_c w_c P_c`` with ``w = softmax(G x)``: shares of the components that depend on the query.

    x (F) are those of :data:`hebblm.adapt.features.NAMES`, none of which depends on the answer. G starts from
    weights fitted on validation text and goes on learning from the tokens already scored, see
    :class:`hebblm.adapt.functional.LearnedGate`.

    Args:
        config: components and rate.
        rules: of each row of G, by its name there.
    """

    name: ClassVar[str] = "best"

    config: BestConfig
    rules: tuple[tuple[str, Rule], ...]

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats."""

        def compute() -> Tensor:
            return F.log_mixture((rule.log_probs(batch) for _, rule in self.rules), self._log_shares(batch))

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats."""

        def compute() -> Tensor:
            losses = F.gated_losses(self._losses(batch, targets), self._log_shares(batch))
            return losses.to(batch.logits.dtype)

        return batch.scored(self, targets, compute)

    @property
    def needs(self) -> Needs:
        """Requirements of the components, and of the gate's features."""
        found = Needs(retrieval=True, shares=(self,) if self.config.rate else ())
        for _, rule in self.rules:
            found = rule.needs | found
        return found

    @property
    def learned_as(self) -> str:
        """The gate of the components, whose rows are theirs in this order."""
        return f"gate of {self.config.parts}/1"

    @property
    def initial(self) -> F.LearnedGate:
        """The gate as it is shipped."""
        import torch

        weights = torch.tensor([WEIGHTS[name] for name, _ in self.rules], dtype=torch.float64, device="cpu")
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
                weights = self.initial.weights.to(batch.hidden.device)[None]  # (1, C, F)
            else:
                gates, rows = batch.learned(self)
                steps = torch.stack([gate.weights for gate in gates]).to(batch.hidden.device)  # (S, C, F)
                weights = steps[rows]  # (N, C, F)
            return F.log_softmax_shares(self._features(batch), weights)

        return batch.shared(("shares", self), compute)


def best_rule(settings: MethodSettings) -> Rule:
    """Return the mixture of the components that are set."""
    config, base = settings[BestConfig], Unadapted()
    flat, sharp = PAIR

    def caches(name: str, window: int) -> tuple[tuple[str, Rule], ...]:
        return tuple(
            (f"{name} {sharpness}", Cache(CacheConfig(window, theta, 1.0)))
            for sharpness, theta in (("sharp", sharp), ("flat", flat))
        )

    every: dict[str, tuple[tuple[str, Rule], ...]] = {
        "base": (("base", base),),
        "short": caches("short", config.short),
        "medium": caches("medium", config.medium),
        "long": caches("long", config.long),
        "knn": (("knn", KnnLM(KnnConfig(min(PAIR), 1.0))),),
        "mbpa": (("mbpa", Mbpa(replace(settings[MbpaConfig], weight=1.0))),),
    }
    return Best(config, tuple(row for name in config.names for row in every[name]))


_SECTIONS = (BestConfig, MbpaConfig)
BEST = Method("best", "Best (ours)", "ours", best_rule, _SECTIONS, tuned=False, look=("#000000",))
DYNAMIC_BEST = Method(
    "dynamic+best",
    "Dynamic+Best (ours)",
    "ours",
    best_rule,
    _SECTIONS,
    moving=True,
    tuned=False,
    look=("#000000", "--"),
)
BEST_OF_BOTH = Ensemble("best-of-both", "Best of both (ours)", "ours", (BEST.name, DYNAMIC_BEST.name), ("#000000", ":"))
