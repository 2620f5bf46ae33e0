"""The base without adaptation, as trained or as dynamic evaluation changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt.methods.predictor import Method
from hebblm.adapt.requirements import Requirements

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Unadapted:
    """The base language model without adaptation."""

    name: ClassVar[str] = "base"
    requirements: ClassVar[Requirements] = Requirements()

    def log_probs(self, batch: EvalBatch) -> Tensor:
        return batch.log_probs

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        return batch.base_losses(targets)


LSTM = Method("lstm", "Base", "paper", lambda settings: Unadapted(), plot_style=("#555555",))
DYNAMIC_EVALUATION = Method(
    DYNAMIC,
    "Dynamic eval.",
    "baseline",
    lambda settings: Unadapted(),
    uses_dynamic_base=True,
    plot_style=("#999933",),
)
