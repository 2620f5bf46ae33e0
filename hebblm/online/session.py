"""The loop body of every reading: predict, score, then learn. No predictor sees a label before it
is scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm import kernels
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context, Observation
from hebblm.adapt.contract import FirstBatches
from hebblm.adapt.methods.predictor import Predictor
from hebblm.errors import UserError
from hebblm.io.groups import prefixed, under
from hebblm.online.ranks import MemoryRanks, Observed
from hebblm.runtime.progress import log
from hebblm.types import OutputHead

State = dict[str, Tensor]
OF_BASE = "base: "  # what the names of the base's tensors begin with in a session's state
Losses = dict[str, Tensor]
"""Losses (N,) in nats, by predictor."""
S = TypeVar("S", bound="Source")


@dataclass(frozen=True, slots=True)
class Unit:
    """A mini-batch and its labels, which are scored at once.

    Args:
        batch: what is predicted; rows that come after others see these under a causal mask.
        labels: (N,) int64.
        places: (N,) places of the labels in a text; None where nobody asks for them.
    """

    batch: EvalBatch
    labels: Tensor
    places: npt.NDArray[np.int64] | None = None


class Source(Protocol):
    """Source of the states that predictors read: a base of a text, or a network of pictures."""

    @property
    def head(self) -> OutputHead:
        """The present softmax layer."""

    def losses(self, predictor: Predictor, batch: EvalBatch, labels: Tensor) -> Tensor:
        """Return the loss (N,) in nats of labels (N,) under a predictor."""

    def learn(self, labels: Tensor) -> None:
        """Learn from the labels (N,) of an interval, after they were scored."""

    def state_dict(self) -> State:
        """Return place and learned weights, for :meth:`load_state_dict`."""

    def load_state_dict(self, state: State) -> None:
        """Go on, to the bit, from :meth:`state_dict`; call this only just after construction."""


class FixedHead:
    """A softmax layer that stays as it is, over states that come from elsewhere.

    Args:
        head: the layer.
    """

    def __init__(self, head: OutputHead) -> None:
        self.head = head

    def losses(self, predictor: Predictor, batch: EvalBatch, labels: Tensor) -> Tensor:
        return predictor.score(batch, labels)

    def learn(self, labels: Tensor) -> None:
        """Do nothing."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing."""


class Profiler:
    """Profiler of a session that measures nothing; a child may measure any of these parts."""

    def part(self, name: Literal["base", "retrieval", "ngram"]) -> AbstractContextManager[object]:
        """Measure reading and learning of the base, update of the memory, or counting."""
        return nullcontext()

    def unit(self, batch: EvalBatch) -> AbstractContextManager[object]:
        """Measure the scoring of a mini-batch by all predictors."""
        return nullcontext()

    def predictor(self, name: str, batch: EvalBatch) -> AbstractContextManager[object]:
        """Measure the scoring by one of them."""
        return nullcontext()


