"""AWD-LSTM (Merity, Keskar and Socher 2017): model, regularisers, training and checkpoints; stands
alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from awd_lstm.checkpoint import load_checkpoint, save_checkpoint
    from awd_lstm.config import ARCHITECTURES, AWDLSTMConfig
    from awd_lstm.document import CheckpointError, read_config
    from awd_lstm.estimate import training_seconds
    from awd_lstm.model import AWDLSTM, Output, State, detach, grow_vocabulary, parameter_count
    from awd_lstm.schedule import TrainingConfig
    from awd_lstm.streams import TrainingRanks
    from awd_lstm.training import Event, Trainer, validation_loss

__all__ = [
    "ARCHITECTURES",
    "AWDLSTM",
    "AWDLSTMConfig",
    "CheckpointError",
    "Event",
    "Output",
    "State",
    "Trainer",
    "TrainingConfig",
    "TrainingRanks",
    "detach",
    "grow_vocabulary",
    "load_checkpoint",
    "parameter_count",
    "read_config",
    "save_checkpoint",
    "training_seconds",
    "validation_loss",
]

_MODULES = (
    "document",
    "config",
    "checkpoint",
    "estimate",
    "model",
    "streams",
    "schedule",
    "training",
)


def __getattr__(name: str) -> Any:
    """Import a name on first use (PEP 562): most of them load torch, which takes seconds."""
    if name in __all__:
        for module in _MODULES:
            value = vars(import_module(f"awd_lstm.{module}"))
            if name in value:
                return globals().setdefault(name, value[name])
    raise AttributeError(f"module 'awd_lstm' has no attribute {name!r}")
