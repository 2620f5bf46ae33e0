"""A text as the pieces of words that a subword tokenizer makes of it, and which word each piece belongs to."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from hebblm.errors import UserError
from hebblm.text.fitting import Splitting
from hebblm.text.vocabulary import Encoded, Vocabulary

UNCOUNTED = 1_000
"""Count of a piece in training where the training text is not known: seen often."""


class Subwords(Vocabulary):
    """The pieces that a tokenizer of ``transformers`` has; every text is made of them.

    Args:
        tokenizer: a fast one, which says where its pieces stand in the text.
        rows: of the model's softmax layer; ids beyond the tokenizer's stand for nothing.
        counts: (rows,) of each piece in the training text, None where that is not known.

    Raises:
        UserError: the tokenizer is of another model, or does not say where pieces stand, or has nothing to begin with.
    """

    def __init__(self, tokenizer: Any, rows: int, counts: Sequence[int] | None = None) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise UserError(
                f"{type(tokenizer).__name__} does not say where its pieces stand in a text; use a fast tokenizer"
            )
        begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        added = tokenizer.get_added_vocab()  # of which models may lack rows, as Gemma 3's of one for images
        own = (index for piece, index in tokenizer.get_vocab().items() if piece not in added)
        if (last := max([*own, begin or 0])) >= rows:
            raise UserError(
                f"the tokenizer has a piece of id {last:,} and the model {rows:,} rows: it is of another model"
            )
        if begin is None:
            raise UserError("the tokenizer has neither bos_token nor eos_token for a text to begin with; set one")
        self.tokenizer = tokenizer
        self.words = []
        self.start = begin
        self.unknown = None
        self.end = tokenizer.eos_token_id
        self.counts = counts if counts is not None else [UNCOUNTED] * rows
        self.known = rows
        self.splitting = "own"

    def __getitem__(self, index: int) -> str:
        return self.join([index])

    def hash(self) -> str:
        """Return the sha256 of pieces and ids."""
        pieces = sorted(self.tokenizer.get_vocab().items())
        return hashlib.sha256(json.dumps(pieces).encode()).hexdigest()

    def fresh(self, splitting: Splitting = "auto") -> Subwords:
        """Return itself: there are no new words to be forgotten.

        Raises:
            UserError: another splitting than its own is asked for.
        """
        if splitting != "auto":
            raise UserError(
                f"tokenizer = {splitting} is for models of words; leave it out: this one has pieces of its own"
            )
        return self

    def encode(self, text: str, *, include: bool = False) -> Encoded:
        """Return the pieces of a text, without special ones around it; the name of a special one is that piece.

        Raises:
            UserError: there is a piece for which the model has no row.
        """
        found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        if (last := max(found["input_ids"], default=0)) >= self.known:
            raise UserError(
                f"{self.tokenizer.convert_ids_to_tokens(last)!r} in the text is piece {last:,} of the tokenizer, and "
                f"the model has {self.known:,} rows; leave it out of the text"
            )
        pieces, end = [], 0
        for _, stop in found["offset_mapping"]:
            pieces.append(text[end : max(end, stop)])  # blanks that no piece covers go with the next one
            end = max(end, stop)
        return Encoded(tuple(pieces), tuple(found["input_ids"]), words_of(text, pieces))

    def join(self, ids: Iterable[int]) -> str:
        """Return the text that ids stand for."""
        text: str = self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return text


def token_before(tokenizer: Any) -> int | None:
    """Return the token ``bos_token`` if a tokenizer puts it before every text by itself, else None.

    Args:
        tokenizer: of ``transformers``.
    """
    begin = getattr(tokenizer, "bos_token_id", None)
    return begin if begin is not None and tokenizer("a")["input_ids"][:1] == [begin] else None


def words_of(text: str, pieces: Sequence[str]) -> tuple[int, ...]:
    """Return which word each piece belongs to, counted from 0.

    A word is what stands between blanks, with the blanks before it; a line break is one of its own where no piece
    joins it to another. A piece belongs to the word of its first character that is not blank.

    Args:
        text: the pieces, one behind the other, or longer.
        pieces: T parts of the text.
    """
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    found: list[int] = []
    word, place, last, opened = -1, 0, None, False  # opened: by a blank piece, for the word behind it
    for piece in pieces:
        begin, place = place, place + len(piece)
        blank = len(piece) - len(piece.lstrip())
        if not piece and found:  # more of a character that took several pieces
            found.append(word)
            continue
        if blank < len(piece):
            inside = bisect_right(starts, begin + blank)
            word += inside != last and not opened
            last, opened = inside, False
        else:
            word += not opened
            last, opened = None, "\n" not in piece
        found.append(word)
    return tuple(found)
