"""Rules of other rules: two interpolated, one made flatter or sharper, and Mixture beside another method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hebblm.adapt.methods.hebb import HebbConfig, HebbLearnedConfig, hebb_rule, learned_rule
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.memory_mixture import Mixed
from hebblm.adapt.methods.mixture import MixtureConfig, mixture_rule
from hebblm.adapt.methods.rule import Method, Needs, Rule
from hebblm.adapt.section import Section, Share

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch
    from hebblm.adapt.settings import MethodSettings


@dataclass(frozen=True, slots=True)
class Tempered:
    """``softmax(log P / T)``: another rule's distribution, flatter for T above 1 and sharper below."""

    rule: Rule
    temperature: float

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return (N, V), nats."""
        return (self.rule.log_probs(batch) / self.temperature).log_softmax(1)

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the loss (N,), nats; the normaliser takes every class."""
        return tempered_losses(self.rule.log_probs(batch), targets, self.temperature)

    @property
    def name(self) -> str:
        """Name of the rule."""
        return self.rule.name

    @property
    def needs(self) -> Needs:
        """Requirements of the rule."""
        return self.rule.needs


def tempered_losses(log_probs: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return ``-log softmax(log P / T)`` (N,) of ``targets`` (N,), from (N, V) log-probabilities; nats."""
    scaled = log_probs / temperature
    return scaled.logsumexp(1) - scaled.gather(1, targets[:, None]).squeeze(1)


@dataclass(frozen=True, slots=True)
class BesideMixtureConfig(Section):
    """Mixture beside another method.

    Args:
        weight: share w of Mixture, learned online or a number; the rest is the other method's.
    """

    weight: Share = "online"


class MixtureMbpaConfig(BesideMixtureConfig):
    """Mixture+MbPA."""

    section = "mixture_mbpa"


class MixtureHebbConfig(BesideMixtureConfig):
    """Mixture+Hebb."""

    section = "mixture_hebb"


class MixtureHebbLearnedConfig(BesideMixtureConfig):
    """Mixture+Hebb-learned."""

    section = "mixture_hebb_learned"


def beside_mixture(settings: MethodSettings, other: Rule, weight: Share) -> Rule:
    """Return Mixture and another rule, interpolated."""
    return Mixed((mixture_rule(settings), other), weight)


MIXTURE_MBPA = Method(
    "mixture+mbpa",
    "Mixture+MbPA",
    "paper",
    lambda s: beside_mixture(s, Mbpa(s[MbpaConfig]), s[MixtureMbpaConfig].weight),
    (MixtureConfig, MbpaConfig, MixtureMbpaConfig),
    parts=("mixture", "mbpa"),
    look=("#44aa99", "--"),
)
MIXTURE_HEBB = Method(
    "mixture+hebb",
    "Mixture+Hebb",
    "paper",
    lambda s: beside_mixture(s, hebb_rule(s), s[MixtureHebbConfig].weight),
    (MixtureConfig, MbpaConfig, HebbConfig, MixtureHebbConfig),
    parts=("mixture", "hebb"),
    look=("#882255", "--"),
)
MIXTURE_HEBB_LEARNED = Method(
    "mixture+hebb-learned",
    "Mixture+Hebb-learned (ours)",
    "ours",
    lambda s: beside_mixture(s, learned_rule(s), s[MixtureHebbLearnedConfig].weight),
    (MixtureConfig, MbpaConfig, HebbConfig, HebbLearnedConfig, MixtureHebbLearnedConfig),
    parts=("mixture", "hebb-learned"),
    look=("#882255", ":"),
)
