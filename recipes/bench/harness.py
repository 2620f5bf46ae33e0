"""An evaluation of all methods, set up once and run many times, over a synthetic stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from awd_lstm import AWDLSTM, AWDLSTMConfig
from hebblm.adapt.context import Context
from hebblm.adapt.functional.normalizers import log_normalizers
from hebblm.adapt.methods.predictor import Predictor
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory, MemoryConfig, build_memory
from hebblm.models.awd import AwdBase
from hebblm.models.base import State
from hebblm.online.layout import Layout
from hebblm.text import EvaluationStream
from hebblm.types import OutputHead
from recipes.bench.source import SyntheticSource
from recipes.bench.timing import Turn, stopwatch

Rules = dict[str, Predictor]
EOS = 0
POSITION = "position"


class StandInBase:
    """A base that reads with an untrained model, for the time it takes, and returns the states of a
    source.

    The states of an untrained model lie so close together that only the time of its forward pass is
    of use.
    """

    def __init__(self, model: AWDLSTM, head: OutputHead, states: Tensor, layout: Layout) -> None:
        self._base = AwdBase(model, streams=layout.streams)
        self._layout, self._states, self._position = layout, states, 0
        self.head = head

    def read(self, inputs: Tensor) -> Tensor:
        """Read the tokens (N,) or (B, N), and return the source's next states (N, D) or (B, N,
        D).
        """
        self._base.read(inputs)
        start, self._position = self._position, self._position + inputs.shape[-1]
        return self._layout.cut(self._states, start, self._position)

    def reset(self) -> None:
        """Go back to the beginning of the stream."""
        self._base.reset()
        self._position = 0

    def learn(self, targets: Tensor) -> None:
        """A fixed base learns nothing."""

    def grow(self, rows: int) -> None:
        """Refuse: the source's vocabulary is closed."""
        raise ValueError(f"a stand-in has no {rows} further rows")

    def state_dict(self) -> State:
        """Return the place in the stream."""
        return {**self._base.state_dict(), POSITION: torch.tensor(self._position)}

    def load_state_dict(self, state: State) -> None:
        """Go on from such a place."""
        self._base.load_state_dict({key: state[key] for key in state if key != POSITION})
        self._position = int(state[POSITION])


@dataclass(slots=True)
class Harness:
    """An evaluation by ``predictors`` that can be run again and again from the same beginning, over
    at most ``tokens``.
    """

    source: SyntheticSource
    model: AWDLSTM
    tokens: int
    predictors: Rules
    k: int
    window: int
    memory: AnyMemory = field(init=False)
    described: dict[str, object] = field(init=False)
    scores: EvaluationScores = field(init=False)
    _states: Tensor = field(init=False)
    _ids: np.ndarray[tuple[int], np.dtype[np.int64]] = field(init=False)
    _stream: EvaluationStream = field(init=False)
    _layout: Layout = field(init=False)
    _base: StandInBase = field(init=False)
    _context: Context = field(init=False)

    @classmethod
    def of(cls, source: SyntheticSource, architecture: AWDLSTMConfig, *given: Any) -> Harness:
        """Return the harness of an untrained model of an architecture; the rest is as the class
        takes it.
        """
        torch.manual_seed(source.seed)
        return cls(source, AWDLSTM(architecture).to(source.device).eval(), *given)

    def __post_init__(self) -> None:
        self._states, targets = self.source.queries(self.tokens)
        self._ids = targets.cpu().numpy()

    @torch.no_grad()
    def fill(self, size: int) -> None:
        """Fill the memory with ``size`` entries of the source, with the normalisers of their base
        logits.
        """
        head = self.source.head
        self.memory = build_memory(head.weight.shape[1], MemoryConfig(), self.source.device)
        for keys, labels in self.source.entries(size):
            self.memory.add(keys, labels, log_normalizers(keys, head))
        self.memory.mark_base()
        self.described = self.memory.describe()

    def turn(self, predictors: Rules, tokens: int, update_every: int, streams: int = 1) -> Turn:
        """Return a turn that evaluates ``predictors`` over the first tokens, from the state before
        the stream or streams.
        """
        return stopwatch(
            lambda: self.evaluate(predictors, update_every),
            tokens,
            self.source.device,
            before=lambda: self.rewind(tokens, streams),
        )

    def rewind(self, tokens: int, streams: int = 1) -> None:
        """Go back to before the stream, and read its first tokens as so many streams in
        parallel.
        """
        classes, ids = self.source.head.weight.shape[0], self._ids[:tokens]
        lines = int((ids == EOS).sum())
        self.memory.reset()
        # without novel words; what only a report needs is left at its plainest
        self._stream = EvaluationStream(
            ids=ids,
            eos=EOS,
            source_size=classes,
            vocabulary_size=classes,
            symbols=tuple(map(str, range(classes))),
            train_counts=np.bincount(self._ids, minlength=classes).astype(np.int64),
            lines=lines,
            words=tokens - lines,
            bytes=tokens,
        )
        self._layout = Layout.of(tokens, streams)
        self._base = StandInBase(self.model, self.source.head, self._states, self._layout)
        self._context = Context(
            self._base.head,
            self.memory,
            k=self.k,
            train_counts=torch.from_numpy(self._stream.train_counts).to(self.source.device),
            window=self.window,
            fixed=True,
            streams=streams,
        )

    def evaluate(
        self,
        predictors: Rules,
        update_every: int,
        *,
        read_ahead: bool = True,
        progress: Callable[[int], None] = lambda tokens: None,
    ) -> EvaluationScores:
        """Read from where :meth:`rewind` went back to."""
        self.scores = evaluate(
            self._base,
            [self._context],
            predictors,
            self._stream,
            UnionVocabulary(),
            Schedule(
                update_every,
                self._layout,
                write=any(predictor.requirements.retrieval for predictor in predictors.values()),
                read_ahead=read_ahead,
            ),
            Hooks(progress=progress),
        )
        return self.scores

    def shares(self) -> dict[str, float]:
        """Return the milliseconds a token of the last evaluation's parts; a method's is its time
        had it run alone.
        """
        scores = self.scores
        costs = {
            "base": scores.base_seconds,
            "retrieval": scores.retrieval_seconds,
            **scores.seconds,
        }
        return {f"ms_{name}": 1000 * seconds / len(self._stream) for name, seconds in costs.items()}

    def case(self, **more: object) -> dict[str, Any]:
        """Return the facts of its case that a row records."""
        classes, dim = self.source.head.weight.shape
        return {
            "architecture": self.model.config.to_dict(),
            "vocabulary": classes,
            "dim": dim,
            "k": self.k,
            "methods": list(self.predictors),
            "memory": self.described,
            **more,
            "source": {
                **self.source.describe(),
                "reading": "untrained weights, for their time alone",
            },
        }
