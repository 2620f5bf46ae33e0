"""A trained causal language model of ``transformers``: its bases, its states of a text, its
weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from hebblm.errors import UserError
from hebblm.models.base import Ids, NewRows, Segment, State, mean_squares_of
from hebblm.models.huggingface.base import HuggingFaceBase
from hebblm.models.huggingface.layers import LAST
from hebblm.models.huggingface.network import Network, turn
from hebblm.models.huggingface.probe import agree, holds, is_exact
from hebblm.models.update import BaseUpdate
from hebblm.runtime.progress import track
from hebblm.runtime.ranks import partition

TOGETHER = 4096  # tokens of the training text read at once
STREAMS = 20  # of the training text, for the size of gradients
SAMPLE = 512  # numbers of a parameter that tell it from another


class Weights:
    """The weights of a model at the time of opening.

    torch counts changes of tensors, even of a single number; a copy of a tensor starts at 0 again.
    It does not count changes by ``.data`` or a fused optimizer, but those change most numbers, and
    so the hash.
    """

    def __init__(self, model: Any, key: str, file_sha256: str) -> None:
        self._model = model
        self._key = key
        self.file_sha256 = file_sha256
        with turn(model):  # those of a base that moves may stand in their places meanwhile
            self._sha256 = self._fingerprint()
            self._counts = _counts(model)

    def sha256(self) -> str:
        """Hash of the weights; raises if they have changed."""
        with turn(self._model):
            if self._counts == _counts(self._model) and self._sha256 == self._fingerprint():
                return self._sha256
        raise UserError("the weights changed since hebblm.load; load the model again")

    def _fingerprint(self) -> str:
        return _fingerprint(
            self._model, f"{'' if self._key == LAST else self._key}{self.file_sha256}"
        )

    def __reduce__(self) -> tuple[type[Weights], tuple[Any, str, str]]:
        """Copy the model, and read its weights again."""
        return Weights, (self._model, self._key, self.file_sha256)


def _fingerprint(model: Any, extra: str) -> str:
    """Return a hash of shapes, types and some numbers of the weights, and of the active
    adapters.
    """
    digest = hashlib.sha256(extra.encode())
    for name, weight in model.named_parameters():
        flat = weight.detach().flatten()
        sample = flat[:: max(1, len(flat) // SAMPLE)][:SAMPLE]
        sample = sample.double() if sample.is_floating_point() else sample  # numpy has no bfloat16
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(sample.cpu().numpy().tobytes())
    for (
        name,
        module,
    ) in model.named_modules():  # an adapter's effect depends on more than its weights
        if isinstance(getattr(module, "disable_adapters", None), bool):
            state = (
                module.active_adapters,
                module.disable_adapters,
                getattr(module, "scaling", None),
            )
            digest.update(f"{name} {state}".encode())
    return digest.hexdigest()


def _counts(model: Any) -> list[tuple[int, int]]:
    """Return the address of each weight and its number of changes; torch does not count in
    inference mode.
    """
    states = []
    for weight in model.parameters():
        version = 0 if weight.is_inference() else weight._version
        states.append((weight.data_ptr(), version))
    return states


@dataclass(frozen=True, slots=True, eq=False)
class HuggingFaceModel(Network):
    """A causal language model, with its way of reading and its origin."""

    origin: str  # hub, folder, gguf (a file), a package of Python's index, or held (by the caller)
    weights: Weights

    @property
    def sha256(self) -> str:
        return self.weights.sha256()

    def base(
        self,
        *,
        rows: int = 0,
        init: NewRows = "zero",
        update: BaseUpdate | None = None,
        seed: int = 0,
        streams: int = 1,
    ) -> HuggingFaceBase:
        """Open a base at the beginning of its streams; its vocabulary is closed, so it takes no
        further rows.
        """
        base = HuggingFaceBase(self, update, streams=streams)
        if streams > 1 and not self._in_streams():
            raise UserError(
                f"{type(self.model).__name__} computes differently for several streams at once; "
                "leave `streams` out"
            )
        base.grow(rows)
        return base

    @torch.no_grad()
    def segments(
        self, ids: Ids, done: int = 0, state: State | None = None, rank: int = 0, ranks: int = 1
    ) -> Iterator[Segment]:
        """Read a training stream in windows, several at a time; its segments hold every label
        except the first, once.

        Each window begins with the ``context - stride`` tokens before it, whose states are thrown
        away; if windows begin with a special token, it is one of these. Several processes divide a
        segment's windows in their order.
        """
        total = len(ids) - 1
        device = self.head.weight.device
        stream = torch.from_numpy(np.asarray(ids, dtype=np.int64))
        begins = self.begin is not None
        warm = self.context - self.stride - begins
        width = self._together * self.stride  # labels of a segment
        for segment in range(done, self.segment_count(total)):
            starts = range(segment * width, min((segment + 1) * width, total), self.stride)
            mine = partition(len(starts), rank, ranks)
            starts = starts[mine.start : mine.stop]
            if not starts:
                yield Segment(
                    self.head.weight.new_empty(0, self.key_width), stream[:0].to(device), {}
                )
                continue
            block = torch.zeros(len(starts), self.context, dtype=torch.int64)
            keep = torch.zeros(len(starts), self.context, dtype=torch.bool)
            labels = []
            for row, start in enumerate(starts):
                first, stop = max(0, start - warm), min(start + self.stride, total)
                # of the text in the window
                offset = int(begins and (first > 0 or int(stream[0]) != self.begin))
                block[row, :offset] = self.begin or 0
                block[row, offset : offset + stop - first] = stream[first:stop]
                keep[row, offset + start - first : offset + stop - first] = True
                labels.append(stream[start + 1 : stop + 1])
            hidden, _ = self.states(block, None, {}, carry=False)
            yield Segment(
                hidden[keep.to(device)][:, -self.key_width :], torch.cat(labels).to(device), {}
            )

    def segment_count(self, total: int) -> int:
        return -(-total // (self._together * self.stride))

    def label_places(self, total: int) -> npt.NDArray[np.int64]:
        return np.arange(total, dtype=np.int64) + 1

    def mean_squares(
        self, train: Ids, segment: int, announce: Callable[[float], None] | None = None
    ) -> list[Tensor]:
        """Return the mean square of the gradient of a segment's mean loss, by parameter of
        :meth:`base`.

        The ids are read as 20 rows, each segment after the one before it, if the model has room for
        both.
        """
        most = longest(self.model.config)
        warm = segment if self.recurrent or not most else min(segment, most - segment)
        if warm < 0:
            raise UserError(
                f"dynamic.segment = {segment} must be at most the {most} tokens that the model can "
                "read at once"
            )
        rows = min(STREAMS, max(1, len(train) // (2 * segment + 1)))
        width = len(train) // rows
        block = torch.from_numpy(np.asarray(train[: rows * width], dtype=np.int64)).view(
            rows, width
        )
        parameters = HuggingFaceBase(self).parameters()

        def losses() -> Iterator[Tensor]:
            starts = range(segment, max(width - 1, segment + 1), segment)
            for start in track(starts, "gradient statistics", len(starts), "segments", announce):
                stop = min(start + segment, width - 1)
                window = block[:, start - warm : stop]
                hidden, _ = self.states(
                    self.with_bos(window) if warm else window, None, parameters, carry=False
                )
                head = self.head_with(parameters)
                logits = head.logits(hidden[:, warm:, : head.weight.shape[1]])
                targets = block[:, start + 1 : stop + 1].to(logits.device)
                yield F.cross_entropy(logits.flatten(0, 1), targets.flatten())

        return mean_squares_of(losses(), list(parameters.values()))

    def reading(self) -> dict[str, int]:
        """Return the window, which recurrent models use too for a training text."""
        begin = {} if self.begin is None else {"begin": self.begin}
        return {"context": self.context, "stride": self.stride, **begin}

    def describe(self) -> dict[str, Any]:
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
            "logit_scale": self.found_head.scale,
            "logit_cap": self.found_head.cap,
            "parameters": sum(weight.numel() for weight in self.parameters.values()),
            "learning_parameters": sum(self.parameters[name].numel() for name in self.learns),
            "origin": self.origin,
            **({"file_sha256": self.weights.file_sha256} if self.weights.file_sha256 else {}),
            "weights_fingerprint": self.sha256,
        }

    def _in_streams(self) -> bool:
        """Whether two streams side by side, read on by a single token, have the same states as each
        alone.
        """
        rows = torch.stack([self.probe_ids, self.probe_ids.flip(0)])  # (2, T)
        with turn(self.model):
            exact = is_exact(self.model, self.probe_ids)

        def alike() -> bool:
            together = HuggingFaceBase(self, streams=2)
            alone = [HuggingFaceBase(self) for _ in rows]
            for part in (slice(0, -1), slice(-1, None)):
                expected = torch.stack(
                    [base.read(row[part]) for base, row in zip(alone, rows, strict=True)]
                )
                try:
                    states = together.read(rows[:, part])
                except (RuntimeError, ValueError, IndexError):  # it reads one text at a time
                    return False
                if states.shape != expected.shape or not agree(states, expected, exact):
                    return False
            return True

        return holds(alike, exact)

    @property
    def _together(self) -> int:
        """Number of windows read at once."""
        return max(1, TOGETHER // self.context)


def longest(config: Any) -> int | None:
    """Return the number of tokens that a model of this configuration reads at once, None for any
    number.

    Positions of type longrope change when a text grows beyond a certain length, even those of
    earlier tokens. A carried state would keep the former positions.
    """
    text = config.get_text_config()
    most = getattr(text, "max_position_embeddings", None)
    rotary = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    # some have one a kind of layer
    kinds = [kind for kind in (rotary, *rotary.values()) if isinstance(kind, dict)]
    name = "original_max_position_embeddings"
    limits = [most]
    for kind in kinds:
        if kind.get("rope_type", kind.get("type")) == "longrope":
            limits.append(kind.get(name, getattr(text, name, None)))
    known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    return min(known, default=None)
