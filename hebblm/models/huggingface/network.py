"""A causal language model of ``transformers`` as a network: tokens in, hidden states and a carried
state out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.func import functional_call

from hebblm.errors import UserError
from hebblm.models.huggingface.layers import FoundHead, Key, states_of
from hebblm.types import OutputHead

Steps = Literal["many", "one", "none"]
CARRIED = ("cache", "past_key_values", "cache_params", "state")
"""Names of the state that forward passes carry, in and out; ``cache`` since transformers 5.24."""
_LOCKS: WeakKeyDictionary[Any, AbstractContextManager[Any]] = WeakKeyDictionary()
"""Locks by module, not by reader: a module may have several readers, and copies of readers cannot
hold a lock.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A causal language model and its way of reading; see
    :func:`hebblm.models.huggingface.open.open_causal`.
    """

    model: Any  # in evaluation mode while it is read
    found_head: FoundHead
    head: OutputHead  # the same as tensors
    parameters: Mapping[str, Tensor]  # all weights by name, without their gradients
    learns: tuple[str, ...]  # names of those that learn where a base moves
    context: int  # tokens of a window
    stride: int  # by which it moves on
    begin: int | None  # token that each window begins with, None if it begins with any
    # name of what the forward pass carries from token to token, None if nothing
    carries: str | None
    recurrent: bool  # whether that does not grow, so that no window is needed
    # how many tokens can be read after a carried state; with 0 the window is read again
    steps: Steps
    differentiable: bool  # whether gradients can be taken where something is carried
    probe_ids: Tensor  # (T,) a few tokens
    key: Key  # whose states memories keep
    key_width: int
    # ways of reading by name: whether they give the states of plain reading, as far as tried
    tried: dict[str, bool] = field(default_factory=dict, kw_only=True)

    @property
    def keyed(self) -> bool:
        return self.key.module is not None

    def head_with(self, learned: Mapping[str, Tensor]) -> OutputHead:
        """Return the softmax layer with weights in place of the model's, by name; without such
        weights, as trained.
        """
        if self.found_head.weight not in learned and self.found_head.bias not in learned:
            return self.head
        return self.found_head.of({**self.parameters, **learned})

    def with_bos(self, window: Tensor) -> Tensor:
        """Return the window (B, T) with its first token replaced by the tokenizer's token before
        texts, if any.
        """
        if self.begin is None:
            return window
        return torch.cat([window.new_full((len(window), 1), self.begin), window[:, 1:]], 1)

    def states(
        self,
        ids: Tensor,
        carried: object,
        learned: Mapping[str, Tensor],
        *,
        carry: bool = True,
        options: Mapping[str, object] | None = None,
    ) -> tuple[Tensor, object]:
        """Return hidden states (B, T, D) that enter the softmax layer, and the carried state after
        them.

        If memories keep another layer's states, these follow: (B, T, D + D_key).

        Args:
            ids: (B, T) tokens.
            carried: state after the tokens before them, None at the beginning.
            learned: weights in place of the model's, by name; they may have higher precision.
            carry: whether to carry a state on.
            options: further arguments of the model.
        """
        ids = ids.to(self.model.get_input_embeddings().weight.device)
        given = dict(options or {})
        if self.carries is not None:
            given |= {self.carries: carried, "use_cache": carry}
        with (
            turn(self.model),
            states_of(self.found_head.module, last_only=True) as entering,
            self.key.states() as keys,
        ):
            if learned:
                # Quantised weights are more than their numbers: they stay in their places.
                weights = {
                    name: weight
                    for name, weight in self.parameters.items()
                    if weight.is_floating_point()
                }
                weights |= {
                    name: weight.to(self.parameters[name].dtype) for name, weight in learned.items()
                }
                out = functional_call(self.model, weights, (ids,), given)
            else:
                out = self.model(ids, **given)
        head = self.head.weight
        if self.keyed and (not keys or keys[0].shape[:-1].numel() != ids.numel()):
            raise UserError(
                f"the layer of key {self.key.name!r} in {type(self.model).__name__} has no state "
                "for each token; name "
                "another"
            )
        parts = [
            states.reshape(*ids.shape, -1).to(head.device, head.dtype)  # some layers flatten them
            for states in (entering[0], *keys[:1])
        ]
        return torch.cat(parts, -1), getattr(out, self.carries or "", None)


@contextmanager
def turn(model: Any) -> Iterator[None]:
    """Lock a model for one reader, in evaluation mode; afterwards each module has its own mode
    again.
    """
    with _LOCKS.setdefault(model, RLock()):  # one step, between threads as well
        training = [module for module in model.modules() if module.training]
        try:
            for module in training:
                module.training = False
            yield
        finally:
            for module in training:
                module.training = True


def tensors_of(carried: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Return the tensors in a carried state of any type, each under a name; always in the same
    order.
    """
    for key, value in _items(carried):
        name = f"{path} {key}".strip()
        if isinstance(value, Tensor):
            yield name, value
        elif _may_hold(value):
            yield from tensors_of(value, name)


def replace_tensors(carried: Any, change: Callable[[str, Tensor], Tensor], path: str = "") -> Any:
    """Replace the tensors in a carried state, and return it.

    Args:
        carried: lists, dictionaries and objects in it are changed in place, tuples are replaced.
        change: returns a new tensor, given a name of :func:`tensors_of` and the tensor there.
        path: name of ``carried`` itself.
    """
    changed = {}
    for key, value in _items(carried):
        name = f"{path} {key}".strip()
        if isinstance(value, Tensor):
            changed[key] = change(name, value)
        elif _may_hold(value):
            changed[key] = replace_tensors(value, change, name)
    if isinstance(carried, tuple):
        return tuple(changed.get(index, value) for index, value in enumerate(carried))
    for key, value in changed.items():
        if isinstance(carried, (list, dict)):
            carried[key] = value
        else:
            setattr(carried, key, value)
    return carried


def _items(holder: Any) -> list[tuple[Any, Any]]:
    if isinstance(holder, (list, tuple)):
        return list(enumerate(holder))
    return list((holder if isinstance(holder, dict) else vars(holder)).items())


def _may_hold(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict)) or type(value).__module__.startswith(
        "transformers."
    )
