"""Options that several commands share, with one spelling, one default and one help text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hebblm.text.fitting import Splitting


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a model that reads texts, the same for every command.

    Args:
        tokenizer: how a text is split: auto (for a model of words like its own text; at punctuation as well where
            that one came tokenised and the first text that is read did not; a saved memory or reader keeps its own
            way), whitespace or moses.
        context: tokens of the window that a model of transformers reads in; by default what it was trained with, at
            most 1,024.
        stride: tokens by which that window moves on; by default half of it.
        dtype: number type of a transformers model's weights: auto (as they are stored, but float32 for float16 on a
            CPU), float32, bfloat16 or float16.
        device: auto, cpu, cuda, or one of several as cuda:1.
    """

    # Headings of a command's help, what is said below them, and what stands there.
    GROUPS: ClassVar[tuple[tuple[str, str | None, str], ...]] = (
        ("model and tokens", None, "tokenizer context stride dtype device"),
    )

    tokenizer: Splitting = "auto"
    context: int | None = None
    stride: int | None = None
    dtype: str = "auto"
    device: str = "auto"


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(ModelOptions):
    """Options of reading and learning, the same for every command.

    Args:
        max_tokens: read only the first so many tokens: words and ends of line, or the pieces of words that a model of
            transformers reads.
        seed: of what is drawn at random: the weights of a training, uniform rows, the resamples behind intervals, the
            words that are generated.
    """

    max_tokens: int | None = None
    seed: int = 1111
