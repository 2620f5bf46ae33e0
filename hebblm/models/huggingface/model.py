"""A trained causal language model of ``transformers``: how it is read, what it remembers of a text, what may learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from hebblm.errors import UserError
from hebblm.models.base import Ids, NewRows, Segment, State
from hebblm.models.huggingface.base import HuggingFaceBase
from hebblm.models.huggingface.head import FoundHead, states_of
from hebblm.models.huggingface.key import Key
from hebblm.models.huggingface.probe import agree, arithmetic, is_exact
from hebblm.models.huggingface.turns import turn
from hebblm.models.huggingface.weights import Weights
from hebblm.models.update import BaseUpdate
from hebblm.progress import track
from hebblm.ranks import partition
from hebblm.types import OutputHead

Steps = Literal["many", "one", "none"]
"""How many tokens can be read behind what a model carries."""
TOGETHER = 4096  # tokens of the training text read at once
STREAMS = 20  # of the training text, for the size of gradients


@dataclass(frozen=True, slots=True, eq=False)
class HuggingFaceModel:
    """A causal language model and how it is read; see :func:`hebblm.models.huggingface.open.open_causal`.

    Args:
        model: of ``transformers``; in evaluation mode while it is read.
        found: its softmax layer.
        head: the same as tensors.
        parameters: all its weights by name, without their gradients.
        learns: names of those that learn where a base moves.
        context: tokens of a window.
        stride: tokens by which it moves on.
        begin: token that each window begins with, None if it begins with any.
        carries: what the forward pass calls what it carries from token to token, None if it carries nothing.
        recurrent: whether what it carries does not grow, so that no window is needed.
        steps: how many tokens can be read behind what is carried: many, one, or none, so that all is read anew.
        differentiable: whether gradients can be taken where something is carried.
        probe_ids: (T,) a few tokens.
        key: whose states memories keep.
        key_width: width of these states.
        origin: ``hub``, ``folder`` or ``held`` (by the caller).
        weights: as they were when it was opened.
    """

    model: Any
    found: FoundHead
    head: OutputHead
    parameters: Mapping[str, Tensor]
    learns: tuple[str, ...]
    context: int
    stride: int
    begin: int | None
    carries: str | None
    recurrent: bool
    steps: Steps
    differentiable: bool
    probe_ids: Tensor
    key: Key
    key_width: int
    origin: str
    weights: Weights

    @property
    def sha256(self) -> str:
        """What tells the weights from others; refused where they changed."""
        return self.weights.sha256()

    @property
    def keyed(self) -> bool:
        """Whether memories keep other states than those that enter the softmax layer."""
        return not self.key.last

    def base(
        self,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
        streams: int = 1,
    ) -> HuggingFaceBase:
        """Return a base at the beginning of its streams; its vocabulary is closed, so that there are no further rows.

        Raises:
            UserError: several streams, and an architecture that gets other states for them than for each alone.
        """
        base = HuggingFaceBase(self, update, streams=streams)
        if streams > 1 and not self._in_streams():
            raise UserError(
                f"{type(self.model).__name__} gets other states for several streams at once than for each alone; "
                "leave --streams out"
            )
        base.grow(rows)
        return base

    def head_with(self, own: Mapping[str, Tensor]) -> OutputHead:
        """Return the softmax layer with weights in place of the model's, by name; as trained where it has none."""
        if self.found.weight not in own and self.found.bias not in own:
            return self.head
        return self.found.of({**self.parameters, **own})

    def begun(self, window: Tensor) -> Tensor:
        """Return a window (B, T) with what the tokenizer puts before every text, if anything, for its first token."""
        if self.begin is None:
            return window
        return torch.cat([window.new_full((len(window), 1), self.begin), window[:, 1:]], 1)

    def states(
        self, ids: Tensor, carried: object, own: Mapping[str, Tensor], *, carry: bool = True
    ) -> tuple[Tensor, object]:
        """Return the hidden states (B, T, D) that enter the softmax layer, and what is carried behind them.

        Where memories keep another layer's states, these stand behind: (B, T, D + D_key).

        Args:
            ids: (B, T) tokens.
            carried: behind the tokens before them, None at the beginning.
            own: weights in place of the model's, by name; they may be of higher precision.
            carry: whether anything is to be carried on.
        """
        ids = ids.to(self.model.get_input_embeddings().weight.device)
        options = {} if self.carries is None else {self.carries: carried, "use_cache": carry}
        with turn(self.model), states_of(self.found.module, last_only=True) as found, self.key.states() as keys:
            if own:
                # Quantised weights are more than their numbers: they stay in their places.
                weights = {name: weight for name, weight in self.parameters.items() if weight.is_floating_point()}
                weights |= {name: weight.to(self.parameters[name].dtype) for name, weight in own.items()}
                out = functional_call(self.model, weights, (ids,), options)
            else:
                out = self.model(ids, **options)
        head = self.head.weight
        if self.keyed and (not keys or keys[0].shape[:-1].numel() != ids.numel()):
            raise UserError(
                f"the layer of key {self.key.name!r} in {type(self.model).__name__} has no state for each token; name "
                "another"
            )
        parts = [
            states.reshape(*ids.shape, -1).to(head.device, head.dtype)  # some layers flatten them
            for states in (found[0], *keys[:1])
        ]
        return torch.cat(parts, -1), getattr(out, self.carries or "", None)

    @torch.no_grad()
    def segments(
        self, ids: Ids, done: int = 0, state: State | None = None, rank: int = 0, ranks: int = 1
    ) -> Iterator[Segment]:
        """Read a training stream in windows, several at a time; its segments hold every label but the first, once.

        Each window begins with the ``context - stride`` tokens before it, whose states are thrown away; where windows
        begin with a certain token, that is one of them. Several processes divide a segment's windows in their order.
        """
        total, device = len(ids) - 1, self.head.weight.device
        stream = torch.from_numpy(np.asarray(ids, dtype=np.int64))
        begins = self.begin is not None
        warm = self.context - self.stride - begins
        for segment in range(done, self.segment_count(total)):
            starts = range(
                segment * self._together * self.stride,
                min((segment + 1) * self._together * self.stride, total),
                self.stride,
            )
            mine = partition(len(starts), rank, ranks)
            starts = starts[mine.start : mine.stop]
            if not starts:
                yield Segment(self.head.weight.new_empty(0, self.key_width), stream[:0].to(device), {})
                continue
            block = torch.zeros(len(starts), self.context, dtype=torch.int64)
            keep = torch.zeros(len(starts), self.context, dtype=torch.bool)
            labels = []
            for row, start in enumerate(starts):
                first, stop = max(0, start - warm), min(start + self.stride, total)
                place = int(begins and (first > 0 or int(stream[0]) != self.begin))  # of the text in the window
                block[row, :place] = self.begin or 0
                block[row, place : place + stop - first] = stream[first:stop]
                keep[row, place + start - first : place + stop - first] = True
                labels.append(stream[start + 1 : stop + 1])
            hidden, _ = self.states(block, None, {}, carry=False)
            yield Segment(hidden[keep.to(device)][:, -self.key_width :], torch.cat(labels).to(device), {})

    def segment_count(self, total: int) -> int:
        """Return in how many segments ``total`` labels are given."""
        return -(-total // (self._together * self.stride))

    def label_places(self, total: int) -> npt.NDArray[np.int64]:
        """Return the place (total,) in the stream of each label: they are given in its order."""
        return np.arange(total, dtype=np.int64) + 1

    def mean_squares(self, train: Ids, segment: int, announce: Callable[[float], None] | None = None) -> list[Tensor]:
        """Return the mean square of the gradient of a segment's mean loss, by parameter of :meth:`base`.

        Args:
            train: (T,) training ids, read as 20 rows, each segment behind the one before it.
            segment: tokens a step.
            announce: told behind the first step how many seconds all of them are going to take.

        Raises:
            UserError: a segment longer than what the model can read at once.
        """
        most = longest(self.model.config)
        warm = segment if self.recurrent or not most else min(segment, most - segment)
        if warm < 0:
            raise UserError(
                f"dynamic.segment = {segment} must be at most the {most} tokens that the model can read at once"
            )
        rows = min(STREAMS, max(1, len(train) // (2 * segment + 1)))
        width = len(train) // rows
        block = torch.from_numpy(np.asarray(train[: rows * width], dtype=np.int64)).view(rows, width)
        parameters = HuggingFaceBase(self).parameters()
        sums = [torch.zeros_like(weight) for weight in parameters.values()]
        starts = range(segment, max(width - 1, segment + 1), segment)
        for start in track(starts, "gradient statistics", len(starts), "segments", announce):
            stop = min(start + segment, width - 1)
            window = block[:, start - warm : stop]
            hidden, _ = self.states(self.begun(window) if warm else window, None, parameters, carry=False)
            head = self.head_with(parameters)
            logits = head.logits(hidden[:, warm:, : head.weight.shape[1]])
            targets = block[:, start + 1 : stop + 1].to(logits.device)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            for total, g in zip(sums, torch.autograd.grad(loss, list(parameters.values())), strict=True):
                total += g.square()
        return [total / len(starts) for total in sums]

    def reading(self) -> dict[str, int]:
        """Return the window, in which a training text is read by recurrent models too."""
        return {
            "context": self.context,
            "stride": self.stride,
            **({} if self.begin is None else {"begin": self.begin}),
        }

    def describe(self) -> dict[str, Any]:
        """Return what a result records about the model."""
        count = sum(weight.numel() for weight in self.parameters.values())
        return {
            "arch": self.model.config.model_type,
            "vocabulary_size": len(self.head.weight),
            "embedding_dim": self.head.weight.shape[1],
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "context": None if self.recurrent else self.context,
            "stride": None if self.recurrent else self.stride,
            "begin": self.begin,
            "steps": self.steps,
            "key": self.key.name,
            "logit_scale": self.found.scale,
            "logit_cap": self.found.cap,
            "parameters": count,
            "learning_parameters": sum(self.parameters[name].numel() for name in self.learns),
            "origin": self.origin,
            "weights_fingerprint": self.sha256,
        }

    def _in_streams(self) -> bool:
        """Say whether two streams side by side, read on by a single token, have the states that each has alone."""
        rows = torch.stack([self.probe_ids, self.probe_ids.flip(0)])  # (2, T)
        beside, alone = HuggingFaceBase(self, streams=2), [HuggingFaceBase(self) for _ in rows]
        with turn(self.model):
            exact = is_exact(self.model, self.probe_ids)
        with arithmetic(exact):
            for part in (slice(0, -1), slice(-1, None)):
                expected = torch.stack([base.read(row[part]) for base, row in zip(alone, rows, strict=True)])
                try:
                    found = beside.read(rows[:, part])
                except (RuntimeError, ValueError, IndexError):
                    return False
                if found.shape != expected.shape or not agree(found, expected, exact):
                    return False
        return True

    @property
    def _together(self) -> int:
        """Windows read at once."""
        return max(1, TOGETHER // self.context)


def longest(config: Any) -> int | None:
    """Return how many tokens a model reads at once, None for any number.

    Positions of type longrope change where a text grows beyond a certain length, also those of the tokens before, of
    which what is carried would keep the former ones.

    Args:
        config: the model's.
    """
    text = config.get_text_config()
    most = getattr(text, "max_position_embeddings", None)
    rotary = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kinds = [kind for kind in (rotary, *rotary.values()) if isinstance(kind, dict)]  # some have one a kind of layer
    short = [
        kind.get("original_max_position_embeddings", getattr(text, "original_max_position_embeddings", None))
        for kind in kinds
        if kind.get("rope_type", kind.get("type")) == "longrope"
    ]
    return min((length for length in (most, *short) if isinstance(length, int) and length > 0), default=None)
