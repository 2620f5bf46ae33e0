"""Mixture, linear and as printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from hebblm.adapt import checks
from hebblm.adapt import functional as F
from hebblm.adapt.checks import Scale
from hebblm.adapt.methods.memory_mixture import RememberedLabels, memory_mixture
from hebblm.adapt.methods.predictor import Method, Predictor
from hebblm.adapt.requirements import Requirements
from hebblm.adapt.settings import MethodSettings, Section, Share, Sharpness

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch


@dataclass(frozen=True, slots=True)
class MixtureConfig(Section):
    """Mixture over the retrieved neighbours.

    Args:
        theta: sharpness of the weights exp(theta h_k . h), a number or online: 4, 1.5 and 0.8, each
            with its own learned share.
        gamma: share of the neighbours, a number or learned online from the scored tokens.
        form: linear (both sides normalised) or logit-sum (as the paper prints it; absolute scale,
            gamma a number).
        scale: h_k . h relative to its standard deviation over the neighbours, or absolute as
            printed.
    """

    section: ClassVar[str] = "mixture"

    theta: Sharpness = "online"
    gamma: Share = "online"
    form: Literal["linear", "logit-sum"] = "linear"
    scale: Scale = "relative"

    def __post_init__(self) -> None:
        checks.logits_or_linear(self.form, self.scale, theta=self.theta, gamma=self.gamma)


@dataclass(frozen=True, slots=True)
class Mixture(RememberedLabels):
    """Mixture: neighbours weighted by inner product (paper, section 4.2)."""

    name: ClassVar[str] = "mixture"

    config: MixtureConfig

    def entries(self, batch: EvalBatch) -> tuple[Tensor, Tensor, Tensor]:
        near, config = batch.found, self.config
        scores = F.log_weights(
            batch.products, near.mask, sharpness=float(config.theta), scale=config.scale
        )
        return scores, near.values, near.mask


@dataclass(frozen=True, slots=True)
class LogitSum:
    """Mixture as the paper prints it: the neighbours' weights are added to ``exp(f)`` before both
    are normalised.
    """

    name: ClassVar[str] = "mixture"
    requirements: ClassVar[Requirements] = Requirements(retrieval=True)

    config: MixtureConfig  # its theta and gamma are numbers in this form

    def log_probs(self, batch: EvalBatch) -> Tensor:
        config = self.config
        return batch.shared(
            self,
            lambda: F.mixture_from(
                batch.logits,
                batch.products,
                batch.neighbors,
                theta=float(config.theta),
                gamma=float(config.gamma),
                form="logit-sum",
                scale=config.scale,
            ),
        )

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        config, near = self.config, batch.found

        def compute() -> Tensor:
            scores = F.log_weights(
                batch.products, near.mask, sharpness=float(config.theta), scale=config.scale
            )
            taken = batch.logits.gather(1, targets[:, None]).squeeze(1)
            return F.logit_sum_losses(
                taken,
                batch.log_normalizers,
                scores,
                near.values,
                near.mask,
                float(config.gamma),
                targets,
            )

        return batch.scored(self, targets, compute)


def mixture_predictor(settings: MethodSettings) -> Predictor:
    """Return Mixture in the form of its setting."""
    config = settings[MixtureConfig]
    if config.form == "logit-sum":
        return LogitSum(config)
    return memory_mixture(Mixture, config)


MIXTURE = Method(
    "mixture",
    "Mixture",
    "paper",
    mixture_predictor,
    (MixtureConfig,),
    search_space=lambda s, grid: {
        "scale": [s[MixtureConfig].scale],
        "theta": grid.theta,
        "gamma": grid.gamma,
    },
    plot_style=("#117733",),
)
