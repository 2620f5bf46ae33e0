"""The base as it is, as trained or as dynamic evaluation moves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hebblm.adapt.methods.rule import Method, Needs

if TYPE_CHECKING:
    from torch import Tensor

    from hebblm.adapt.batch import EvalBatch

DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Unadapted:
    """The base language model as it is."""

    name: ClassVar[str] = "base"

    def log_probs(self, batch: EvalBatch) -> Tensor:
        """Return the base's log-probabilities (N, V), nats."""
        return batch.log_probs

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        """Return the base's loss (N,), nats."""
        return batch.base_losses(targets)

    @property
    def needs(self) -> Needs:
        """Nothing."""
        return Needs()


LSTM = Method("lstm", "Base", "paper", lambda settings: Unadapted(), look=("#555555",))
DYNAMIC_EVALUATION = Method(
    DYNAMIC, "Dynamic eval.", "baseline", lambda settings: Unadapted(), moving=True, look=("#999933",)
)
