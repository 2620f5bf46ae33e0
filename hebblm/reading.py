"""Texts for a reader, and how they are read side by side: all predicted, all scored, and only then learned from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.rule import Rule
from hebblm.errors import UserError
from hebblm.layout import Layout
from hebblm.reader_base import ReaderBase
from hebblm.scores import Scores
from hebblm.text.vocabulary import Encoded, Vocabulary
from hebblm.text.words import spelled_bytes

Text = str | Sequence[int] | Tensor
"""A string, each line break of which is an ``<eos>``, or the ids of known words, (T,)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Reading of texts: the base, what is learned, and the rule that is scored.

    Args:
        base: reads as many streams as there are texts.
        context: head, memory and counts, and what is kept of each stream.
        rule: is scored.
        every: tokens of a text between two updates.
        unknown: id that a word without a row reads as; None where there are none.
        learn: whether what was scored is learned from.
    """

    base: ReaderBase
    context: Context
    rule: Rule
    every: int
    unknown: int | None
    learn: bool

    def scores(
        self,
        texts: Sequence[Encoded],
        sizes: Sequence[int],
        last: Tensor,
        progress: Callable[[int, int], None],
    ) -> list[Scores]:
        """Predict, score, then learn the texts, an interval of each at a time.

        Args:
            texts: as ids.
            sizes: bytes of each.
            last: (1,) the token before each of them.
            progress: called with the number of tokens done and that of all after each interval.

        Returns:
            The losses of each text's tokens, adapted and not, in the order of the texts.
        """
        lengths = [len(text.ids) for text in texts]
        total = sum(lengths)
        layout = Layout(tuple(accumulate([0, *lengths[:-1]])), tuple(lengths))
        ids = last.new_tensor([index for text in texts for index in text.ids])  # (T,)
        inputs = torch.cat([torch.cat([last, own])[:-1] for own in torch.split(ids, lengths)])  # (T,)
        adapted, base = (torch.zeros(total, dtype=torch.float32, device="cpu") for _ in range(2))
        new = torch.zeros(total, dtype=torch.bool, device="cpu")  # (T,)
        for begin, text in zip(layout.begins, texts, strict=True):
            new[[begin + place for place in text.unknown]] = True
        for start in range(0, layout.longest, self.every):
            stop = min(start + self.every, layout.longest)
            with self._whole():
                rows = len(self.base.head.weight)
                states = self.base.read(self.known(layout.cut(inputs, start, stop), rows))
                states = states if layout.streams > 1 else states[None]  # (B, n, D)
                scored = []
                for group in layout.groups(start, stop, self.every):
                    labels = layout.labels(group, ids)  # (N,)
                    targets = self.known(labels, rows)
                    block = layout.block(group, labels, self.every, written=self.learn) if layout.streams > 1 else None
                    batch = self.context.batch(layout.states(group, states, start), block)
                    places = torch.from_numpy(layout.places(group))
                    adapted[places] = self.rule.score(batch, targets).float().cpu()
                    base[places] = self.base.trained_losses(batch, targets).float().cpu()
                    new[places] |= (labels >= rows).cpu()
                    scored.append((batch, labels))
                if self.learn:
                    self._learn(scored, rows)
            progress(sum(min(stop, length) for length in lengths), total)
        parts = (torch.split(each, lengths) for each in (adapted, base, new))
        return [
            _scores(text, size, own, flags, unadapted=_scores(text, size, plain, flags))
            for text, size, own, plain, flags in zip(texts, sizes, *parts, strict=True)
        ]

    def known(self, ids: Tensor, rows: int) -> Tensor:
        """Return ids with ``<unk>`` in place of words that have no row yet."""
        return ids if self.unknown is None else torch.where(ids < rows, ids, self.unknown)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Let the base stand where it stood before an interval that is broken off."""
        before = self.base.stream_state()
        try:
            yield
        except BaseException:
            self.base.load_stream_state(before)
            self.context.set_head(self.base.head)
            raise

    def _learn(self, scored: Sequence[tuple[EvalBatch, Tensor]], rows: int) -> None:
        """Take a scored interval, batches and what came (N,) of each, into weights, memory and counts.

        Words met for the first time get rows of their own, behind the ``rows`` of the head that scored it.
        """
        came = torch.cat([labels for _, labels in scored])
        self.base.learn(self.known(came, rows))
        self.base.grow(max(0, int(came.max()) + 1 - rows))
        self.context.set_head(self.base.head)
        for observation in [batch.observation(labels) for batch, labels in scored]:
            self.context.take(observation)


