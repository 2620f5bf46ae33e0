"""Texts for a reader: a string or ids, or several such documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.text.vocabulary import Encoded, Vocabulary

Text = str | Sequence[int] | Tensor
"""A string, each line break of which is an ``<eos>``, or the ids of known words, (T,)."""


def encoded_text(vocabulary: Vocabulary, text: Text, *, include: bool) -> tuple[Encoded, int]:
    """Return tokens and ids of a text, and its bytes; words met for the first time get ids if they are included.

    Raises:
        UserError: no text, or an id that the vocabulary does not have.
    """
    if isinstance(text, str):
        vocabulary.fit(text)
        return vocabulary.encode(text, include=include), len(text.encode())
    ids = _whole_numbers(text)
    for index in ids:
        if not 0 <= index < len(vocabulary):
            raise UserError(f"id {index} is none of the vocabulary's 0 to {len(vocabulary) - 1}")
    tokens = tuple(vocabulary[index] for index in ids)
    return Encoded(tokens, tuple(ids), tuple(range(len(ids)))), len(vocabulary.join(ids).encode())


def are_documents(text: Text | Sequence[Text]) -> bool:
    """Say whether a text is a list of several, not a string or the ids of one."""
    if isinstance(text, str | Tensor | Mapping) or not hasattr(text, "__getitem__") or not len(text):
        return False
    return isinstance(text[0], Sequence) or getattr(text[0], "ndim", 0) > 0


def _whole_numbers(text: Sequence[int] | Tensor) -> list[int]:
    """Return the ids of a text.

    Raises:
        UserError: it is something else than ids, (T,).
    """
    try:
        found = torch.as_tensor(text)
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros(())
    if found.dim() != 1 or (len(found) and found.is_floating_point()):
        raise UserError(f"{text!r:.60} is no text; name a string, ids in one row, or a list of such documents")
    ids: list[int] = found.tolist()
    return ids
