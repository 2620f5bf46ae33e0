"""The tensors that a model carries from token to token, whatever object of ``transformers`` holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

ARGUMENTS = ("cache", "past_key_values", "cache_params", "state")
"""Names of what forward passes carry, in and out; ``cache`` since transformers 5.24."""


def tensors_of(holder: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in a cache, each under a name that says where it is; the order is always the same."""
    for key, value in _items(holder):
        name = f"{path} {key}".strip()
        if isinstance(value, Tensor):
            yield name, value
        elif _holds(value):
            yield from tensors_of(value, name)


def replace_tensors(holder: Any, change: Callable[[str, Tensor], Tensor], path: str = "") -> Any:
    """Put other tensors in place of those in a cache, and return it.

    Args:
        holder: the cache; lists, dictionaries and objects in it are changed in place, tuples are made anew.
        change: from a name of :func:`tensors_of` and the tensor there to the other one.
        path: name of the holder itself.
    """
    changed = {}
    for key, value in _items(holder):
        name = f"{path} {key}".strip()
        if isinstance(value, Tensor):
            changed[key] = change(name, value)
        elif _holds(value):
            changed[key] = replace_tensors(value, change, name)
    if isinstance(holder, tuple):
        return tuple(changed.get(index, value) for index, value in enumerate(holder))
    for key, value in changed.items():
        if isinstance(holder, (list, dict)):
            holder[key] = value
        else:
            setattr(holder, key, value)
    return holder


def _items(holder: Any) -> list[tuple[Any, Any]]:
    if isinstance(holder, dict):
        return list(holder.items())
    if isinstance(holder, (list, tuple)):
        return list(enumerate(holder))
    return list(vars(holder).items())


def _holds(value: Any) -> bool:
    """Say whether a value may hold tensors: a container, or an object of ``transformers``."""
    return isinstance(value, (list, tuple, dict)) or type(value).__module__.startswith("transformers.")
