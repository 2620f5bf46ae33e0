"""Texts read side by side: all predicted, all scored, and only then learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods.rule import Rule
from hebblm.evaluation.streams import Layout
from hebblm.reader_base import ReaderBase
from hebblm.scores import Scores
from hebblm.text.vocabulary import Encoded


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
        adapted, base = torch.zeros(total), torch.zeros(total)
        new = torch.zeros(total, dtype=torch.bool)
        for start in range(0, layout.longest, self.every):
            stop = min(start + self.every, layout.longest)
            rows = len(self.base.head.weight)
            states = self.base.read(self.readable(layout.cut(inputs, start, stop), rows))
            states = states if layout.streams > 1 else states[None]  # (B, n, D)
            scored = []
            for group in layout.groups(start, stop, self.every):
                labels = layout.labels(group, ids)  # (N,)
                targets = self.readable(labels, rows)
                block = layout.block(group, labels, self.every, written=self.learn) if layout.streams > 1 else None
                batch = self.context.batch(layout.states(group, states, start), block)
                places = torch.from_numpy(layout.places(group))
                adapted[places] = self.rule.score(batch, targets).float().cpu()
                base[places] = self.base.trained_losses(batch, targets).float().cpu()
                new[places] = (labels >= rows).cpu()
                scored.append((batch, labels))
            if self.learn:
                self._learn(scored, rows)
            progress(sum(min(stop, length) for length in lengths), total)
        parts = (torch.split(each, lengths) for each in (adapted, base, new))
        return [
            Scores(text.tokens, own, flags, size, text.words, Scores(text.tokens, plain, flags, size, text.words))
            for text, size, own, plain, flags in zip(texts, sizes, *parts, strict=True)
        ]

    def readable(self, ids: Tensor, rows: int) -> Tensor:
        """Return ids with ``<unk>`` in place of words that have no row yet."""
        return ids if self.unknown is None else torch.where(ids < rows, ids, self.unknown)

    def _learn(self, scored: Sequence[tuple[EvalBatch, Tensor]], rows: int) -> None:
        """Take a scored interval into weights, memory and counts, words met for the first time with rows of their own.

        Args:
            scored: batches, and what came (N,) of each.
            rows: of the head that they were scored with.
        """
        came = torch.cat([labels for _, labels in scored])
        self.base.learn(self.readable(came, rows))
        self.base.grow(max(0, int(came.max()) + 1 - rows))
        self.context.set_head(self.base.head)
        for observation in [batch.observation(labels) for batch, labels in scored]:
            self.context.take(observation)
