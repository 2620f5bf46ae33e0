"""Random and scheduled parts of training: segment lengths and learning rates."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Options of training.

    Args:
        batch_size: parallel streams.
        epochs: passes over the corpus.
        optimizer: ``sgd`` (plain descent that turns into NT-ASGD) or ``adamw`` (warm-up, then
            cosine; for short runs).
        lr: learning rate at ``bptt`` steps; shorter segments scale it down, or that of the next
            segment once NT-ASGD averages.
        clip: largest norm of the gradient.
        weight_decay: L2 penalty (``sgd``) or decoupled decay (``adamw``).
        bptt: mean segment length in tokens of 95 % of the segments; the others are half as long.
        alpha: weight of the activation penalty (AR).
        beta: weight of the temporal activation penalty (TAR).
        nonmono: epochs without a new best validation loss before NT-ASGD starts averaging.
        warmup: share of the run over which ``adamw`` raises its rate.
        final_lr: share of ``lr`` that the cosine ends at.
        softmax: ``full``, or ``sampled`` for vocabularies whose full softmax would dominate the
            time.
        samples: words drawn a segment for the sampled softmax.
        full_from: share of the run after which a sampled run goes on with the full softmax.
        precision: type of the matrix products of the softmax in training.
        recurrent: type that the LSTM layers run in while they are trained; float32 runs them in the
            weights' type. Both are float32 on a processor that does not multiply bfloat16 fast
            (:func:`product_type`).
        seed: of initial weights, segment lengths, dropout and samples.

    Raises:
        ValueError: a value out of range.
    """

    batch_size: int = 20
    epochs: int = 500
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 30.0
    clip: float = 0.25
    weight_decay: float = 1.2e-6
    bptt: int = 70
    alpha: float = 2.0
    beta: float = 1.0
    nonmono: int = 5
    warmup: float = 0.05
    final_lr: float = 0.01
    softmax: Literal["full", "sampled"] = "full"
    samples: int = 8192
    full_from: float = 0.9
    precision: Literal["float32", "bfloat16"] = "float32"
    recurrent: Literal["float32", "bfloat16"] = "float32"
    seed: int = 1111

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "bptt", "nonmono", "samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least 1")
        for name in ("lr", "clip"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} = {getattr(self, name)} must be positive")
        for name in ("weight_decay", "alpha", "beta", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)} must not be negative")
        for name in ("warmup", "final_lr", "full_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} = {getattr(self, name)} must lie in [0, 1]")

    def to_dict(self) -> dict[str, Any]:
        """Fields as a JSON object."""
        return asdict(self)


def product_type(wanted: Literal["float32", "bfloat16"], device: torch.device) -> torch.dtype:
    """Type of matrix products: bfloat16 where it is wanted and the device multiplies it fast, or
    float32.

    A processor that oneDNN has no bfloat16 products for, as one without AVX-512, runs them in a
    plain loop, which is many times slower than float32.
    """
    if wanted == "float32":
        return torch.float32
    fast = device.type != "cpu" or (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    return torch.bfloat16 if fast else torch.float32


def segment_length(bptt: int, generator: torch.Generator) -> int:
    """Draw a length of at least 5 tokens from ``N(b, 5)``; b = bptt in 95 % of the cases, else bptt
    / 2.
    """
    mean = bptt if torch.rand((), generator=generator).item() < 0.95 else bptt / 2
    return max(5, round(mean + 5 * torch.randn((), generator=generator).item()))


def learning_rate(config: TrainingConfig, progress: float, length: int) -> float:
    """Rate of a segment of ``length`` tokens when a share ``progress`` of the run is done.

    Torch's ASGD descends with the rate that it was given a step before: once NT-ASGD averages, this
    is the rate of the next segment.
    """
    rate = config.lr * length / config.bptt
    if config.optimizer == "sgd":
        return rate
    if progress < config.warmup:
        return rate * progress / config.warmup
    done = (progress - config.warmup) / max(1e-9, 1 - config.warmup)
    return rate * (
        config.final_lr + (1 - config.final_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    )


def starts_averaging(losses: list[float], nonmono: int) -> bool:
    """Whether NT-ASGD's trigger fires: the last epoch's validation loss exceeds the best of over
    ``nonmono`` epochs ago.
    """
    earlier = losses[:-1]
    return len(earlier) > nonmono and losses[-1] > min(earlier[:-nonmono])
