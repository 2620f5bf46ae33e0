"""Fast forms of what is computed for each row of logits, over tensors on the CPU.

Each has a plain form in :mod:`hebblm.adapt`, which says what it computes and is used everywhere
else: on a GPU, in float64, without numba.
"""

from __future__ import annotations

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