def _scores(text: Encoded, size: int, nll: Tensor, new: Tensor, *, unadapted: Scores | None = None) -> Scores:
    """Return the scores of a text of so many bytes, from the losses (T,) and which of its tokens are new (T,)."""
    spelled = sum(spelled_bytes(token) for token, flag in zip(text.tokens, new.tolist(), strict=True) if flag)
    return Scores(text.tokens, nll, new, size, text.words, spelled, text.lost, unadapted)


def encoded_text(
    vocabulary: Vocabulary, text: Text, *, include: bool, begins: bool = True, most: int | None = None
) -> tuple[Encoded, int]:
    """Return tokens and ids of a text, and its bytes.

    Args:
        vocabulary: of the model.
        text: a string or ids.
        include: give words met for the first time an id.
        begins: whether the text begins here; a byte order mark at its start is then left out, as in a file.
        most: only so many tokens of a string. Of a line of words that is read in part, bytes count by the share of its
            tokens.

    Raises:
        UserError: no text, one with half a character, or an id that the vocabulary does not have.
    """
    if isinstance(text, str):
        text = text.removeprefix("\ufeff") if begins else text
        size = bytes_of(text)
        vocabulary.fit(text)
        if most is None:
            return vocabulary.encode(text, include=include), size
        found, rest = vocabulary.encode(text, include=False).cut(most)
        if rest.ids and not vocabulary.grows:
            part = "".join(found.tokens)
            return replace(found, lost=vocabulary.encode(part, include=False).lost), len(part.encode())
        if include:
            vocabulary.include(found.tokens)
            found, _ = vocabulary.encode(text, include=False).cut(most)
        return found, _bytes_of_first(vocabulary, text, most) if rest.ids else size
    ids = known_ids(vocabulary, text, "text; name a string, ids in one row, or a list of such documents")
    return vocabulary.of_ids(ids), len(vocabulary.join(ids).encode())


def _bytes_of_first(vocabulary: Vocabulary, text: str, tokens: int) -> int:
    """Return the bytes of the first tokens of a text."""
    size = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        found, whole = len(vocabulary.encode(line, include=False).ids), len(line.encode())
        if found > tokens:
            return size + round(whole * tokens / found)
        size, tokens = size + whole, tokens - found
    return size


def bytes_of(text: str) -> int:
    """Return the length of a text in bytes of UTF-8.

    Raises:
        UserError: one of its characters is half a surrogate pair, which no file holds.
    """
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise UserError(
            f"character {error.start} of the text, {half!r}, is half a surrogate pair; decode the text anew"
        ) from error


def are_documents(text: Text | Sequence[Text]) -> bool:
    """Say whether a text is a list of several, or of none, not a string or the ids of one."""
    if isinstance(text, str | Tensor | Mapping) or hasattr(text, "columns") or getattr(text, "ndim", 1) == 0:
        return False
    if not hasattr(text, "__getitem__"):
        return False
    for first in text:  # a column of a table has its first one anywhere
        return isinstance(first, Sequence) or getattr(first, "ndim", 0) > 0
    return isinstance(text, list | tuple)


def known_ids(vocabulary: Vocabulary, text: Sequence[int] | Tensor, wanted: str) -> list[int]:
    """Return the ids (T,) of a text.

    Raises:
        UserError: they are none, but something else than is ``wanted``, or one of them is none of the vocabulary's.
    """
    try:
        found = np.asarray(text.cpu() if isinstance(text, Tensor) else text)
    except (TypeError, ValueError, RuntimeError):
        found = np.empty(())
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise UserError(f"{text!r:.60} is no {wanted}")
    ids: list[int] = found.tolist()
    for index in ids:
        if not 0 <= index < len(vocabulary):
            raise UserError(f"id {index} is none of the vocabulary's 0 to {len(vocabulary) - 1}")
    return ids
