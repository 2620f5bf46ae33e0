"""A reader: it predicts a text by one method, scores it, and only then learns from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from awd_lstm import AWDLSTM
from awd_lstm.model import State
from hebblm.adapt import METHODS, EvalBatch, check_methods
from hebblm.adapt.context import Context
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.memory import build_memory
from hebblm.models.base import AwdBase
from hebblm.reader_state import Opened, Owner, open_reader, save_reader
from hebblm.scores import Scores
from hebblm.text.growing import GrowingVocabulary


class Suggestion(NamedTuple):
    """A word that may come next.

    Args:
        word: itself.
        probability: after adaptation.
        unadapted: of the base as it was trained.
    """

    word: str
    probability: float
    unadapted: float


class Reader:
    """Reads a text once, in order, and remembers it.

    Every token is predicted from what was learned before its interval; when an interval of ``update_every`` tokens has
    been scored, or a call of :meth:`read` ends, its hidden states and words go into the memory, and words met for the
    first time get a row of zeros in the softmax layer. The base stays as it was trained.

    Args:
        model: the base; it is copied, never changed.
        vocabulary: of the model, to which new words are added.
        owner: identifies weights and dictionary on disk.
        method: as :data:`hebblm.METHODS` has it, e.g. ``mixture+hebb``.
        memory: folder that :meth:`save` wrote, to go on from there; None starts with an empty memory.
        k: neighbours a query.
        update_every: most tokens between two updates; 1 learns from each token at once, more tokens take less time.
        settings: hyper-parameters by dotted name, e.g. ``{"hebb.beta": 0.9}``.

    Raises:
        UserError: an unknown method or setting, a base that would have to learn, or a memory of another model.
    """

    def __init__(
        self,
        model: AWDLSTM,
        vocabulary: GrowingVocabulary,
        owner: Owner,
        method: str = "mixture+hebb",
        *,
        memory: str | Path | None = None,
        k: int = 200,
        update_every: int = 10,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        check_methods([method])
        if METHODS[method].moving:
            raise UserError(
                f"a reader's base stays as trained, which {method!r} does not allow; use hebblm.evaluate"
            )
        if update_every < 1:
            raise UserError(f"update_every = {update_every} must be at least 1 token")
        values = Hyperparameters().changed(settings or {})
        if values.base.lr:
            raise UserError(
                f"a reader's base stays as trained, not base.lr={values.base.lr}; use hebblm.evaluate"
            )
        self.method = method
        self.update_every = update_every
        self.vocabulary = vocabulary
        self._owner = owner
        self._rule = METHODS[method].rule(values.methods)
        self._base = AwdBase(model)
        device = model.bias.device
        opened = Opened() if memory is None else open_reader(Path(memory), owner, device)
        for word in opened.words:
            vocabulary.ids([word], include=True)
        self._base.grow(len(vocabulary.words))
        self._last = torch.tensor([vocabulary.dictionary.eos_index], device=device)
        empty = build_memory(model.config.embedding_dim, values.memory, device)
        self._memory = empty if opened.memory is None else opened.memory
        self._context = Context(
            self._base.head,
            self._memory,
            k=k,
            train_counts=self._training_counts(device),
            new_classes=torch.arange(len(vocabulary), device=device) >= len(vocabulary.dictionary),
            window=self._rule.needs.window,
        )
        self._context.learn_shares([self._rule])
        if opened.state is not None:
            self._base.state, self._last = opened.state, opened.last
            self._context.recall(opened.observed, *opened.recent)
        self._context.recall_shares(opened.shares)

    def read(
        self,
        text: str | Sequence[int] | Tensor,
        *,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Scores:
        """Predict, score, then learn a text, going on from the last call.

        Args:
            text: a string, each line break of which is an ``<eos>``, or the ids of known words, (T,).
            progress: called with the number of tokens done and T after each interval.

        Returns:
            The loss of each token in nats, adapted and not.

        Raises:
            UserError: an id that the vocabulary does not have.
        """
        tokens, ids, size = self._encoded(text)
        adapted, base, new = [self._base.head.weight.new_zeros(0)], [self._base.head.weight.new_zeros(0)], []
        for start in range(0, len(ids), self.update_every):
            labels = ids[start : start + self.update_every]  # (N,)
            rows = len(self._base.head.weight)
            inputs = torch.cat([self._last, labels[:-1]])
            hidden = self._base.read(self._readable(inputs, rows))  # (N, D)
            batch = EvalBatch(hidden, self._context)
            targets = self._readable(labels, rows)
            adapted.append(self._rule.score(batch, targets))
            base.append(batch.base_losses(targets))
            new.append(labels >= rows)
            self._learn(batch, labels, rows)
            progress(start + len(labels), len(ids))
        flags = torch.cat(new) if new else torch.zeros(0, dtype=torch.bool)
        losses = [torch.cat(part).float().cpu() for part in (adapted, base)]
        unadapted = Scores(tokens, losses[1], flags.cpu(), size)
        return Scores(tokens, losses[0], flags.cpu(), size, unadapted)

    def suggest(self, context: str = "", n: int = 5) -> list[Suggestion]:
        """Return the most probable next words after what was read and some further words; learns nothing.

        Args:
            context: read on from the present place, for this question alone.
            n: number of words; ``<unk>``, which is none, is left out.

        Returns:
            The words, most probable first, each with its probability with and without adaptation.

        Raises:
            UserError: n below 1.
        """
        if n < 1:
            raise UserError(f"n = {n} must be at least 1 word")
        hidden, _ = self._look(self._ids(context), self._base.state)
        batch = EvalBatch(hidden[-1:], self._context)
        adapted, base = self._rule.log_probs(batch)[0].exp(), batch.log_probs[0].exp()
        adapted[self.vocabulary.dictionary.unk_index] = -1.0
        best = adapted.topk(min(n, len(adapted) - 1)).indices.tolist()
        return [Suggestion(self.vocabulary[i], float(adapted[i]), float(base[i])) for i in best]

    def generate(
        self, prompt: str = "", *, max_new_tokens: int = 20, temperature: float = 1.0, seed: int = 0
    ) -> str:
        """Return words drawn one after the other behind a prompt, which goes on from what was read; learns nothing.

        Args:
            prompt: read on from the present place, for this answer alone.
            max_new_tokens: how many are drawn.
            temperature: of the draw, ``P^(1/T)``; 0 takes the most probable word each time.
            seed: of the draw.

        Raises:
            UserError: a negative temperature.
        """
        if not temperature >= 0:
            raise UserError(f"temperature = {temperature} must be at least 0")
        generator = torch.Generator().manual_seed(seed)
        hidden, state = self._look(self._ids(prompt), self._base.state)
        drawn: list[int] = []
        for _ in range(max_new_tokens):
            scores = self._rule.log_probs(EvalBatch(hidden[-1:], self._context))[0].cpu()
            scores[self.vocabulary.dictionary.unk_index] = -torch.inf
            if temperature == 0:
                drawn.append(int(scores.argmax()))
            else:
                shares = (scores.double() / temperature).softmax(0)
                drawn.append(int(torch.multinomial(shares, 1, generator=generator)))
            hidden, state = self._look(self._last.new_tensor(drawn[-1:]), state)
        return self.vocabulary.join(drawn)

    def save(self, folder: str | Path) -> None:
        """Write memory, new words and place to a folder, whole or not at all; ``reader(memory=folder)`` goes on there.

        Raises:
            UserError: the folder holds something else, or cannot be written.
        """
        observed, recent = self._context.observed, self._context.recent.latest(self._context.window)
        save_reader(
            Path(folder),
            self._owner,
            Opened(
                self._memory,
                tuple(self.vocabulary.words),
                self._base.state,
                self._last,
                observed,
                recent,
                self._context.known_shares,
            ),
            {"method": self.method, "k": self._context.k, "update_every": self.update_every},
        )

    def __len__(self) -> int:
        """Return the number of pairs in the memory."""
        return len(self._memory)

    def __repr__(self) -> str:
        """Name the method and what is remembered."""
        return f"Reader({self.method!r}, {len(self):,} entries, {len(self.vocabulary.words):,} new words)"

    def _learn(self, batch: EvalBatch, labels: Tensor, rows: int) -> None:
        """Take a scored interval into memory and counts, words met for the first time with rows of their own."""
        self._base.grow(max(0, int(labels.max()) + 1 - rows))
        self._context.set_head(self._base.head)
        self._context.learn(batch, labels)
        self._last = labels[-1:]

    def _look(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the hidden states (N, D) after some ids (N,) that follow ``state``, and the state behind them."""
        with torch.no_grad():
            out = self._base.model(ids[None], state)
        return out.hidden[0], out.state

    def _ids(self, text: str) -> Tensor:
        """Return the last token read and those of a text behind it (N,); new words read ``<unk>``."""
        ids = self.vocabulary.ids(self.vocabulary.split(text), include=False)
        return torch.cat([self._last, self._last.new_tensor(ids)])

    def _encoded(self, text: str | Sequence[int] | Tensor) -> tuple[tuple[str, ...], Tensor, int]:
        """Return tokens, ids (T,) and bytes of a text; words met for the first time get their ids."""
        if isinstance(text, str):
            tokens = self.vocabulary.split(text)
            ids = self._last.new_tensor(self.vocabulary.ids(tokens, include=True))
            return tuple(tokens), ids, len(text.encode())
        ids = torch.as_tensor(text, dtype=torch.int64, device=self._last.device)
        bad = ids[(ids < 0) | (ids >= len(self.vocabulary))]
        if len(bad):
            raise UserError(f"id {int(bad[0])} is none of the vocabulary's 0 to {len(self.vocabulary) - 1}")
        return (
            tuple(self.vocabulary[i] for i in ids.tolist()),
            ids,
            len(self.vocabulary.join(ids.tolist()).encode()),
        )

    def _readable(self, ids: Tensor, rows: int) -> Tensor:
        """Return ids (N,) with ``<unk>`` in place of words that have no row yet."""
        return torch.where(ids < rows, ids, self.vocabulary.dictionary.unk_index)

    def _training_counts(self, device: torch.device) -> Tensor:
        """Return how often each word was seen in training (V,), never for new ones."""
        counts = [*self.vocabulary.dictionary.counts, *[0] * len(self.vocabulary.words)]
        return torch.tensor(counts, device=device)
