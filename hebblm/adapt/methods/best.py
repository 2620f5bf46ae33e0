"""Mixture of all components whose shares depend on the query: a softmax gate that goes on learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt import functional as F
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.cache import Cache, CacheConfig
from hebblm.adapt.methods.gate import Gated
from hebblm.adapt.methods.knn import KnnConfig, KnnLM
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.ngram import FEATURES as NGRAM_FEATURES
from hebblm.adapt.methods.ngram import Ngram, NgramConfig
from hebblm.adapt.methods.rule import Ensemble, Method, Rule
from hebblm.adapt.needs import Needs
from hebblm.adapt.settings import Count, MethodSettings, NonNegative, Section
from hebblm.errors import UserError
from hebblm.suggest import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

PAIR = (0.6, 2.0)  # sharpness of the caches; a weight was fitted for each
COMPONENTS = ("base", "short", "medium", "long", "knn", "mbpa", "ngram")
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
# What the gate starts from, a column a feature, those of the n-gram last; written by recipes/best/fit.py.
# Fitted on the first 10,000 tokens each of ptb; wt2-to-ptb; ptb by the shipped Llama; and documentation and code of
# Python by SmolLM2-135M-Instruct.
# fmt: off
WEIGHTS: dict[str, tuple[float, ...]] = {
    "base": (
        0.603, 0.637, -0.338, 0.275, -0.371, 0.14, 0.352, 0.322, -0.044, -0.403, 0.079,
        0.062, 0.54, 0.121, -0.12, -0.132, -0.021,
    ),
    "short sharp": (
        -0.358, 0.354, -0.03, -0.128, 0.152, -0.168, 0.044, 0.007, 0.272, 0.065, -0.039,
        -0.241, -0.161, 0.076, -0.032, -0.172, -0.043,
    ),
    "short flat": (
        -0.572, 0.729, 0.071, -0.113, 0.448, -0.33, -0.2, 0.085, 0.751, 0.29, -0.058,
        -0.279, -0.101, -0.14, -0.052, -0.198, 0.01,
    ),
    "medium sharp": (
        -0.307, 0.196, 0.01, -0.141, 0.198, -0.099, 0.154, -0.026, 0.162, 0.04, -0.107,
        -0.04, -0.151, 0, -0.116, -0.209, 0.152,
    ),
    "medium flat": (
        -0.374, -0.032, 0.062, -0.184, 0.241, -0.141, 0.023, -0.173, -0.073, -0.042, -0.274,
        0.03, -0.079, -0.157, -0.169, -0.264, -0.057,
    ),
    "long sharp": (
        -0.355, -0.091, 0.059, -0.157, 0.176, -0.141, 0.216, -0.12, -0.128, -0.059, -0.245,
        -0.003, -0.106, -0.096, -0.149, -0.217, -0.072,
    ),
    "long flat": (
        -0.392, -0.114, 0.068, -0.211, 0.223, -0.133, 0.045, -0.211, -0.156, -0.071, -0.298,
        0.018, -0.095, -0.145, -0.17, -0.233, -0.15,
    ),
    "knn": (
        -0.104, -0.303, 0.099, -0.104, -0.094, 0.033, 0.188, 0.029, -0.252, -0.08, -0.045,
        -0.066, -0.141, -0.077, 0.18, 0.121, -0.192,
    ),
    "mbpa": (
        -0.031, -0.072, 0.007, -0.014, 0.027, -0.011, -0.013, -0.07, -0.059, -0.031, -0.047,
        0.04, -0.042, -0.02, -0.008, -0.017, -0.018,
    ),
    "mbpa as set": (
        2.007, -1.544, 0.065, 1.267, -0.901, 0.361, -0.241, 0.18, -0.45, 0.125, 0.976,
        0.644, 0.497, 0.438, 0.428, 0.635, 0.425,
    ),
    "ngram": (
        -0.117, 0.24, -0.071, -0.49, -0.099, 0.49, -0.569, -0.023, -0.023, 0.167, 0.057,
        -0.165, -0.161, 0, 0.209, 0.686, -0.033,
    ),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class BestConfig(Section):
    """The mixture of base, caches of three windows, kNN-LM, MbPA at weight 1 and at its own weight, and the n-gram.

    Args:
        parts: comma-separated components; a gate without some has the weights of the others.
        short: number of most recent tokens that the first cache remembers.
        medium: of the second.
        long: of the third.
        lr: of the gate's steps; 0 keeps the weights that are shipped.
    """

    section: ClassVar[str] = "best"

    parts: str = ",".join(COMPONENTS)
    short: Count = 300
    medium: Count = 2000
    long: Count = 20_000
    lr: NonNegative = 0.1

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
class BestFeatures:
    """Features of the gate: the :data:`FEATURES` and, where there is an n-gram, what it says of the match."""

    ngram: Ngram | None

    def __call__(self, batch: EvalBatch) -> Tensor:
        import torch

        if (ngram := self.ngram) is None:
            return gate_features(batch)
        return batch.shared(self, lambda: torch.cat([gate_features(batch), ngram.features(batch)], 1))


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
    config, base, ngram = settings[BestConfig], Unadapted(), Ngram(settings[NgramConfig])
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
        "mbpa": (
            ("mbpa", Mbpa(replace(settings[MbpaConfig], weight=1.0))),
            ("mbpa as set", Mbpa(settings[MbpaConfig])),
        ),
        "ngram": (("ngram", ngram),),
    }
    rows = tuple(row for name in config.names for row in every[name])
    counted = "ngram" in config.names
    columns = len(FEATURES) + (len(NGRAM_FEATURES) if counted else 0)
    return Gated(
        "best",
        f"gate of {config.parts}/2",
        tuple(rule for _, rule in rows),
        BestFeatures(ngram if counted else None),
        tuple(WEIGHTS[name][:columns] for name, _ in rows),
        config.lr,
        anchor=config.names.index("base") if "base" in config.names else None,
        needed=Needs(retrieval=True),
    )


_SECTIONS = (BestConfig, MbpaConfig, NgramConfig)
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
