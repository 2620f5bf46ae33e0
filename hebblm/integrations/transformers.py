"""Adaptation inside ``model.generate`` of ``transformers``, by a logits processor."""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor

from hebblm.errors import UserError
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.reader import Reader


class AdaptedLogitsProcessor(LogitsProcessor):
    """Logits processor with which ``model.generate`` draws from a reader's adapted distribution.

    It replaces ``log P_base`` by ``log((1 - w) P_base + w P_adapted)``. It adds the difference to the scores, so other
    processors' changes stay, and tokens that they forbid remain forbidden. All rows of a batch and all beams are
    adapted from the same memory, which does not change. The processor records the hidden states that enter the model's
    output layer, until :meth:`close` or the end of the ``with`` block or the processor.

    Args:
        reader: reader of the same model, from ``hebblm.load((model, tokenizer)).reader(...)``.
        weight: w, share of the adapted distribution; 0 changes nothing.

    Raises:
        UserError: a weight outside [0, 1], a reader whose model is not from ``transformers``, whose weights learn, or
            whose memory keeps another layer's states.
    """

    def __init__(self, reader: Reader, *, weight: float = 1.0) -> None:
        if not isinstance(weight, int | float) or not 0 <= weight <= 1:
            raise UserError(f"weight = {weight!r:.60} must be a number between 0 and 1")
        if not isinstance(reader.model, HuggingFaceModel):
            raise UserError("the reader's model is not a transformers model, so it has no generate()")
        if reader.moving:
            raise UserError(f"{reader.method!r} changes the weights, but the model generates with the trained ones")
        if reader.model.keyed:  # it records only the states that enter the output layer
            raise UserError(f"the memory keeps states of key={reader.model.key.name!r}; load the model with key='last'")
        self.reader = reader
        self.weight = weight
        noted = self._noted = threading.local()  # each generating thread has its own states

        def note(_: object, inputs: tuple[Any, ...]) -> None:  # holds no reader, which would live as long as the model
            noted.hidden = inputs[0][:, -1].detach()  # (B, D)

        hook = reader.model.found.module.register_forward_pre_hook(note)
        self._open = weakref.finalize(self, hook.remove)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return adapted scores (B, V) from logits or log-probabilities (B, V) of the next token after ids (B, T)."""
        if self.weight == 0:
            return scores
        if not self._open.alive:
            raise UserError("this processor was closed; generate inside its with block, or make another one")
        hidden, self._noted.hidden = getattr(self._noted, "hidden", None), None
        if hidden is None or len(hidden) != len(scores):
            raise UserError("these scores come from another model than the reader's; load (model, tokenizer) unchanged")
        adapted, base = self.reader.predict(hidden, input_ids.tolist())
        if self.weight < 1:
            share = torch.tensor(self.weight, device=base.device)
            adapted = torch.logaddexp((1 - share).log() + base, share.log() + adapted)
        return scores + (adapted - base).to(scores.device, scores.dtype)

    def close(self) -> None:
        """Stop recording states."""
        self._open()

    def __enter__(self) -> AdaptedLogitsProcessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop recording states."""
        self.close()
