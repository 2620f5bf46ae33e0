"""Stand-in for a model of a size that is not trained: real reading time, synthetic states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from awd_lstm import AWDLSTM, AWDLSTMConfig
from hebblm.bench.source import ModelSource, Source
from hebblm.evaluation.streams import Layout
from hebblm.models.awd import AwdBase
from hebblm.models.base import Base
from hebblm.text import EvaluationStream
from hebblm.types import OutputHead

EOS = 0


class StandInBase:
    """A base that reads with an untrained model, for the time it takes, and gives the states of a source.

    The states of an untrained model lie so close together that every adapter would meet a case that no trained model
    has; only the time of its forward pass is of use.

    Args:
        model: untrained, of the architecture whose time is wanted.
        head: of the source.
        states: (T, D) given out in order.
        layout: where the streams that are read lie among them.
    """

    def __init__(self, model: AWDLSTM, head: OutputHead, states: Tensor, layout: Layout) -> None:
        self._base = AwdBase(model, streams=layout.streams)
        self._layout = layout
        self._head = head
        self._states = states
        self._position = 0

    @property
    def head(self) -> OutputHead:
        """The source's head."""
        return self._head

    def read(self, inputs: Tensor) -> Tensor:
        """Read the tokens (N,) or (B, N), and return the source's next states (N, D) or (B, N, D)."""
        self._base.read(inputs)
        start, self._position = self._position, self._position + inputs.shape[-1]
        return self._layout.cut(self._states, start, self._position)

    def learn(self, targets: Tensor) -> None:
        """A fixed base learns nothing."""

    def grow(self, rows: int) -> None:
        """Refuse: the source's vocabulary is closed."""
        raise ValueError(f"a stand-in has no {rows} further rows")

    def reset(self) -> None:
        """Return to the first state."""
        self._base.reset()
        self._position = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """A stream and what reads it.

    Args:
        open: returns a base, fixed, at the beginning of some streams of the text.
        model: that base's model, whose own head takes part in dynamic evaluation.
        stream: the tokens to be scored.
        describe: what a measurement records about the input.
    """

    open: Callable[[Layout], Base]
    model: AWDLSTM
    stream: EvaluationStream
    describe: dict[str, object]


def synthetic_workload(source: Source, architecture: AWDLSTMConfig, tokens: int, seed: int) -> Workload:
    """Return a stream of a synthetic source, read with an untrained model.

    Args:
        source: gives states and targets.
        architecture: of the model; its width and vocabulary are the source's.
        tokens: length of the stream.
        seed: of the weights.
    """
    torch.manual_seed(seed)
    model = AWDLSTM(architecture).to(source.head.weight.device).eval()
    states, targets = source.queries(tokens)
    describe = {**source.describe(), "reading": "untrained weights, for their time alone"}
    stream = _stream(targets.cpu().numpy(), source.head.weight.shape[0])
    return Workload(lambda layout: StandInBase(model, source.head, states, layout), model, stream, describe)


def model_workload(source: ModelSource, tokens: int) -> Workload:
    """Return the beginning of the validation text, read by the source's own model."""
    ids = source.corpus.tokens("valid")[:tokens].astype(np.int64)
    stream = _stream(ids, source.head.weight.shape[0], source.corpus.dictionary.eos_index)
    model = source.base.model
    return Workload(lambda layout: AwdBase(model, streams=layout.streams), model, stream, source.describe())


def _stream(ids: np.ndarray[tuple[int], np.dtype[np.int64]], classes: int, eos: int = EOS) -> EvaluationStream:
    """Return a stream without novel words; what only a report needs is left at its plainest."""
    counts = np.bincount(ids, minlength=classes).astype(np.int64)
    lines = int((ids == eos).sum())
    return EvaluationStream(
        ids=ids,
        eos=eos,
        source_size=classes,
        vocabulary_size=classes,
        symbols=tuple(str(index) for index in range(classes)),
        train_counts=counts,
        lines=lines,
        words=len(ids) - lines,
        bytes=len(ids),
    )
