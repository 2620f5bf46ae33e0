"""Opening a causal language model of ``transformers``: a few tokens show how to read it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.models.huggingface.adapter import MERGED, unwrapped
from hebblm.models.huggingface.layers import (
    LAST,
    FoundHead,
    find_head,
    find_key,
    layers_of,
    logits_of,
)
from hebblm.models.huggingface.load import load_causal
from hebblm.models.huggingface.model import HuggingFaceModel, Weights, longest
from hebblm.models.huggingface.network import CARRIED, replace_tensors, tensors_of, turn
from hebblm.models.huggingface.probe import (
    READS,
    agree,
    arithmetic,
    check_kind,
    holds,
    is_exact,
    probing,
)
from hebblm.runtime.progress import log
from hebblm.text.subwords import token_before

CONTEXT = 4096  # default tokens of a window; less if the model was trained with less
LARGE = 100_000_000  # parameters above which only some learn in dynamic evaluation
LAST_PART = 4  # of its layers: the last of so many parts has those that learn
# those where no layers are found; the output layer, by any name, is lm_head
LEARNS = "lm_head", "norm", "bias"
PROBE = 12  # tokens that show how a model is read
BEHIND = 7  # tokens that are read after the state of the others


def open_causal(
    model: Any,
    *,
    context: int | None = None,
    stride: int | None = None,
    learns: Sequence[str] | None = None,
    key: str | int = LAST,
    begin: int | None = None,
    origin: str = "held",
    file_sha256: str = "",
) -> HuggingFaceModel:
    """Open a causal language model for reading, after a test with a few tokens.

    Args:
        model: a model of ``transformers``, compiled or not; it is read in evaluation mode, and
            keeps its own mode.
        context: tokens of a window, at most the window of its training; None for that, but at most
            4,096.
        stride: tokens by which the window moves on; None for half of it.
        learns: parts of the names of the weights that learn in dynamic evaluation. None for all
            weights; above 100 million parameters, for the last matrix of each layer in the last
            quarter.
        key: states that memories keep: last (those that enter the output layer), ffn-input (those
            that enter the last feed-forward layer), or the number of a layer, for its output.
        begin: token that each window begins with, None for any.
        origin: its origin, for results.
        file_sha256: hash of the file, if it was loaded from a single one.
    """
    # the model that torch.compile wrapped: the wrapper's own call does not show its arguments
    model = getattr(model, "_orig_mod", model)
    given = model
    model = unwrapped(model)
    if not hasattr(model, "get_output_embeddings") or not hasattr(model, "config"):
        raise UserError(
            f"{type(model).__name__} is not a language model of transformers; give (model, "
            "tokenizer)"
        )
    kind = type(model).__name__
    check_kind(kind, model.config)
    rows = _token_rows(model)
    context, stride = _window(model.config, context, stride)
    with turn(model):
        parameters = {name: weight.detach() for name, weight in model.named_parameters()}
    if away := [name for name, weight in parameters.items() if weight.is_meta]:
        raise UserError(
            f"{len(away):,} weights of {kind} ({away[0]}, ...) are kept off its devices, where "
            "nothing "
            "can be computed with them; load it with a device_map that has room for all of them, "
            "as device_map='cpu'"
        )
    size = len(rows)
    ids = (torch.arange(PROBE) * 7919 + 3) % size
    pad = getattr(model.config, "pad_token_id", None)
    if pad is not None:
        ids = torch.where(ids == pad, (ids + 1) % size, ids)
    ids = ids[: min(PROBE, context)].to(rows.device)
    chosen = find_key(model, str(key))
    carries = next((n for n in CARRIED if n in inspect.signature(model.forward).parameters), None)
    with turn(model):
        exact = is_exact(model, ids)
        found_head = find_head(model, ids[None], exact)
        if given is not model:
            _check_inside(given, model, ids[None], exact)
    # No rows of the layer yet: a large one in float32 would be in memory together with the probes'
    # copy of its weights.
    head = found_head.of(
        {name: parameters[name][:0] for name in (found_head.weight, found_head.bias) if name}
    )
    opened = HuggingFaceModel(
        model, found_head, head, parameters, _learning(model, found_head, learns), context, stride,
        begin,
        carries,
        False, "none", True, ids, chosen, head.weight.shape[1], origin,
        Weights(model, chosen.name, file_sha256),
    )  # fmt: skip
    with torch.no_grad(), probing(kind):
        opened = _probed(opened, exact)
    if opened.steps == "none":
        log(
            f"{kind} cannot go on from what it has read, so its window is read again for each "
            "interval: "
            "long ones (update_every) take less time"
        )
    opened = replace(opened, head=found_head.of(parameters))
    return replace(opened, differentiable=_has_gradients(opened)) if opened.recurrent else opened


def load_and_open(
    name: str | Path,
    reading: Mapping[str, Any],
    *,
    device: torch.device,
    dtype: str,
    **options: Any,
) -> tuple[HuggingFaceModel, Any]:
    """Load and open a model by name, with the arguments of :func:`open_causal` in ``reading``, and
    its tokenizer.

    The other arguments are those of :func:`hebblm.models.huggingface.load.load_causal`.
    """
    model, tokenizer, origin, digest = load_causal(name, device=device, dtype=dtype, **options)
    begin = token_before(tokenizer)
    return open_causal(model, **reading, begin=begin, origin=origin, file_sha256=digest), tokenizer


def _token_rows(model: Any) -> Tensor:
    """Return the embeddings (V, D) of a model's tokens."""
    try:
        rows = model.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):  # of a model of pictures or sounds
        rows = None
    if not isinstance(rows, Tensor) or rows.ndim != 2:
        raise UserError(f"{type(model).__name__} has no embeddings of tokens; {READS}")
    return rows


