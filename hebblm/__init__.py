"""hebblm: adapt a trained language model to new words and new domains while it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.lazy import lazily
from hebblm.threads import wait_briefly

if TYPE_CHECKING:
    from hebblm.types import Adapter, Memory, Neighbors, OutputHead

wait_briefly()  # every command passes here, and nothing before it loads torch

__version__ = "0.1.0"

__all__ = ["Adapter", "Memory", "Neighbors", "OutputHead", "__version__"]

__getattr__ = lazily(__name__, "types")
