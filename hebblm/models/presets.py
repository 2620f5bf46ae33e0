"""Presets of base models: an architecture and a training recipe each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from awd_lstm import ARCHITECTURES
from hebblm.runtime.spelling import unknown

if TYPE_CHECKING:  # its schedule loads torch
    from awd_lstm import AWDLSTMConfig, TrainingConfig

WIDE_VOCABULARY = 16_384
"""Above this size, a short run samples its softmax: the full one would take most of the time."""


@dataclass(frozen=True, slots=True)
class Preset:
    """An architecture for a vocabulary, and its training."""

    model: AWDLSTMConfig
    training: TrainingConfig


def tiny(corpus: str, vocabulary_size: int, seed: int) -> Preset:
    """One to three minutes on two CPU cores for half a million words."""
    return _preset(
        "awd_lstm_tiny",
        vocabulary_size,
        batch_size=20,
        epochs=6,
        optimizer="adamw",
        lr=5e-3,
        bptt=35,
        weight_decay=0.01,
        alpha=0.5,
        beta=0.25,
        warmup=0.1,
        softmax="sampled" if vocabulary_size > WIDE_VOCABULARY else "full",
        samples=4096,
        precision="bfloat16",
        seed=seed,
    )


def small(corpus: str, vocabulary_size: int, seed: int) -> Preset:
    """About 45 minutes on two CPU cores for PTB and WikiText-2."""
    wide = vocabulary_size > WIDE_VOCABULARY
    return _preset(
        "awd_lstm_small",
        vocabulary_size,
        batch_size=20,
        epochs=5 if wide else 18,
        optimizer="adamw",
        lr=3e-3,
        bptt=35,
        weight_decay=0.01,
        alpha=1.0,
        beta=0.5,
        warmup=0.1 if wide else 0.05,
        softmax="sampled" if wide else "full",
        samples=8192,
        full_from=0.9,
        precision="bfloat16",
        recurrent="bfloat16",
        seed=seed,
    )


def medium(corpus: str, vocabulary_size: int, seed: int) -> Preset:
    """The published architecture in one cycle of AdamW: two to three hours of two CPU cores for
    PTB, resumable.

    A wide batch saves time: fewer passes over the matrices. With less dropout, which learns faster
    at first, the training loss of PTB falls below that of validation within seven epochs. The decay
    of the weights is large, because 40 epochs are few steps: with a tenth of it the validation
    perplexity of PTB is 73.1 after 34 epochs, here 73.0, and 72.3 after all 40. The model that
    ships went on for 14 epochs from a rate of 0.002, to 71.9 (recipes/train_models.sh).
    """
    return _preset(
        "awd_lstm_ptb" if corpus == "ptb" else "awd_lstm_wt2",
        vocabulary_size,
        batch_size=160,
        epochs=40,
        optimizer="adamw",
        lr=5e-3,
        bptt=70,
        weight_decay=0.5,
        precision="bfloat16",
        recurrent="bfloat16",
        seed=seed,
    )


def paper(corpus: str, vocabulary_size: int, seed: int) -> Preset:
    """The published AWD-LSTM recipe: 500 epochs for PTB, 750 for WikiText-2 and any other text;
    needs a GPU.
    """
    if corpus == "ptb":
        return _preset("awd_lstm_ptb", vocabulary_size, batch_size=20, epochs=500, seed=seed)
    return _preset("awd_lstm_wt2", vocabulary_size, batch_size=80, epochs=750, seed=seed)


def _preset(architecture: str, vocabulary_size: int, **training: Any) -> Preset:
    from awd_lstm import TrainingConfig

    return Preset(ARCHITECTURES[architecture](vocabulary_size), TrainingConfig(**training))


PRESETS: dict[str, Callable[[str, int, int], Preset]] = {
    preset.__name__: preset for preset in (tiny, small, medium, paper)
}


def check_preset(name: str) -> None:
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS, f"choose from {', '.join(PRESETS)}")


def get_preset(name: str, corpus: str, vocabulary_size: int, seed: int) -> Preset:
    """Return the preset for a corpus; the published recipes of PTB and WikiText-2 differ."""
    check_preset(name)
    return PRESETS[name](corpus, vocabulary_size, seed)