@torch.no_grad()
def _check_inside(outer: Any, model: Any, ids: Tensor, exact: bool) -> None:
    """Refuse a ``PeftModel`` that computes more than the model inside, whose layers hold its
    adapter.
    """
    if not holds(lambda: agree(logits_of(model, ids), logits_of(outer, ids), exact), exact):
        raise UserError(
            f"{type(outer).__name__} does more than the layers of its adapter compute; {MERGED}"
        )


def _probed(opened: HuggingFaceModel, exact: bool) -> HuggingFaceModel:
    """Return the model with the result of a test on a few tokens: it is causal, and how its state
    goes on.
    """
    ids = opened.probe_ids[None]
    first = ids.shape[1] - min(BEHIND, ids.shape[1] - 1)
    with arithmetic(exact):
        whole, behind_all = opened.states(ids, None, {})
        begun, carried = opened.states(ids[:, :first], None, {})
        alike = agree(begun, whole[:, :first], exact)

    def causal() -> bool:
        """Change the later tokens: passes of one length are rounded alike."""
        changed = torch.cat([ids[:, :first], ids[:, first - 1 : -1]], 1)
        rows, others = (opened.states(row, None, {})[0][:, :first] for row in (ids, changed))
        return agree(others, rows, exact)

    def goes_on(width: int) -> bool:
        """Read so many tokens at a time after the state of the first."""
        rows, _ = opened.states(ids, None, {})
        hidden, state = opened.states(ids[:, :first], None, {})
        parts = [hidden]
        try:
            for part in torch.split(ids[:, first:], width, 1):
                hidden, state = opened.states(part, state, {})
                parts.append(hidden)
        except Exception:  # of any kind: it reads one token at a time, or none
            return False
        return agree(torch.cat(parts, 1), rows, exact)

    # half precision allows for more than its rounding
    if not alike and not (exact and holds(causal, exact)):
        raise UserError(
            f"{type(opened.model).__name__} lets later tokens change earlier predictions, so it is "
            f"not causal; {READS}"
        )
    opened = replace(opened, key_width=whole.shape[2] - opened.head.weight.shape[1] * opened.keyed)
    if carried is None:
        return replace(opened, carries=None)
    # A state that does not grow with the text is that of a recurrent network.
    size = sum(tensor.numel() for _, tensor in tensors_of(carried))
    size_behind_all = sum(tensor.numel() for _, tensor in tensors_of(behind_all))
    recurrent = size == size_behind_all > 0
    if holds(lambda: goes_on(ids.shape[1]), exact):
        return replace(opened, recurrent=recurrent, steps="many")
    if holds(lambda: goes_on(1), exact):
        return replace(opened, recurrent=recurrent, steps="one")
    return replace(opened, carries=None)


