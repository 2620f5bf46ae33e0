"""The layers of a model that hebblm reads: its softmax layer, and the one whose states a memory
keeps.

The softmax layer of a causal language model is found by its output, and checked against the model's
logits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from hebblm.errors import UserError
from hebblm.models.huggingface.probe import READS, arithmetic, probing
from hebblm.types import OutputHead

CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Names in configurations of the bound of a soft cap on the logits."""
EXACT = 1e-4  # of the largest logit, in float32
CLEAR = 0.9  # of a cap; nearer to it, what stood before it cannot be told
ROUNDING = 4  # units of rounding that half precision may be off by, where it is all that there is
ROWS = 1024  # of the output layer whose logits are compared at a time
LAST = "last"
FFN_INPUT = "ffn-input"
# end of a feed-forward layer's name
FFN = re.compile(r"(mlp|ffn|feed_forward|moe|fc1|dense_h_to_4h)$")


@dataclass(frozen=True, slots=True)
class FoundHead:
    """Softmax layer of a model, by the names of its parts, with scale and cap of its logits."""

    module: nn.Module  # that multiplies the hidden states
    weight: str  # name of the parameter (V, D)
    bias: str | None  # name of the parameter (V,)
    scale: float = 1.0  # that the logits are multiplied by
    cap: float | None = None  # of the soft cap after that, cap tanh(logits / cap)

    def of(self, parameters: Mapping[str, Tensor]) -> OutputHead:
        """Return the head of these parameters, with the scale folded in; in float32 if they have
        half precision.
        """
        weight = parameters[self.weight]
        bias = None
        if self.bias is not None:
            bias = self._scaled(parameters[self.bias])
        return OutputHead(self._scaled(weight), bias, self.cap)

    def _scaled(self, tensor: Tensor) -> Tensor:
        if tensor.dtype.itemsize < 4:
            return tensor.float().mul_(self.scale)  # a copy already
        return tensor if self.scale == 1 else tensor * self.scale


@dataclass(frozen=True, slots=True)
class Key:
    """Layer whose states a memory keeps."""

    name: str  # last, ffn-input or a number, as given
    module: nn.Module | None = None  # None for the states that enter the output layer
    entering: bool = False  # those that enter the module, not those that leave it

    def states(self) -> AbstractContextManager[list[Tensor]]:
        """Record the states (B, T, D_key) of each forward pass; empty for those that enter the
        output layer.
        """
        if self.module is None:
            return nullcontext([])
        return states_of(self.module, entering=self.entering)


def find_key(model: Any, name: str) -> Key:
    """Find the layer named ``last``, ``ffn-input``, or by number: from 0, or negative from the
    end.
    """
    if name == LAST:
        return Key(name)
    if name == FFN_INPUT:
        layers = [module for path, module in model.named_modules() if FFN.search(path)]
        if not layers:
            raise UserError(
                f"{type(model).__name__} has no feed-forward layer by a known name; name a layer "
                "by number"
            )
        return Key(name, layers[-1], entering=True)
    layers = layers_of(model)
    if not layers:
        raise UserError(
            f"{type(model).__name__} has no list of layers, so key {name!r} must be last or "
            "ffn-input"
        )
    if not re.fullmatch(r"-?\d+", name) or not -len(layers) <= int(name) < len(layers):
        raise UserError(
            f"key {name!r} must be last, ffn-input or a layer from 0 to {len(layers) - 1}"
        )
    return Key(name, layers[int(name)])


def layers_of(model: Any) -> list[nn.Module]:
    """Return the layers of a model: its longest list of modules, empty if it has no such list."""
    return max(
        (list(module) for module in model.modules() if isinstance(module, nn.ModuleList)),
        key=len,
        default=[],
    )


@contextmanager
def states_of(
    module: nn.Module, *, entering: bool = True, last_only: bool = False
) -> Iterator[list[Tensor]]:
    """Record the hidden states (B, T, D) that enter or leave a layer in this thread; other threads
    are not affected.

    ``last_only`` passes only the last state of a sequence to an output layer whose logits are not
    needed.
    """
    noted: list[Tensor] = []
    thread = get_ident()

    # A pass of another thread gives no options where it comes upon a hook that is just put in or
    # taken out.
    def before(
        _: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any] | None = None
    ) -> tuple[Any, Any] | None:
        if get_ident() != thread:
            return None
        states = inputs[0] if inputs else (options or {})["hidden_states"]
        noted.append(states)
        if not last_only:
            return None
        return (states[..., -1:, :], *inputs[1:]), options

    def after(_: nn.Module, inputs: tuple[Any, ...], out: Any) -> None:
        if get_ident() == thread:
            noted.append(out if isinstance(out, Tensor) else out[0])

    if entering:
        handle = module.register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = module.register_forward_hook(after)
    try:
        yield noted
    finally:
        handle.remove()