class OnlineSession(Generic[S]):
    """Predictors over one source that learn while they read, an interval at a time.

    Args:
        source: gives states and softmax layer.
        contexts: what is observed: memory, counts and mixture weights; several if streams share no
            memory.
        predictors: by name.
        ranks: processes that share the memory.
        profiler: measures the time of each part.
    """

    def __init__(
        self,
        source: S,
        contexts: Sequence[Context],
        predictors: Mapping[str, Predictor],
        *,
        ranks: MemoryRanks | None = None,
        profiler: Profiler | None = None,
    ) -> None:
        kernels.tell_with(log)
        self.source, self.contexts, self.predictors = source, contexts, predictors
        self.ranks, self.profiler = ranks or MemoryRanks(), profiler or Profiler()
        for context in contexts:
            context.learn_mixture_weights(predictors.values())
        self._searches = any(predictor.requirements.retrieval for predictor in predictors.values())
        # Ranks search their memory together, and a check would search it alone.
        self.checks = FirstBatches(() if self.ranks.is_parallel else predictors)

    def over(self, source: S) -> Self:
        """Return this session over another source; both observe into the same contexts."""
        other = type(self)(
            source, self.contexts, self.predictors, ranks=self.ranks, profiler=self.profiler
        )
        other.checks = self.checks
        return other

    @torch.no_grad()
    def interval(
        self,
        units: Iterable[Unit],
        on_scored: Callable[[Unit, Losses], None],
        *,
        learn: bool = True,
        write: bool = True,
    ) -> Observed:
        """Predict and score the units of an interval one by one, then learn from all of them.

        Args:
            units: made one by one; each is predicted from the state before all of them. A rank
                without rows in a round gives a unit without rows, with which it searches.
            on_scored: records the losses of a unit.
            learn: whether anything is kept. If not, mixture weights and n-grams only follow this
                text.
            write: whether observed pairs go to the memory.

        Returns:
            The observations of the units.
        """
        observed: list[tuple[Context, Observation]] = []
        for unit in units:
            if self._searches:
                self.ranks.search(unit.batch)
            if not len(unit.labels):
                continue
            on_scored(unit, self.score(unit))
            with self.profiler.part("retrieval"):
                observation = unit.batch.observation(unit.labels)
            observed.append((unit.batch.context, observation))
        if learn:
            self.learn(observed, write=write)
        else:
            self.update_weights(observed)
        return observed

    @torch.no_grad()
    def score(self, unit: Unit) -> Losses:
        """Return the losses of a unit's labels under every predictor; nothing changes."""
        losses: Losses = {}
        with self.profiler.unit(unit.batch):
            for name, predictor in self.predictors.items():
                self.checks.check(name, predictor, unit.batch, unit.labels)
                with self.profiler.predictor(name, unit.batch):
                    losses[name] = self.source.losses(predictor, unit.batch, unit.labels)
        return losses

    @torch.no_grad()
    def learn(self, observed: Observed, *, write: bool = True) -> None:
        """Learn from the observations of an interval: first the source, then the contexts."""
        first = self.contexts[0]
        with self.profiler.part("base"):
            own_labels = [observation.labels for _, observation in observed]
            labels = self.ranks.gather_labels(torch.cat([first.observed[:0], *own_labels]))
            if any(map(len, labels)):
                self.source.learn(torch.cat(labels))
            for context in self.contexts:
                context.set_head(self.source.head)
        with self.profiler.part("retrieval"):
            self.ranks.observe(first, observed, labels, write=write)
        if first.ngrams is not None:
            with self.profiler.part("ngram"):
                self.ranks.count_ngrams(first, observed)

    def update_weights(self, observed: Observed) -> None:
        """Follow a text without learning from it: mixture weights and n-grams of this text alone
        move on.
        """
        for context, observation in observed:
            context.update_weights(observation.mixture_weights)
            if context.ngrams is not None:
                context.pass_on(observation)

    def adapter(self, name: str) -> SessionAdapter:
        """Return a predictor of this session as a :class:`hebblm.Adapter`."""
        if name not in self.predictors:
            known = ", ".join(self.predictors)
            raise UserError(
                f"{name!r:.60} is not a predictor of this session; choose among {known}"
            )
        return SessionAdapter(cast(OnlineSession[Source], self), name)

    def state_dict(self) -> State:
        """Return everything that later losses depend on, except the entries of the memories."""
        state = prefixed(OF_BASE, self.source.state_dict())
        for number, context in enumerate(self.contexts):
            state |= prefixed(f"context {number}: ", context.state_dict())
        return state

    def load_state_dict(self, state: State) -> list[str]:
        """Go on from :meth:`state_dict`; call this only just after construction.

        A session of the same predictors goes on to the bit. One of others takes what it uses too.

        Returns:
            Names of saved mixture weights that nothing here learns.
        """
        self.source.load_state_dict(under(OF_BASE, state))
        unused: list[str] = []
        for number, context in enumerate(self.contexts):
            context.set_head(self.source.head)
            unused += context.load_state_dict(under(f"context {number}: ", state))
        return unused


class SessionAdapter:
    """A predictor over hidden states that its caller has computed.

    All rows of a call are queries after what was observed so far; rows of one call do not see each
    other. Adapters of one session share what they observe: update one of them for all. The source
    itself does not learn here, for it has not read these states.

    Args:
        session: its first context observes.
        name: name of the predictor.
    """

    def __init__(self, session: OnlineSession[Source], name: str) -> None:
        self._session, self._name = session, name

    @torch.no_grad()
    def predict(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities (N, V) in nats for hidden states (N, D); changes nothing."""
        return self._session.predictors[self._name].log_probs(self._batch(hidden))

    @torch.no_grad()
    def score(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of ``targets`` (N,), equal to gathering from
        :meth:`predict`.
        """
        return self._session.predictors[self._name].score(self._batch(hidden), targets)

    @torch.no_grad()
    def update(self, hidden: Tensor, targets: Tensor) -> None:
        """Learn from observed pairs (N, D), (N,), after they were scored.

        Raises:
            UserError: a label without a row in the softmax layer.
        """
        context = self._session.contexts[0]
        rows = len(context.head.weight)
        if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < rows:
            raise UserError(f"labels must be rows of the softmax layer, which has {rows:,} rows")
        observation = self._batch(hidden).observation(targets)
        context.observe(observation)
        context.count_ngrams(observation)

    def reset(self) -> None:
        """Forget all that was observed; the softmax layer stays as it is."""
        for context in self._session.contexts:
            context.reset()

    def _batch(self, hidden: Tensor) -> EvalBatch:
        return EvalBatch(hidden, self._session.contexts[0])
