"""AWD-LSTM (Merity, Keskar and Socher 2017): model, regularisers, training and checkpoints; stands alone."""

from awd_lstm.checkpoint import CheckpointError, load_checkpoint, read_config, save_checkpoint
from awd_lstm.config import ARCHITECTURES, AWDLSTMConfig
from awd_lstm.estimate import training_seconds
from awd_lstm.model import AWDLSTM, Output, State, detach, grow_vocabulary, parameter_count
from awd_lstm.schedule import TrainingConfig
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
    "detach",
    "grow_vocabulary",
    "load_checkpoint",
    "parameter_count",
    "read_config",
    "save_checkpoint",
    "training_seconds",
    "validation_loss",
]
