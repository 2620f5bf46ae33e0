"""Mixture of all components whose shares depend on the query: a softmax gate that goes on
learning.
"""

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
from hebblm.adapt.methods.predictor import Ensemble, Method, Predictor
from hebblm.adapt.requirements import Requirements
from hebblm.adapt.settings import Count, MethodSettings, NonNegative, Section
from hebblm.errors import UserError
from hebblm.runtime.spelling import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

PAIR = (0.6, 2.0)  # sharpness of the caches; a weight was fitted for each
COMPONENTS = ("base", "short", "medium", "long", "knn", "mbpa", "ngram")
NEAREST = 1e-3  # added to the nearest squared distance, which is 0 if a state comes again
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
"""The features: a constant, entropies and logarithms of probabilities in nats, of distances, and of
1 + a count.
"""
# What the gate starts from, a column a feature, those of the n-gram last; written by
# recipes/best/fit.py. Fitted on the first 8,000 tokens each of ptb; wt2-to-ptb; ptb by the shipped
# Llama; and torch's documentation, code of Python and articles of WikiText-2 by
# SmolLM2-135M-Instruct.
# fmt: off
WEIGHTS: dict[str, tuple[float, ...]] = {
    "base": (
        1.523, 0.659, -0.492, 0.377, 0.102, 0.427, 0.746, 0.33, -0.232, -1.479, 0.142,
        0.222, 0.818, 0.448, 0.035, -0.48, -0.211,
    ),
    "short sharp": (
        -0.72, 0.316, 0.098, 0.034, -0.353, -0.453, 0.135, 0.19, 0.611, 0.3, -0.02,
        -0.398, -0.144, 0.116, -0.294, -0.26, 0.156,
    ),
    "short flat": (
        -1.239, 1.043, 0.291, -0.135, 0.075, -0.589, -0.314, 0.179, 1.231, 0.571, -0.201,
        -0.338, -0.216, -0.317, -0.368, -0.153, -0.314,
    ),
    "medium sharp": (
        -0.34, 0.052, 0.121, 0.039, -0.145, -0.241, 0.323, 0.2, 0.088, -0.007, -0.109,
        -0.085, -0.11, -0.015, -0.13, -0.125, 0.123,
    ),
    "medium flat": (
        -0.7, 0.161, 0.131, -0.102, 0.254, -0.443, -0.355, -0.323, 0.356, 0.118, -0.37,
        0.297, -0.193, -0.463, -0.341, -0.516, 0.091,
    ),
    "long sharp": (
        -0.34, -0.142, 0.133, -0.038, -0.04, -0.233, 0.276, 0.005, -0.078, -0.023, -0.151,
        0.019, -0.083, -0.084, -0.192, -0.141, 0.029,
    ),
    "long flat": (
        -0.641, -0.232, 0.113, -0.166, 0.191, -0.394, 0.141, -0.313, -0.335, -0.157, -0.488,
        -0.009, -0.143, -0.189, -0.3, -0.364, -0.299,
    ),
    "knn": (
        0.074, -0.283, -0.006, -0.78, -0.507, 1.077, 0.315, -0.165, -0.923, -0.036, 0.415,
        -0.334, -0.345, -0.056, 0.808, 0.682, -0.145,
    ),
    "mbpa": (
        0.037, 0.056, -0.069, 0.089, 0.106, -0.102, -0.412, -0.219, 0.068, 0.022, -0.052,
        0.286, -0.039, -0.098, -0.113, -0.033, 0.161,
    ),
    "mbpa as set": (
        2.847, -1.938, -0.242, 1.234, 0.596, 0.509, -0.108, 0.243, -0.608, 0.03, 0.924,
        0.682, 0.723, 0.704, 0.738, 0.418, 0.3,
    ),
    "ngram": (
        -0.502, 0.307, -0.077, -0.553, -0.28, 0.443, -0.748, -0.126, -0.178, 0.662, -0.09,
        -0.343, -0.268, -0.048, 0.157, 0.972, 0.108,
    ),
}
# fmt: on
# What it adds at the beginning of a text; written by recipes/best/beginnings.py.
# Fitted on lines of council minutes, server log, asyncio code, linear algebra docs, news, German
# messages; by smollm2-135m, small-wt2-raw.
# fmt: off
BEGINNINGS: dict[str, tuple[float, ...]] = {
    "base": (
        0.024, 0.558, 0.166, 0.511, 1.861, -0.896, -1.095, -0.13, 1.852, 0.183, -0.076,
        1.121, -0.051, -0.371, -0.674, -0.843, 1.621,
    ),
    "short sharp": (
        -0.243, -0.202, 0.045, -0.113, 0.045, -0.084, 0.363, -0.074, -0.262, -0.103, -0.187,
        -0.221, -0.038, 0.012, 0.004, -0.043, -0.369,
    ),
    "short flat": (
        -0.066, -0.088, 0.002, -0.058, -0.075, 0.018, 0.289, 0.023, -0.105, -0.014, -0.044,
        -0.127, -0.055, 0.042, 0.074, 0.029, -0.143,
    ),
    "medium sharp": (
        0, -0.004, -0.013, -0.015, -0.05, 0.026, 0.096, 0.007, -0.071, -0.012, 0.009,
        -0.058, 0.016, 0.038, 0.004, 0.019, -0.065,
    ),
    "medium flat": (
        -0.097, -0.117, 0.044, -0.019, -0.044, -0.058, 0.3, 0.045, -0.116, -0.029, -0.075,
        -0.185, 0.072, 0.016, -0.001, 0.008, -0.236,
    ),
    "long sharp": (
        0.543, 0.678, -0.271, 0.242, -0.33, 0.259, 0.058, 0.154, 0.275, 0.06, 0.452,
        0.066, 0.288, 0.17, 0.018, 0.21, 0.295,
    ),
    "long flat": (
        0.02, 0.023, -0.007, 0.01, -0.011, 0.008, -0.018, 0.009, 0.016, 0.006, 0.016,
        0.005, 0.014, 0.004, -0.002, 0.002, 0.018,
    ),
    "knn": (
        -0.332, -0.358, 0.129, -0.109, 0.032, -0.165, 0.44, -0.011, -0.277, -0.165, -0.272,
        -0.115, -0.011, 0.095, -0.301, -0.094, -0.36,
    ),
    "mbpa": (
        0.035, -0.023, -0.052, 0.007, 0.272, 0.013, 0.204, 0.161, 0.013, -0.035, 0.017,
        -0.241, 0.175, 0.105, -0.004, 0.255, -0.363,
    ),
    "mbpa as set": (
        -0.318, -0.114, 0.099, -0.081, -1.009, -0.325, -0.101, -0.034, -0.057, 0.098, -0.317,
        -0.186, 0.539, -0.068, -0.603, -0.426, -0.281,
    ),
    "ngram": (
        0.434, -0.354, -0.142, -0.374, -0.691, 1.203, -0.536, -0.15, -1.268, 0.01, 0.475,
        -0.06, -0.949, -0.043, 1.486, 0.882, -0.116,
    ),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class BestConfig(Section):
    """The mixture of base, caches of three windows, kNN-LM, MbPA at weight 1 and at its own weight,
    and the n-gram.

    Args:
        parts: comma-separated components; if some are missing, the gate uses the weights of the
            others.
        short: number of most recent tokens that the first cache remembers.
        medium: the same number for the second cache.
        long: the same number for the third cache.
        lr: learning rate of the gate; 0 keeps the shipped weights.
    """

    section: ClassVar[str] = "best"

    parts: str = ",".join(COMPONENTS)
    short: Count = 300
    medium: Count = 2000
    long: Count = 20_000
    lr: NonNegative = 0.15

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in COMPONENTS:
                raise unknown(
                    "component", name, COMPONENTS, f"best.parts knows {', '.join(COMPONENTS)}"
                )
        if len(set(self.names)) < len(self.names):
            raise UserError(f"best.parts = {self.parts!r} names a component twice; name each once")

    @property
    def names(self) -> tuple[str, ...]:
        """The components."""
        return tuple(self.parts.split(","))


@dataclass(frozen=True, slots=True)
class BestFeatures:
    """Features of the gate: the :data:`FEATURES` and, with an n-gram, the features of its match."""

    ngram: Ngram | None

    def __call__(self, batch: EvalBatch) -> Tensor:
        import torch

        if (ngram := self.ngram) is None:
            return gate_features(batch)
        return batch.shared(
            self, lambda: torch.cat([gate_features(batch), ngram.features(batch)], 1)
        )


def gate_features(batch: EvalBatch) -> Tensor:
    """Return the features (N, F) of :data:`FEATURES`, float64, all of the order of 1; none depends
    on the labels.
    """
    return batch.shared("gate features", lambda: _features(batch))


def _features(batch: EvalBatch) -> Tensor:
    import torch

    from hebblm.adapt.counts import entry_counts  # it loads torch

    near, context, rows = batch.found, batch.context, batch.row_stats
    any_entry = near.mask[:, 0]
    scores = F.log_weights(batch.products, near.mask, sharpness=SHARP, scale="relative")
    weights = scores.masked_fill(~near.mask, -torch.inf).softmax(1).nan_to_num(0.0)
    mass, at = F.label_sums(near.values, weights).max(1)  # (N,), 0 without entries
    label = near.values.gather(1, at[:, None]).squeeze(1)  # (N,) the top label
    size = batch.queries.square().sum(1).clamp_min(torch.finfo(batch.queries.dtype).tiny)
    nearest = (NEAREST + near.distances[:, 0] / size).log()
    read = context.observed.sum() + (0 if batch.block is None else batch.block.visible)
    often = entry_counts(batch, "observed", label[:, None]).squeeze(1) - context.train_counts[label]
    counts = [context.train_counts[rows.favorite], often.where(any_entry, 0), read.expand_as(label)]
    columns = [
        torch.ones_like(rows.peak),
        rows.entropy / 5,
        rows.peak / 5,
        F.label_entropy(scores, near.values, near.mask) / 5,
        nearest.where(any_entry, 0) / 5,
        mass,
        (-batch.base_losses(label)).where(any_entry, 0) / 5,
        (label == rows.favorite) & any_entry,
        *(count.double().log1p() / 10 for count in counts),
    ]
    return torch.stack([column.double() for column in columns], 1)


def best_predictor(settings: MethodSettings) -> Predictor:
    """Return the mixture of the chosen components."""
    config, base, ngram = settings[BestConfig], Unadapted(), Ngram(settings[NgramConfig])
    flat, sharp = PAIR

    def caches(name: str, window: int) -> tuple[tuple[str, Predictor], ...]:
        return tuple(
            (f"{name} {sharpness}", Cache(CacheConfig(window, theta, 1.0)))
            for sharpness, theta in (("sharp", sharp), ("flat", flat))
        )

    every: dict[str, tuple[tuple[str, Predictor], ...]] = {
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
        f"gate of {config.parts}/3",
        tuple(predictor for _, predictor in rows),
        BestFeatures(ngram if counted else None),
        tuple(WEIGHTS[name][:columns] + BEGINNINGS[name][:columns] for name, _ in rows),
        config.lr,
        anchor=config.names.index("base") if "base" in config.names else None,
        needed=Requirements(retrieval=True),
    )


_SECTIONS = (BestConfig, MbpaConfig, NgramConfig)
BEST = Method(
    "best", "Best (ours)", "ours", best_predictor, _SECTIONS, tuned=False, plot_style=("#000000",)
)
DYNAMIC_BEST = Method(
    "dynamic+best",
    "Dynamic+Best (ours)",
    "ours",
    best_predictor,
    _SECTIONS,
    uses_dynamic_base=True,
    tuned=False,
    plot_style=("#000000", "--"),
)
BEST_OF_BOTH = Ensemble(
    "best-of-both", "Best of both (ours)", "ours", (BEST.name, DYNAMIC_BEST.name), ("#000000", ":")
)
