"""Tests with a few tokens that show a model's computation, and refuse one that is not a causal
language model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from hebblm.errors import UserError
from hebblm.runtime.progress import log

READS = "hebblm reads causal language models"
TASKS = {  # by the end of the class's name
    "ForSequenceClassification": "classifies texts or rates them",
    "ForTokenClassification": "classifies tokens",
    "ForQuestionAnswering": "marks answers in a text",
    "ForMultipleChoice": "chooses between texts",
    "ForMaskedLM": "fills in masked tokens",
}
HALF = (torch.float16, torch.bfloat16)
FLOATING = (*HALF, torch.float32)
# units of float32's rounding, of the largest state, that two ways of reading may differ by
LOOSE = 64
NOISE = 1 / 16  # of a state's norm, where half precision is all that there is


def check_kind(kind: str, config: Any, where: str = "") -> None:
    """Refuse a model that does not predict the next token of a text, by its class and
    configuration.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise UserError(f"{where}{kind} is an encoder-decoder; {READS}")
    for ending, task in TASKS.items():
        if kind.endswith(ending):
            raise UserError(f"{where}{kind} {task}; {READS}")


@contextmanager
def probing(kind: str) -> Iterator[None]:
    """Turn a model's error while its first tokens are read into one line that names its class."""
    try:
        yield
    except UserError:
        raise
    except (
        Exception
    ) as error:  # of any kind: architectures check their configuration as they compute
        raise UserError(
            f"{kind} cannot read a text that is given as token ids alone ({line(error)}); {READS} "
            "that can"
        ) from error


def line(error: Exception) -> str:
    """Return the type of an error and the beginning of its text."""
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    return ": ".join([type(error).__name__, *(text[:200] for text in lines[:1])])


class Wide(TorchFunctionMode):
    """Arithmetic in float32 or float64: each function gets copies of its tensors of smaller types.

    Weights are copied one at a time, so that a model needs little more memory than it has.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype
        self._smaller = tuple(kind for kind in FLOATING if kind.itemsize < dtype.itemsize)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if name == "embedding":  # a few rows of a large matrix
            return self._wide(func(*args, **kwargs))
        if name in ("__get__", "__set__", "__setitem__") or (
            name.endswith("_") and not name.endswith("__")
        ):
            # an attribute, or a change, which a copy would take in place of what is meant
            return func(*args, **kwargs)
        return func(*tree_map(self._wide, args), **tree_map(self._wide, kwargs))

    def _wide(self, value: Any) -> Any:
        """Return a tensor or a type with the arithmetic's number of bits, anything else as it
        is.
        """
        if isinstance(value, Tensor):
            return value.to(self._dtype) if value.dtype in self._smaller else value
        return self._dtype if isinstance(value, torch.dtype) and value in self._smaller else value


@torch.no_grad()
def is_exact(model: Any, ids: Tensor) -> bool:
    """Return whether a model reads tokens (T,) in float32, or can: in half precision rounding hides
    most differences.

    Some functions exist only in half precision, such as flash attention and some 8-bit weights.
    """
    if not any(weight.dtype in HALF for weight in model.parameters()):
        return True
    try:
        with Wide(torch.float32):
            model(ids[None])
    except torch.OutOfMemoryError:  # says nothing about the model's functions
        log(
            "not enough memory to check this model in float32; it is checked in half precision only"
        )
        return False
    except Exception:  # of any kind; what has nothing to do with precision comes again
        return False
    return True


def arithmetic(exact: bool) -> AbstractContextManager[Any]:
    """Return the arithmetic for a model's tests: float32 if possible (see :func:`is_exact`), else
    its own.
    """
    return Wide(torch.float32) if exact else nullcontext()


def holds(test: Callable[[], bool], exact: bool) -> bool:
    """Return whether two ways of reading agree in a test; where they do not in float32, float64
    tells.

    Products of other shapes are rounded otherwise, on some processors by more than :func:`agree`
    allows.
    """
    with arithmetic(exact):
        if test():
            return True
    if not exact:
        return False
    try:
        with Wide(torch.float64):
            return test()
    except (
        Exception
    ):  # of any kind: this device or a function of the model has no float64, so float32 counts
        return False


def agree(states: Tensor, expected: Tensor, exact: bool) -> bool:
    """Return whether states (..., D) that were read in two ways, in half precision or not, are
    equal up to rounding.
    """
    gap = states - expected
    if not exact:
        return bool((gap.norm(dim=-1) <= NOISE * expected.norm(dim=-1)).all())
    return float(gap.abs().max()) <= LOOSE * torch.finfo(torch.float32).eps * max(
        1.0, float(expected.abs().max())
    )
