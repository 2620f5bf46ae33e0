"""What the kernels are compiled for."""

from __future__ import annotations

from typing import Any

from llvmlite import binding
from numba.core import config


def has(feature: str) -> bool:
    """Return whether kernels may use an instruction set, by its name in LLVM.

    It is one of the processor's, unless ``$NUMBA_CPU_FEATURES`` names others, which numba then
    compiles for.
    """
    numba: Any = config  # sets its names while it is imported
    named: str | None = numba.CPU_FEATURES
    if named is not None:
        return f"+{feature}" in named.split(",")
    return bool(binding.get_host_cpu_features().get(feature, False))
