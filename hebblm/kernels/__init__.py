"""Fast forms of what is computed for each row of logits, over tensors on the CPU.

Each has a plain form in :mod:`hebblm.adapt`, which says what it computes and is used everywhere
else: on a GPU, in float64, without numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.runtime.lazy import lazily

if TYPE_CHECKING:
    from hebblm.kernels.forms import FORMS, VARIABLE, description, form, is_compiled, tell_with
    from hebblm.kernels.tensors import NewtonProblem, growths, newton, row_statistics, takes

__all__ = [
    "FORMS",
    "VARIABLE",
    "NewtonProblem",
    "description",
    "form",
    "growths",
    "is_compiled",
    "newton",
    "row_statistics",
    "takes",
    "tell_with",
]

if not TYPE_CHECKING:  # the type checker still reports a name that does not exist
    __getattr__ = lazily(__name__, "forms", "tensors")
