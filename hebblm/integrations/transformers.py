"""Adaptation inside ``model.generate`` of ``transformers``, by a logits processor."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers import LogitsProcessor

from hebblm.errors import UserError
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.reader.reader import Reader

# units of rounding of the largest logit, by which scores may differ from the logits of their pass
ROUNDING = 16


class AdaptedLogitsProcessor(LogitsProcessor):
    """Logits processor with which ``model.generate`` draws from a reader's adapted distribution.

    It replaces ``log P_base`` by ``log((1 - w) P_base + w P_adapted)``. It adds the difference to
    the scores, so other processors' changes stay, and tokens that they forbid remain forbidden. All
    rows of a batch and all beams are adapted from the same memory, which does not change. What the
    attention mask hides, such as padding at the left, is not text. The processor records the hidden
    states that enter the model's output layer, the logits and the mask, until :meth:`close` or the
    end of the ``with`` block or the processor.

    Args:
        reader: reader of the same model, from ``hebblm.load((model, tokenizer)).reader(...)``.
        weight: w, share of the adapted distribution; 0 changes nothing.

    Raises:
        UserError: a weight outside [0, 1], a reader whose model is not from ``transformers``, whose
            weights learn, or whose memory keeps another layer's states.
    """

    def __init__(self, reader: Reader, *, weight: float = 1.0) -> None:
        if not isinstance(weight, int | float) or not 0 <= weight <= 1:
            raise UserError(f"weight = {weight!r:.60} must be a number between 0 and 1")
        if not isinstance(reader.model, HuggingFaceModel):
            raise UserError(
                "the reader's model is not a transformers model, so it has no generate()"
            )
        if reader.uses_dynamic_base:
            raise UserError(
                f"{reader.method!r} changes the weights, but the model generates with the trained "
                "ones"
            )
        if reader.model.keyed:  # it records only the states that enter the output layer
            raise UserError(
                f"the memory keeps states of key={reader.model.key.name!r}; load the model with "
                "key='last'"
            )
        self.reader = reader
        self.weight = weight
        noted = self._noted = threading.local()  # each generating thread has its own passes

        # These hold no reader, which would live as long as the model.
        def note_states(_: object, inputs: tuple[Any, ...]) -> None:
            noted.hidden = inputs[0][:, -1].detach()  # (B, D)

        def note_pass(_: object, __: object, options: dict[str, Any], out: Any) -> None:
            logits = getattr(out, "logits", None)  # a tuple has none; generate asks for no tuples
            noted.logits = None if logits is None else logits[:, -1].detach()  # (B, V)
            mask, ids = options.get("attention_mask"), options.get("input_ids")
            # a step without a mask goes on with its texts
            if mask is not None or ids is None or ids.shape[1] > 1:
                noted.padding = _padding(mask)

        model = reader.model
        hooks = [
            model.found_head.module.register_forward_pre_hook(note_states),
            model.model.register_forward_hook(note_pass, with_kwargs=True),
        ]
        self._open = weakref.finalize(self, _remove, hooks)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return adapted scores (B, V) from logits or log-probabilities (B, V) of the next token
        after ids (B, T).
        """
        if self.weight == 0:
            return scores
        if not self._open.alive:
            raise UserError(
                "this processor was closed; generate inside its with block, or make another one"
            )
        hidden, logits = getattr(self._noted, "hidden", None), getattr(self._noted, "logits", None)
        self._noted.hidden = self._noted.logits = None
        if hidden is None or logits is None or len(hidden) != len(scores):
            raise UserError(
                "these scores come from another model than the reader's, or from drafts; load "
                "(model, tokenizer) "
                "unchanged, and generate without drafts"
            )
        if not _are_of(logits, scores, input_ids):
            raise UserError(
                "these scores are not those of the model's last pass; generate without "
                "guidance_scale and "
                "drafts, and put this processor before others that change all scores"
            )
        texts = input_ids.tolist()
        if self._noted.padding is not None:
            texts = [
                text[count:]
                for text, count in zip(texts, self._noted.padding.tolist(), strict=True)
            ]
        adapted, base = self.reader.predict(hidden, texts)
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop recording states."""
        self.close()


def _remove(hooks: Sequence[RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()


def _padding(mask: object) -> Tensor | None:
    """Return the number (B,) of tokens at the left that an attention mask hides from the last one;
    None if unknown.

    A mask is (B, T), or (B, 1, Q, T) for a cache of fixed size, or a dictionary of these by kind of
    layer.
    """
    if isinstance(mask, dict):
        mask = mask.get("full_attention")
    if not isinstance(mask, Tensor):
        return None
    last = mask if mask.ndim == 2 else mask[:, 0, -1]
    # those add 0, or hide
    seen = last == 0 if mask.ndim == 4 and mask.is_floating_point() else last.bool()
    return (seen.cumsum(-1) == 0).sum(-1)


def _are_of(logits: Tensor, scores: Tensor, ids: Tensor) -> bool:
    """Return whether scores (B, V) are these logits (B, V), but for a constant of each row and for
    single tokens.

    Other processors may have changed single tokens, forbidden most, or penalised those of the texts
    (B, T).
    """
    logits = logits.to(scores.device, torch.float32)
    gap = (scores.float() - logits).masked_fill(~scores.isfinite(), torch.nan)
    gap = gap.scatter(1, ids.to(gap.device), torch.nan)
    gap = (gap - gap.nanmedian(1, keepdim=True).values).abs()
    equal = gap <= ROUNDING * torch.finfo(torch.float32).eps * logits.abs().amax(1, keepdim=True)
    return bool((2 * equal.sum(1) >= gap.isfinite().sum(1)).all())
