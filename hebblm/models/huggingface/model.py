"""A trained causal language model of ``transformers``: how it is read, what it remembers of a text, what may learn."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
from hebblm.models.huggingface.cache import ARGUMENTS, tensors_of
from hebblm.models.huggingface.head import FoundHead, find_head, states_before
from hebblm.models.huggingface.key import LAST, Key, find_key
from hebblm.models.update import BaseUpdate
from hebblm.progress import track
from hebblm.types import OutputHead

CONTEXT = 1024
"""Tokens of a window where none are asked for; less where the model was trained with less."""
LARGE = 100_000_000
"""Parameters above which only some learn in dynamic evaluation."""
LEARNS = ("lm_head", "norm", "bias")
"""Which of a large model's do; the output layer, whatever its name, counts as ``lm_head``."""
Steps = Literal["many", "one", "none"]
"""How many tokens can be read behind what a model carries."""
TOGETHER = 4096  # tokens of the training text read at once
STREAMS = 20  # of the training text, for the size of gradients
PROBE = 12  # tokens that show how a model is read
BEHIND = 7  # of them that are read behind what the others left
SAMPLE = 512  # numbers of a parameter that tell it from another


@dataclass(frozen=True, slots=True, eq=False)
class HuggingFaceModel:
    """A causal language model and how it is read; see :func:`open_causal`.

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
        self, *, rows: int = 0, init: NewRows = "zero", update: BaseUpdate | None = None, seed: int = 0
    ) -> HuggingFaceBase:
        """Return a base at the beginning of a stream; its vocabulary is closed, so that there are no further rows."""
        base = HuggingFaceBase(self, update)
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
        with states_before(self.found.module) as found, self.key.noted() as keys:
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
    def segments(self, ids: Ids, done: int = 0, state: State | None = None) -> Iterator[Segment]:
        """Read a training stream in windows, several at a time; its segments hold every label but the first, once.

        Each window begins with the ``context - stride`` tokens before it, whose states are thrown away.

        Args:
            ids: (T,) the stream.
            done: segments that were read before.
            state: not needed.
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

    def mean_squares(self, train: Ids, segment: int) -> list[Tensor]:
        """Return the mean square of the gradient of a segment's mean loss, by parameter of :meth:`base`.

        Args:
            train: (T,) training ids, read as 20 rows, each segment behind the one before it.
            segment: tokens a step.
        """
        rows = min(STREAMS, max(1, len(train) // (2 * segment + 1)))
        width = len(train) // rows
        block = torch.from_numpy(np.asarray(train[: rows * width], dtype=np.int64)).view(rows, width)
        parameters = HuggingFaceBase(self).parameters()
        sums = [torch.zeros_like(weight) for weight in parameters.values()]
        starts = range(segment, max(width - 1, segment + 1), segment)
        for start in track(starts, "gradient statistics", len(starts), "segments"):
            stop = min(start + segment, width - 1)
            hidden, _ = self.states(block[:, start - segment : stop], None, parameters, carry=False)
            head = self.found.of({**self.parameters, **parameters})
            logits = head.logits(hidden[:, segment:, : head.weight.shape[1]])
            targets = block[:, start + 1 : stop + 1].to(logits.device)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            for total, g in zip(sums, torch.autograd.grad(loss, list(parameters.values())), strict=True):
                total += g.square()
        return [total / len(starts) for total in sums]

    def reading(self) -> dict[str, int]:
        """Return the window, where there is one."""
        return {} if self.recurrent else {"context": self.context, "stride": self.stride}

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

    @property
    def _together(self) -> int:
        """Windows read at once."""
        return max(1, TOGETHER // self.context)


def open_causal(
    model: Any,
    *,
    context: int | None = None,
    stride: int | None = None,
    learns: tuple[str, ...] | None = None,
    key: str | int = LAST,
    origin: str = "held",
) -> HuggingFaceModel:
    """Return a causal language model as hebblm reads it, after a few tokens have shown how.

    Args:
        model: of ``transformers``; it is set to evaluation mode.
        context: tokens of a window, at most what the model was trained with; None for that, but at most 1,024.
        stride: tokens by which the window moves on; None for half of it.
        learns: parts of the names of those weights that learn in dynamic evaluation; None for all, or of a model above
            100 million parameters for lm_head, norm and bias.
        key: whose states memories keep: last (those that enter the output layer), ffn-input (those that enter the last
            feed-forward layer), or the number of a layer whose output it is.
        origin: where it comes from.

    Raises:
        UserError: the model is none, or has no such layer, or computes its logits in a way that cannot be adapted, or
            cannot have that context, or no weight has such a name.
    """
    if not hasattr(model, "get_output_embeddings") or not hasattr(model, "config"):
        raise UserError(
            f"{type(model).__name__} is no language model of transformers; give (model, tokenizer)"
        )
    model.eval()
    context, stride = _window(model.config, context, stride)
    parameters = {name: weight.detach() for name, weight in model.named_parameters()}
    size = model.get_input_embeddings().weight.shape[0]
    ids = (torch.arange(PROBE) * 7919 + 3) % size
    pad = getattr(model.config, "pad_token_id", None)
    ids = torch.where(ids == pad, (ids + 1) % size, ids) if pad is not None else ids
    ids = ids[: min(PROBE, context)].to(model.get_input_embeddings().weight.device)
    found = find_head(model, ids[None])
    head = found.of(parameters)
    chosen = find_key(model, str(key))
    carries = next((n for n in ARGUMENTS if n in inspect.signature(model.forward).parameters), None)
    opened = HuggingFaceModel(
        model, found, head, parameters, _learning(model, found, learns), context, stride, carries,
        False, "none", True, ids, chosen, head.weight.shape[1], origin, fingerprint(model, chosen.name),
    )  # fmt: skip
    return _probed(opened)


@torch.no_grad()
def _probed(opened: HuggingFaceModel) -> HuggingFaceModel:
    """Return the model with what reading a few tokens shows: that it is causal, and how its state goes on."""
    ids = opened.probe_ids
    whole, behind_all = opened.states(ids[None], None, {})
    tolerance = 64 * torch.finfo(opened.model.dtype).eps * max(1.0, float(whole.abs().max()))
    first = len(ids) - min(BEHIND, len(ids) - 1)
    begun, carried = opened.states(ids[None, :first], None, {})
    if float((begun - whole[:, :first]).abs().max()) > tolerance:
        raise UserError(
            f"{type(opened.model).__name__} lets later tokens change what comes before them: it is no causal "
            "language model"
        )
    opened = replace(opened, key_width=whole.shape[2] - opened.head.weight.shape[1] * opened.keyed)
    if carried is None:
        return replace(opened, carries=None)
    sizes = [sum(tensor.numel() for _, tensor in tensors_of(item)) for item in (carried, behind_all)]
    recurrent = sizes[0] == sizes[1] > 0
    ways: tuple[tuple[Steps, int], ...] = (("many", len(ids)), ("one", 1))
    for steps, width in ways:
        carried = opened.states(ids[None, :first], None, {})[1]
        parts = []
        try:
            for part in torch.split(ids[first:], width):
                hidden, carried = opened.states(part[None], carried, {})
                parts.append(hidden)
        except (
            RuntimeError,
            ValueError,
            NotImplementedError,
            IndexError,
        ):  # it reads one token at a time, or none
            continue
        if float((torch.cat(parts, 1) - whole[:, first:]).abs().max()) <= tolerance:
            ready = replace(opened, recurrent=recurrent, steps=steps)
            return replace(ready, differentiable=_has_gradients(ready)) if recurrent else ready
    return replace(opened, carries=None)


def _has_gradients(opened: HuggingFaceModel) -> bool:
    """Say whether gradients reach the first weight although a state is carried: some models overwrite theirs."""
    first = opened.learns[0]
    own = {first: torch.nn.Parameter(opened.parameters[first].clone())}
    with torch.enable_grad():
        hidden, _ = opened.states(opened.probe_ids[None], None, own)
        try:
            torch.autograd.grad(hidden.sum(), list(own.values()), allow_unused=True)
        except RuntimeError:
            return False
    return True


def _window(config: Any, context: int | None, stride: int | None) -> tuple[int, int]:
    """Return context and stride as asked for, within what a model can have.

    Raises:
        UserError: they are not.
    """
    longest = getattr(config.get_text_config(), "max_position_embeddings", None)
    limit = longest if isinstance(longest, int) and longest > 0 else None
    if context is None:
        context = CONTEXT if limit is None else min(CONTEXT, limit)
    if context < 2 or (limit is not None and context > limit):
        raise UserError(f"context = {context} must lie between 2 and the model's {limit or 'memory'} tokens")
    stride = max(1, context // 2) if stride is None else stride
    if not 1 <= stride < context:
        raise UserError(f"stride = {stride} must lie between 1 and {context - 1}, one less than the context")
    return context, stride


def _learning(model: Any, found: FoundHead, asked: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names of the weights that learn where a base moves.

    Raises:
        UserError: a part that no name has.
    """
    weights = dict(model.named_parameters())
    floating = [name for name, weight in weights.items() if weight.is_floating_point()]
    if asked is None:
        if sum(weight.numel() for weight in weights.values()) <= LARGE:
            return tuple(floating)
        asked = LEARNS
    norms = [name for name, module in model.named_modules() if "norm" in type(module).__name__.lower()]
    kinds: dict[str, list[str]] = {part: [name for name in floating if part in name] for part in asked}
    if "lm_head" in kinds:
        kinds["lm_head"] += [name for name in (found.weight, found.bias) if name]
    if "norm" in kinds:
        kinds["norm"] += [name for name in floating if name.rpartition(".")[0] in norms]
    for part, names in kinds.items():
        if not names and part not in LEARNS:
            raise UserError(f"no weight of {type(model).__name__} has {part!r} in its name")
    chosen = {name for names in kinds.values() for name in names}
    return tuple(name for name in floating if name in chosen)


def fingerprint(model: Any, key: str) -> str:
    """Return what tells a model's weights, and their type, from others: a hash of shapes and of some of the numbers.

    Args:
        model: of ``transformers``.
        key: whose states memories keep.
    """
    digest = hashlib.sha256(b"" if key == LAST else key.encode())
    for name, weight in model.named_parameters():
        flat = weight.detach().flatten()
        some = flat[:: max(1, len(flat) // SAMPLE)][:SAMPLE]
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(
            some.double().cpu().numpy().tobytes()
            if some.is_floating_point()
            else some.cpu().numpy().tobytes()
        )
    return digest.hexdigest()
