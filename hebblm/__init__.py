"""hebblm: adapt a trained language model to new words and new domains while it reads."""

from hebblm.threads import wait_briefly

wait_briefly()  # every command passes here, and nothing before it loads torch

from hebblm.types import Adapter, Memory, Neighbors, OutputHead  # noqa: E402

__version__ = "0.2.0"

__all__ = ["Adapter", "Memory", "Neighbors", "OutputHead", "__version__"]
