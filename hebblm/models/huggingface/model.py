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
from hebblm.models.update import BaseUpdate
from hebblm.progress import track
from hebblm.ranks import share
from hebblm.types import OutputHead

Steps = Literal["many", "one", "none"]
"""How many tokens can be read behind what a model carries."""
TOGETHER = 4096  # tokens of the training text read at once
STREAMS = 20  # of the training text, for the size of gradients


@dataclass(frozen=True, slots=True, eq=False)
class HuggingFaceModel:
    """A causal language model and how it is read; see :func:`hebblm.models.huggingface.open.open_causal`.

    Args:
        model: of ``transformers``, in evaluation mode.
        found: its softmax layer.
        head: the same as tensors.
        parameters: all its weights by name, without their gradients.
        learns: names of those that learn where a base moves.
        context: tokens of a window.
        stride: tokens by which it moves on.
        carries: what the forward pass calls what it carries from token to token, None if it carries nothing.
        recurrent: whether what it carries does not grow, so that no window is needed.
        steps: how many tokens can be read behind what is carried: many, one, or none, so that all is read anew.
        differentiable: whether gradients can be taken where something is carried.
        probe_ids: (T,) a few tokens.
        key: whose states memories keep.
        key_width: width of these states.
        origin: ``hub``, ``folder`` or ``held`` (by the caller).
        sha256: what tells the weights from others.
    """

    model: Any
    found: FoundHead
    head: OutputHead
    parameters: Mapping[str, Tensor]
    learns: tuple[str, ...]
    context: int
    stride: int
    carries: str | None
    recurrent: bool
    steps: Steps
    differentiable: bool
    probe_ids: Tensor
    key: Key
    key_width: int
    origin: str
    sha256: str

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

    def states(
        self, ids: Tensor, carried: object, own: Mapping[str, Tensor], *, carry: bool = True
    ) -> tuple[Tensor, object]:
        """Return the hidden states (B, T, D) that enter the softmax layer, and what is carried behind them.

        Where memories keep another layer's states, these stand behind: (B, T, D + D_key).

        Args:
            ids: (B, T) tokens.
            carried: behind the tokens before them, None at the beginning.
            own: weights in place of the model's, by name.
            carry: whether anything is to be carried on.
        """
        ids = ids.to(self.model.get_input_embeddings().weight.device)
        options = {} if self.carries is None else {self.carries: carried, "use_cache": carry}
        with states_of(self.found.module, last_only=True) as found, self.key.states() as keys:
            if own:
                out = functional_call(self.model, {**self.parameters, **own}, (ids,), options)
            else:
                out = self.model(ids, **options)
        head = self.head.weight
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

        Each window begins with the ``context - stride`` tokens before it, whose states are thrown away. Several
        processes divide a segment's windows in their order.
        """
        total, device = len(ids) - 1, self.head.weight.device
        stream = torch.from_numpy(np.asarray(ids, dtype=np.int64))
        warm = self.context - self.stride
        for segment in range(done, self.segment_count(total)):
            starts = range(
                segment * self._together * self.stride,
                min((segment + 1) * self._together * self.stride, total),
                self.stride,
            )
            mine = share(len(starts), rank, ranks)
            starts = starts[mine.start : mine.stop]
            if not starts:
                yield Segment(self.head.weight.new_empty(0, self.key_width), stream[:0].to(device), {})
                continue
            block = torch.zeros(len(starts), self.context, dtype=torch.int64)
            keep = torch.zeros(len(starts), self.context, dtype=torch.bool)
            labels = []
            for row, start in enumerate(starts):
                first, stop = max(0, start - warm), min(start + self.stride, total)
                block[row, : stop - first] = stream[first:stop]
                keep[row, start - first : stop - first] = True
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
        most = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
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
            hidden, _ = self.states(block[:, start - warm : stop], None, parameters, carry=False)
            head = self.found.of({**self.parameters, **parameters})
            logits = head.logits(hidden[:, warm:, : head.weight.shape[1]])
            targets = block[:, start + 1 : stop + 1].to(logits.device)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            for total, g in zip(sums, torch.autograd.grad(loss, list(parameters.values())), strict=True):
                total += g.square()
        return [total / len(starts) for total in sums]

    def reading(self) -> dict[str, int]:
        """Return the window, in which a training text is read by recurrent models too."""
        return {"context": self.context, "stride": self.stride}

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
        for part in (slice(0, -1), slice(-1, None)):
            expected = torch.stack([base.read(row[part]) for base, row in zip(alone, rows, strict=True)])
            try:
                found = beside.read(rows[:, part])
            except (RuntimeError, ValueError, IndexError):
                return False
            tolerance = 64 * torch.finfo(self.model.dtype).eps * max(1.0, float(expected.abs().max()))
            if found.shape != expected.shape or float((found - expected).abs().max()) > tolerance:
                return False
        return True

    @property
    def _together(self) -> int:
        """Windows read at once."""
        return max(1, TOGETHER // self.context)
