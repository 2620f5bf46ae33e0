"""The base without adaptation, as trained or as dynamic evaluation changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt.methods.rule import Method
from hebblm.adapt.needs import Needs

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Unadapted:
    """The base language model without adaptation."""

    name: ClassVar[str] = "base"
    needs: ClassVar[Needs] = Needs()

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
    moving=True,
    plot_style=("#999933",),
)
