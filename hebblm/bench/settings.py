"""What every measurement can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hebblm.bench.timing import check_repeats
from hebblm.errors import UserError


def each_at_least(low: int, **values: int | Sequence[int] | None) -> None:
    """Refuse a number, or any number of a list, below ``low``; None passes.

    Raises:
        UserError: naming the option and the value.
    """
    for name, value in values.items():
        for number in [value] if isinstance(value, int) else value or ():
            if number < low:
                raise UserError(f"{name} = {number} must be at least {low}")


@dataclass(frozen=True)
class BenchConfig:
    """Options of every measurement.

    Args:
        scale: full, or smoke: sizes that take seconds, to see what comes out; single options win over it.
        json: file for the result, with every raw time; it grows with each finished case.
        threads: of torch and FAISS; by default as many as torch takes.
        repeats: rounds that count, at least 5.
        device: auto, cpu or cuda.
        seed: of the synthetic source, and of weights.
    """

    scale: Literal["smoke", "full"] = "full"
    json: Path | None = None
    threads: int | None = None
    repeats: int = 5
    device: str = "auto"
    seed: int = 1111

    def __post_init__(self) -> None:
        check_repeats(self.repeats)
        each_at_least(1, threads=self.threads)


@dataclass(frozen=True)
class StatesConfig(BenchConfig):
    """Options of the measurements that work on hidden states.

    Args:
        checkpoint: folder of a trained model, or the name of one that ships; adapt and retrieve measure its states
            beside the synthetic ones, eval in place of them.
        corpus: what that model was trained on, where the checkpoint does not say it.
        k: neighbours a query, K.
        batch: queries of a mini-batch.
    """

    checkpoint: Path | None = None
    corpus: str | None = None
    k: int = 200
    batch: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        each_at_least(1, k=self.k, batch=self.batch)
        if self.corpus is not None and self.checkpoint is None:
            raise UserError(f"corpus = {self.corpus} has no meaning without a model; add --checkpoint DIR")
