"""A text as pieces of words from a subword tokenizer."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hebblm.errors import UserError
from hebblm.text.fitting import Chosen, Splitting, check_splitting
from hebblm.text.tokenizers import MosesTokenizer
from hebblm.text.vocabulary import Encoded, Vocabulary
from hebblm.text.words import lost_bytes, words_of

UNCOUNTED = 1_000
"""Count of a piece in training if the training text is not known: seen often."""


class Subwords(Vocabulary):
    """The pieces of a fast tokenizer of ``transformers``; every text consists of them.

    ``rows`` are those of the model's softmax layer; ids beyond the tokenizer's are unused.
    ``counts`` (rows,) are those of each piece in the training text, None if it is not known.
    """

    def __init__(
        self,
        tokenizer: Any,
        rows: int,
        counts: Sequence[int] | None = None,
        splitting: Splitting = "auto",
    ) -> None:
        check_splitting(splitting)
        if not getattr(tokenizer, "is_fast", False):
            raise UserError(
                f"{type(tokenizer).__name__} does not say where its pieces stand in a text; use a "
                "fast tokenizer"
            )
        if tokenizer.bos_token_id is not None:
            begin = tokenizer.bos_token_id
        else:
            begin = tokenizer.eos_token_id
        # models may lack rows for these, as Gemma 3 does for one for images
        added = tokenizer.get_added_vocab()
        known = (index for piece, index in tokenizer.get_vocab().items() if piece not in added)
        if (last := max([*known, begin or 0])) >= rows:
            raise UserError(
                f"the tokenizer has piece {last:,}, but the model only {rows:,} rows; use the "
                "model's own tokenizer"
            )
        if begin is None:
            raise UserError(
                "the tokenizer has no bos_token or eos_token to put before a text; set one"
            )
        self.tokenizer = tokenizer
        self.words = []
        self.start = begin
        self.end = tokenizer.eos_token_id
        self._unknown = _unknown_of(tokenizer)
        self.unknown = None if self._unknown in (begin, self.end) else self._unknown
        self.grows = False
        self.counts = counts if counts is not None else [UNCOUNTED] * rows
        self.known = rows
        self._untrimmed = _untrimmed(tokenizer)
        self.splitting: Chosen | None = None
        self._moses: MosesTokenizer | None = None
        if splitting != "auto":
            self.split("moses" if splitting == "moses" else "own")

    def __getitem__(self, index: int) -> str:
        return self.join([index])

    def hash(self) -> str:
        pieces = sorted(self.tokenizer.get_vocab().items())
        return hashlib.sha256(json.dumps(pieces).encode()).hexdigest()

    def fresh(self, splitting: Splitting = "auto") -> Subwords:
        return Subwords(self.tokenizer, self.known, self.counts, splitting)

    def fits(self, text: str, name: str = "the text") -> Chosen | None:
        """Leave texts unchanged; refuse any other splitting."""
        return "own"

    def split(self, splitting: Chosen) -> None:
        self.splitting = splitting
        self._moses = MosesTokenizer() if splitting == "moses" else None

    def encode(self, text: str, *, include: bool = False) -> Encoded:
        """Return the pieces of a text, without special ones around it; the name of a special one is
        that piece.
        """
        text = self._split(text)
        ids, spans = self._cut(text)
        pieces = []
        end = 0
        for _, stop in spans:
            # spaces that no piece covers go with the next one
            pieces.append(text[end : max(end, stop)])
            end = max(end, stop)
        name = "" if self._unknown is None else self.tokenizer.convert_ids_to_tokens(self._unknown)
        unknown = tuple(
            place
            for place, index in enumerate(ids)
            if index == self._unknown and text[slice(*spans[place])].strip() != name
        )
        spelled = []
        end = 0
        for place in unknown:  # their spelling is charged: nothing of it is lost
            begin, stop = spans[place]
            spelled += [text[end:begin], name]
            end = max(end, stop)
        lost = lost_bytes("".join([*spelled, text[end:]]), self.join(ids))
        return Encoded(tuple(pieces), tuple(ids), unknown, words_of(text, spans), lost)

    def ids(self, text: str) -> list[int]:
        """Return only the ids (T,) of a text, which takes less time."""
        return self._cut(self._split(text))[0]

    def of_ids(self, ids: Sequence[int]) -> Encoded:
        """Return the text of ids (T,) with exactly these ids, and its words if the text is split
        that way.
        """
        encoded = self.encode(self.join(ids))
        return encoded if encoded.ids == tuple(ids) else super().of_ids(ids)

    def _split(self, text: str) -> str:
        if self._moses is None:
            return text
        return "\n".join(" ".join(self._moses.tokenize(line)) for line in text.split("\n"))

    def _cut(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids (T,) of a text, without special ones around it, and the characters of
        each.
        """
        if self._untrimmed is not None:
            encoding = self._untrimmed.encode(text, add_special_tokens=False)
            ids, spans = encoding.ids, encoding.offsets
        else:
            encoded = self.tokenizer(
                text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
            )
            ids, spans = encoded["input_ids"], encoded["offset_mapping"]
        if (last := max(ids, default=0)) >= self.known:
            raise UserError(
                f"{self.tokenizer.convert_ids_to_tokens(last)!r} in the text is piece {last:,} of "
                "the tokenizer, and "
                f"the model has {self.known:,} rows; leave it out of the text"
            )
        return ids, spans

    def join(self, ids: Iterable[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return text


def _unknown_of(tokenizer: Any) -> int | None:
    """Return a tokenizer's id for unknown text, from itself or its model; None without one."""
    if tokenizer.unk_token_id is not None:
        return int(tokenizer.unk_token_id)
    settings = _written(tokenizer)
    model = {} if settings is None else json.loads(settings)["model"]
    if model.get("unk_token") is not None:
        index = tokenizer.convert_tokens_to_ids(model["unk_token"])
        if index is None:
            return None
        return int(index)
    if model.get("unk_id") is None:
        return None
    return int(model["unk_id"])


def _written(tokenizer: Any) -> str | None:
    """Return a fast tokenizer as JSON; None for one with parts in Python, which cannot be
    written.
    """
    try:
        settings: str = tokenizer.backend_tokenizer.to_str()
    except Exception:  # the tokenizers library raises this very class
        return None
    return settings


def _untrimmed(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer that counts spaces as parts of their pieces; None if it does so
    already.
    """
    backend = tokenizer.backend_tokenizer
    settings = _written(tokenizer)
    if settings is None or '"trim_offsets":true' not in settings.replace(" ", ""):
        return None
    copied = type(backend).from_str(
        re.sub(r'"trim_offsets":\s*true', '"trim_offsets":false', settings)
    )
    copied.no_truncation()
    copied.no_padding()
    copied.encode_special_tokens = backend.encode_special_tokens
    return copied


def token_before(tokenizer: Any) -> int | None:
    """Return ``bos_token`` if a tokenizer puts it before every text by itself, else None."""
    begin = getattr(tokenizer, "bos_token_id", None)
    if begin is None or tokenizer("a")["input_ids"][:1] != [begin]:
        return None
    return int(begin)
