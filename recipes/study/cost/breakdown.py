"""Breakdown of a call's time by kind of operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from recipes.bench.timing import stopwatch

KINDS = {
    "matrix products": ("mm", "bmm", "addmm", "baddbmm", "mv", "dot"),
    "sorting and choosing": ("topk", "sort", "searchsorted"),
    "exponentials": ("exp", "log", "softmax", "logsumexp", "log_softmax", "logaddexp"),
    "moving rows": (
        *("index", "index_select", "index_put", "embedding", "gather", "scatter", "scatter_add", "scatter_reduce"),
        *("cat", "copy", "clone", "constant_pad_nd"),
    ),
}  # fmt: skip
ELEMENTS = "passes over elements"
BETWEEN = "between operations"


class OperationTimes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Times of every operation that runs within it.

    Args:
        device: whose queue is waited for before and after each.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds: dict[str, float] = dict.fromkeys((*KINDS, ELEMENTS), 0.0)
        self._cuda = device if device.type == "cuda" else None

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation and add its time to that of its kind."""
        self._wait()
        started = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        self._wait()
        self.seconds[kind_of(func.name())] += time.perf_counter() - started
        return result

    def _wait(self) -> None:
        if self._cuda is not None:
            torch.cuda.synchronize(self._cuda)


def breakdown(call: Callable[[], object], milliseconds: float, device: torch.device) -> dict[str, float]:
    """Return a cost by kind of operation: what each took in one call where every operation was timed.

    Args:
        call: it is run three times.
        milliseconds: its cost without a look inside, a token.
        device: where it computes.

    Returns:
        Milliseconds a token by kind. What is none of :data:`KINDS` is a pass over elements; what an undisturbed call
        takes beside its operations is a kind of its own.
    """
    call()
    whole, _ = stopwatch(call, 1, device)()
    with OperationTimes(device) as found:
        call()
    spent = found.seconds
    spent[BETWEEN] = max(0.0, whole - sum(spent.values()))
    total = sum(spent.values())
    return {kind: milliseconds * seconds / total for kind, seconds in spent.items()}


def kind_of(operation: str) -> str:
    """Return the kind of an operation, e.g. ``aten::scatter_add_`` or ``aten::sort.stable``."""
    name = operation.partition("::")[2].partition(".")[0].strip("_")
    return next((kind for kind, names in KINDS.items() if name in names), ELEMENTS)