@torch.no_grad()
def find_head(model: Any, ids: Tensor, exact: bool) -> FoundHead:
    """Find the softmax layer of a model whose logits are that layer's, scaled by a constant or
    softly capped.

    They are compared on a few tokens (1, T), in float32 if ``exact``, whatever the type of the
    weights.
    """
    kind = type(model).__name__
    with probing(kind):
        module = model.get_output_embeddings()
    if module is None:
        raise UserError(f"{kind} has no output layer that gives each token a logit; {READS}")
    if hasattr(module, "base_layer"):
        raise UserError(
            f"an adapter changes the output layer of {kind}; merge it, with model = "
            "model.merge_and_unload(), or load "
            "the folder of the adapter"
        )
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    weight = getattr(module, "weight", None)
    if (
        weight is None
        or id(weight) not in names
        or weight.ndim != 2
        or not weight.is_floating_point()
    ):
        raise UserError(
            f"{kind} has no output layer with a plain weight matrix; load it unquantised, or leave "
            "its output layer out of the quantisation"
        )
    bias = getattr(module, "bias", None)
    if bias is not None and id(bias) not in names:
        raise UserError(f"the bias of {kind}'s output layer is not one of its parameters")
    with states_of(module) as states, arithmetic(exact):
        logits = logits_of(model, ids)[0].double()  # (T, V)
    if exact and any(parameter.dtype == torch.float16 for parameter in model.parameters()):
        logits_of(model, ids)  # it will be read in float16, which overflows where float32 does not
    if len(states) != 1 or states[0].shape != (*ids.shape, weight.shape[1]):
        raise UserError(f"{kind} does not compute its logits with its output layer")
    rounding = 0.0 if exact else ROUNDING * torch.finfo(weight.dtype).eps
    hidden = states[0][0].double().to(weight.device)  # (T, D)
    # (T, V)
    product = torch.cat([hidden @ rows.double().t() for rows in torch.split(weight, ROWS)], -1)
    plain = FoundHead(module, names[id(weight)], None)
    if bias is not None:
        plain = replace(plain, bias=names[id(bias)])
        product = product + bias.double()
    caps = []
    for name in CAPS:
        cap = getattr(model.config.get_text_config(), name, None)
        if cap:
            caps.append(float(cap))
    return _fitted(plain, product, logits.to(product.device), caps, rounding, kind)


def logits_of(model: Any, ids: Tensor) -> Tensor:
    """Return logits (1, T, V) of a model after tokens (1, T); refuse them unless each token has a
    finite, nonzero row.

    States that overflow give all zeros.
    """
    kind = type(model).__name__
    with probing(kind):
        logits = getattr(model(ids), "logits", None)
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != ids.shape:
        if isinstance(logits, Tensor):
            given = f"logits of shape {tuple(logits.shape)}"
        else:
            given = "no logits"
        raise UserError(
            f"{kind} gives {given} for a text of {ids.shape[1]} tokens; {READS} that give a row a "
            "token"
        )
    finite = bool(logits.isfinite().all())
    if finite and bool(logits.any()):
        return logits
    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    what = "logits" if all(bool(weight.isfinite().all()) for weight in weights) else "weights"
    if any(weight.dtype == torch.float16 for weight in weights):
        dtype = torch.float16
    else:
        dtype = weights[0].dtype
    remedy = "load it with dtype=float32" if dtype == torch.float16 else "download the model again"
    fault = "all zero" if finite else "not finite"
    raise UserError(
        f"the {what} of {kind} are {fault} in {str(dtype).removeprefix('torch.')}; {remedy}"
    )


def _fitted(
    plain: FoundHead, product: Tensor, logits: Tensor, caps: list[float], rounding: float, kind: str
) -> FoundHead:
    """Return the head with scale and cap that turn the layer's product (T, V) into the model's
    logits (T, V), float64.

    Rounding may change logits by a share of the largest one.
    """
    tolerance = max(EXACT, rounding)
    size = float(logits.abs().max())
    for cap in (*caps, None):
        # The logits as they stood before a cap, where these are clear.
        clear = torch.ones_like(logits)
        straight = logits
        if cap is not None:
            clear = (logits.abs() < CLEAR * cap).double()
            straight = cap * (clear * logits / cap).atanh()
        # least squares
        scale = float((clear * straight * product).sum() / (clear * product.square()).sum())
        if abs(scale - 1) < tolerance:
            scale = 1.0
        again = scale * product
        if cap is not None:
            again = cap * (again / cap).tanh()
        if scale > 0 and float((again - logits).abs().max()) <= tolerance * size:
            return replace(plain, scale=scale, cap=cap)
    gap = float((product - logits).abs().max())
    raise UserError(
        f"the logits of {kind} are not its output layer's, scaled or softly capped (they differ by "
        f"{gap:.3g}); "
        "hebblm cannot adapt this model"
    )
