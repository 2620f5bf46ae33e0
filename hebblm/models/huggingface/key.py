"""Choice of the layer whose states a memory keeps: the output layer's input, or another's."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hebblm.errors import UserError
from hebblm.models.huggingface.head import states_of

LAST = "last"
FFN_INPUT = "ffn-input"
FFN = re.compile(r"(mlp|ffn|feed_forward|moe|fc1|dense_h_to_4h)$")
"""Pattern of the end of a feed-forward layer's name."""


@dataclass(frozen=True, slots=True)
class Key:
    """Layer whose states a memory keeps.

    Args:
        name: ``last``, ``ffn-input`` or a number, as it was asked for.
        module: whose states they are; None for those that enter the output layer.
        entering: those that enter the module, not those that leave it.
    """

    name: str
    module: nn.Module | None = None
    entering: bool = False

    @property
    def last(self) -> bool:
        """Whether they are those that enter the output layer."""
        return self.module is None

    def states(self) -> AbstractContextManager[list[Tensor]]:
        """Note the states (B, T, D_key) of each forward pass; none for those that enter the output layer."""
        return nullcontext([]) if self.module is None else states_of(self.module, entering=self.entering)


def find_key(model: Any, name: str) -> Key:
    """Return the place in a model whose states a memory keeps.

    Args:
        model: of ``transformers``.
        name: ``last``, ``ffn-input`` or the number of a layer, whose output it is, from 0 or, below it, from the end.

    Raises:
        UserError: there is no such layer.
    """
    if name == LAST:
        return Key(name)
    if name == FFN_INPUT:
        layers = [module for path, module in model.named_modules() if FFN.search(path)]
        if not layers:
            raise UserError(f"{type(model).__name__} has no feed-forward layer by a known name; name a layer by number")
        return Key(name, layers[-1], entering=True)
    layers = max((list(module) for module in model.modules() if isinstance(module, nn.ModuleList)), key=len, default=[])
    if not layers:
        raise UserError(f"{type(model).__name__} has no list of layers, so key {name!r} must be last or ffn-input")
    if not re.fullmatch(r"-?\d+", name) or not -len(layers) <= int(name) < len(layers):
        raise UserError(f"key {name!r} must be last, ffn-input or a layer from 0 to {len(layers) - 1}")
    return Key(name, layers[int(name)])