def _has_gradients(opened: HuggingFaceModel) -> bool:
    """Return whether gradients pass reading after a carried state, in any pieces: some models
    overwrite their state.
    """
    first = opened.learns[0]
    learned = {first: torch.nn.Parameter(opened.parameters[first].clone())}
    ids = opened.probe_ids[None]
    carried = None
    parts = []
    rest = ids.shape[1] - 1
    widths = [1] * (rest + 1) if opened.steps == "one" else [rest - rest // 2, rest // 2, 1]
    try:
        with torch.enable_grad():
            for part in torch.split(ids, [width for width in widths if width], 1):
                hidden, carried = opened.states(part, carried, learned)
                carried = replace_tensors(carried, lambda _, tensor: tensor.detach())
                parts.append(hidden)
            torch.autograd.grad(
                torch.cat(parts, 1).sum(), list(learned.values()), allow_unused=True
            )
    except RuntimeError:
        return False
    return True


def _window(config: Any, context: int | None, stride: int | None) -> tuple[int, int]:
    """Return context and stride; refuse values that the model cannot have."""
    limit = longest(config)
    if context is None:
        context = CONTEXT if limit is None else min(CONTEXT, limit)
    if context < 2 or (limit is not None and context > limit):
        most = getattr(config.get_text_config(), "max_position_embeddings", None)
        if limit is None or limit == most:
            why = ""
        else:
            why = ", above which its positions change (longrope)"
        raise UserError(
            f"context = {context} must lie between 2 and the model's {limit or 'memory'} "
            f"tokens{why}"
        )
    if stride is None:
        stride = max(1, context // 2)
    if not 1 <= stride < context:
        raise UserError(
            f"stride = {stride} must lie between 1 and {context - 1}, one less than the context"
        )
    return context, stride


def _learning(model: Any, head: FoundHead, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the weights that learn."""
    weights = dict(model.named_parameters())
    floating = [name for name, weight in weights.items() if weight.is_floating_point()]
    if asked is None:
        if sum(weight.numel() for weight in weights.values()) <= LARGE:
            return tuple(floating)
        if late := _last_matrices(model, floating):
            return late
        asked = LEARNS
    norms = [
        name for name, module in model.named_modules() if "norm" in type(module).__name__.lower()
    ]
    kinds: dict[str, list[str]] = {}
    for part in asked:
        kinds[part] = [name for name in floating if part in name]
    if "lm_head" in kinds:
        kinds["lm_head"] += [name for name in (head.weight, head.bias) if name]
    if "norm" in kinds:
        kinds["norm"] += [name for name in floating if name.rpartition(".")[0] in norms]
    for part, names in kinds.items():
        if not names and part not in LEARNS:
            raise UserError(f"{type(model).__name__} has no weight with {part!r} in its name")
    chosen = set[str]().union(*kinds.values())
    return tuple(name for name in floating if name in chosen)


def _last_matrices(model: Any, floating: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the last matrix of each layer in a model's last quarter: the second of
    its feed-forward part.

    Their gradients do not pass earlier layers, and few weights are copied.
    """
    layers = layers_of(model)
    shapes = {
        name: weight.ndim for name, weight in model.named_parameters() if name in set(floating)
    }
    names = {id(module): name for name, module in model.named_modules()}
    chosen = []
    for layer in layers[-max(1, len(layers) // LAST_PART) :]:
        prefix = f"{names[id(layer)]}."
        matrices = [name for name in shapes if shapes[name] > 1 and name.startswith(prefix)]
        chosen += matrices[-1:]
    return tuple(chosen)
