"""hebblm: adapt a trained language model to new words and new domains while it reads."""

from hebblm.types import Adapter, Memory, Neighbors, OutputHead

__version__ = "0.1.0"

__all__ = ["Adapter", "Memory", "Neighbors", "OutputHead", "__version__"]
