"""Mixture of all components whose shares depend on the query: a softmax gate that goes on learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.cache import Cache, CacheConfig
from hebblm.adapt.methods.knn import KnnConfig, KnnLM
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.rule import Ensemble, Method, Rule
from hebblm.adapt.needs import Needs
from hebblm.adapt.settings import Count, MethodSettings, NonNegative, Section
from hebblm.errors import UserError
from hebblm.suggest import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

PAIR = (0.6, 2.0)  # sharpness of the caches; a weight was fitted for each
COMPONENTS = ("base", "short", "medium", "long", "knn", "mbpa")
NEAREST = 1e-3  # added to the nearest squared distance, which is 0 where a state comes again
SHARP = 2.0  # theta of the weights exp(theta h_k . h), relative, of the labels
FEATURES = (
    "one",
    "base entropy",
    "base peak",
    "label entropy",
    "nearest entry",
    "top label's mass",
    "base of the top label",
    "top label is the base's",
    "base's word in training",
    "top label in the stream",
    "tokens of the stream",
)
"""The features: a constant, entropies and logarithms of probabilities in nats, of distances, and of 1 + a count."""
# What the gate starts from, a column a feature, written by recipes/best/fit.py.
# Fitted on the first 15,000 validation tokens each of ptb; wt2; wt2-to-ptb; ptb, moving; wt2-to-ptb, moving.
WEIGHTS: dict[str, tuple[float, ...]] = {
    "base": (1.074, 0.337, -0.294, 0.688, 0.113, 0.134, 0.349, 0.382, 0.471, -0.544, -0.013),
    "short sharp": (-0.361, 0.176, 0.028, -0.038, -0.093, -0.241, 0.071, 0.017, -0.07, 0.042, -0.061),
    "short flat": (-0.528, 0.604, 0.092, -0.117, 0.536, -0.246, -0.326, 0.118, 0.137, 0.417, -0.083),
    "medium sharp": (-0.314, 0.137, 0.061, -0.08, -0.124, -0.109, 0.028, 0.022, -0.01, 0.074, -0.025),
    "medium flat": (-0.401, -0.148, 0.119, -0.149, 0.314, -0.174, -0.049, -0.197, -0.183, 0.054, -0.274),
    "long sharp": (-0.251, -0.066, 0.08, -0.046, -0.082, -0.156, -0.026, -0.105, -0.1, 0.132, 0.012),
    "long flat": (-0.373, -0.28, 0.138, -0.167, 0.307, -0.154, -0.2, -0.32, -0.256, 0.045, -0.25),
    "knn": (-0.142, -0.17, 0.01, -0.207, -0.067, 0.101, 0.239, 0.111, -0.278, -0.2, -0.1),
    "mbpa": (1.296, -0.591, -0.234, 0.116, -0.904, 0.844, -0.085, -0.028, 0.289, -0.02, 0.794),
}


@dataclass(frozen=True, slots=True)
class BestConfig(Section):
    """The mixture of base, caches of three windows, kNN-LM and MbPA, which is that of its own settings at weight 1.

    Args:
        parts: comma-separated components; a gate without some has the weights of the others.
        short: number of most recent tokens that the first cache remembers.
        medium: of the second.
        long: of the third.
        lr: of the gate's step at each token that was scored; 0 keeps the weights that are shipped.
    """

    section: ClassVar[str] = "best"

    parts: str = ",".join(COMPONENTS)
    short: Count = 300
    medium: Count = 2000
    long: Count = 20_000
    lr: NonNegative = 0.01

    def __post_init__(self) -> None:
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

    x (F) are the :data:`FEATURES`, none of which depends on the answer. G starts from weights fitted on validation text
    and goes on learning from the tokens already scored, see :class:`hebblm.adapt.functional.LearnedGate`.
    """

    name: ClassVar[str] = "best"

    config: BestConfig
    rules: tuple[tuple[str, Rule], ...]  # of each row of G, by its name there

    def log_probs(self, batch: EvalBatch) -> Tensor:
        def compute() -> Tensor:
            return F.log_mixture((rule.log_probs(batch) for _, rule in self.rules), self._log_shares(batch))

        return batch.shared(self, compute)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        def compute() -> Tensor:
            losses = F.gated_losses(self._losses(batch, targets), self._log_shares(batch))
            return losses.to(batch.logits.dtype)

        return batch.scored(self, targets, compute)

    @property
    def needs(self) -> Needs:
        """Needs of the components, and of the gate's features."""
        needs = Needs(retrieval=True, shares=(self,) if self.config.lr else ())
        for _, rule in self.rules:
            needs = rule.needs | needs
        return needs

    @property
    def learned_as(self) -> str:
        """The gate of the components, whose rows are theirs in this order."""
        return f"gate of {self.config.parts}/1"

    @property
    def initial(self) -> F.LearnedGate:
        """The gate as it is shipped."""
        import torch

        weights = torch.tensor([WEIGHTS[name] for name, _ in self.rules], dtype=torch.float64, device="cpu")
        return F.LearnedGate(weights, self.config.lr)

    def evidence(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Losses of each token under the parts, nats, and its features, (N, C + F) float64."""
        import torch

        return torch.cat([self._losses(batch, targets), gate_features(batch)], 1)

    def _losses(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Losses (N, C) of the components, nats, float64."""
        import torch

        def compute() -> Tensor:
            return torch.stack([rule.score(batch, targets) for _, rule in self.rules], 1).double()

        return batch.scored(("components", self), targets, compute)

    def _log_shares(self, batch: EvalBatch) -> Tensor:
        """log w (N, C), float64."""

        def compute() -> Tensor:
            import torch

            if not self.config.lr:
                weights = self.initial.weights.to(batch.hidden.device)[None]  # (1, C, F)
            else:
                gates, rows = batch.learned(self)
                distinct = torch.stack([gate.weights for gate in gates]).to(batch.hidden.device)  # (S, C, F)
                weights = distinct[rows]  # (N, C, F)
            return F.log_softmax_shares(gate_features(batch), weights)

        return batch.shared(("shares", self), compute)


def gate_features(batch: EvalBatch) -> Tensor:
    """The features (N, F) of :data:`FEATURES`, float64, all about as large as 1; none depends on the labels."""
    return batch.shared("gate features", lambda: _features(batch))


def _features(batch: EvalBatch) -> Tensor:
    import torch

    from hebblm.adapt.counts import entry_counts  # it loads torch

    near, context, log_probs = batch.neighbors, batch.context, batch.log_probs
    entropy = torch.special.entr(log_probs.exp()).sum(1)
    peak, favourite = log_probs.max(1)
    any_entry = near.mask[:, 0]
    scores = F.log_weights(batch.products, near.mask, sharpness=SHARP, scale="relative")
    weights = scores.masked_fill(~near.mask, -torch.inf).softmax(1).nan_to_num(0.0)
    mass, at = F.label_sums(near.values, weights).max(1)  # (N,), 0 for no entry
    label = near.values.gather(1, at[:, None]).squeeze(1)  # (N,) the top label
    size = batch.queries.square().sum(1).clamp_min(torch.finfo(batch.queries.dtype).tiny)
    nearest = (NEAREST + near.distances[:, 0] / size).log()
    read = context.observed.sum() + (0 if batch.block is None else batch.block.visible)
    often = entry_counts(batch, "observed", label[:, None]).squeeze(1) - context.train_counts[label]
    counts = [context.train_counts[favourite], often.where(any_entry, 0), read.expand_as(label)]
    columns = [
        torch.ones_like(peak),
        entropy / 5,
        peak / 5,
        F.label_entropy(scores, near.values, near.mask) / 5,
        nearest.where(any_entry, 0) / 5,
        mass,
        log_probs.gather(1, label[:, None]).squeeze(1).where(any_entry, 0) / 5,
        (label == favourite) & any_entry,
        *(count.double().log1p() / 10 for count in counts),
    ]
    return torch.stack([column.double() for column in columns], 1)


def best_rule(settings: MethodSettings) -> Rule:
    """The mixture of the components that are set."""
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
BEST = Method("best", "Best (ours)", "ours", best_rule, _SECTIONS, tuned=False, plot_style=("#000000",))
DYNAMIC_BEST = Method(
    "dynamic+best",
    "Dynamic+Best (ours)",
    "ours",
    best_rule,
    _SECTIONS,
    moving=True,
    tuned=False,
    plot_style=("#000000", "--"),
)
BEST_OF_BOTH = Ensemble("best-of-both", "Best of both (ours)", "ours", (BEST.name, DYNAMIC_BEST.name), ("#000000", ":"))
