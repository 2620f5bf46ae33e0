"""How a few tokens show what a model computes: in float32, although its weights may be of half precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from hebblm.progress import say

HALF = (torch.float16, torch.bfloat16)
LOOSE = 64  # units of rounding, of the largest state, that two ways of reading may differ by
NOISE = 1 / 16  # of a state's norm, where half precision is all that there is


class Float32(TorchFunctionMode):
    """Arithmetic in float32: each function gets copies of those of its tensors that are of half precision.

    Weights are copied one at a time, so that a model needs little more memory than it has.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute one function."""
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name == "embedding":  # a few rows of a large matrix
            return _wide(func(*args, **kwargs))
        if name in ("__get__", "__set__", "__setitem__") or (name.endswith("_") and not name.endswith("__")):
            return func(*args, **kwargs)  # an attribute, or a change, which a copy would take in place of what is meant
        return func(*tree_map(_wide, args), **tree_map(_wide, kwargs))


def _wide(value: Any) -> Any:
    """Return a tensor or a type of half precision as float32, anything else as it is."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in HALF else value
    return torch.float32 if isinstance(value, torch.dtype) and value in HALF else value


@torch.no_grad()
def is_exact(model: Any, ids: Tensor) -> bool:
    """Say whether a model computes in float32, or can: in half precision little can be told from rounding.

    Some have functions for half precision alone, as flash attention and some weights of 8 bits.

    Args:
        model: of ``transformers``.
        ids: (T,) a few tokens.
    """
    if not any(weight.dtype in HALF for weight in model.parameters()):
        return True
    try:
        with Float32():
            model(ids[None])
    except torch.OutOfMemoryError:  # says nothing about the model's functions
        say("no room to compute this model in float32 once: whether it can be read is told to half precision alone")
        return False
    except Exception:  # of any kind; what has nothing to do with precision comes again
        return False
    return True


def arithmetic(exact: bool) -> AbstractContextManager[Any]:
    """Return the arithmetic in which a model shows how it is read: float32 where it can, else its own."""
    return Float32() if exact else nullcontext()


def agree(found: Tensor, expected: Tensor, exact: bool) -> bool:
    """Say whether states (..., D) are the same but for rounding.

    Args:
        found: read in one way.
        expected: read in another.
        exact: whether they were computed in float32.
    """
    gap = found - expected
    if not exact:
        return bool((gap.norm(dim=-1) <= NOISE * expected.norm(dim=-1)).all())
    return float(gap.abs().max()) <= LOOSE * torch.finfo(expected.dtype).eps * max(1.0, float(expected.abs().max()))
