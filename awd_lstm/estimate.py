"""Estimate of a training run's time on this machine, measured before it starts."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from awd_lstm.config import AWDLSTMConfig
from awd_lstm.schedule import TrainingConfig
from awd_lstm.streams import Ids, TrainingRanks
from awd_lstm.training import Trainer

WARM_UP = 2  # segments
TIMED = 5  # segments
PATIENCE = 5.0  # seconds of measuring after which no further segment is timed


def training_seconds(
    model_config: AWDLSTMConfig,
    config: TrainingConfig,
    train: Ids,
    *,
    device: torch.device | None = None,
    ranks: TrainingRanks | None = None,
) -> float:
    """Estimate the seconds that all epochs would take, without validation, from a few segments of a
    throwaway run.

    ``epochs * T * (share_sampled / speed_sampled + share_full / speed_full)``, speeds in tokens a
    second.

    Args:
        model_config: shape of the model.
        config: options of the training.
        train: (T,) token ids; only the beginning is read.
        device: device of the training.
        ranks: the processes that would train together; they all measure at once.

    Returns:
        Seconds, the same in every process.

    Raises:
        ValueError: the text is too short for the batch.
    """
    full = replace(config, softmax="full")
    if config.softmax == "full":
        seconds_per_token = _seconds_per_token(model_config, full, train, device, ranks)
    else:
        sampled = replace(config, full_from=1.0)
        seconds_per_token = config.full_from * _seconds_per_token(
            model_config, sampled, train, device, ranks
        )
        seconds_per_token += (1 - config.full_from) * _seconds_per_token(
            model_config, full, train, device, ranks
        )
    return config.epochs * len(train) * seconds_per_token


def _seconds_per_token(
    model_config: AWDLSTMConfig,
    config: TrainingConfig,
    train: Ids,
    device: torch.device | None,
    ranks: TrainingRanks | None,
) -> float:
    """Time a few segments of a run; the first ones only warm up, unless the text has no more.

    Segments have one length here: products of a new shape are compiled when they are first met,
    which a long run does in its first minute and a short measurement would do all the time.
    """
    beginning = train[: 2 * config.bptt * config.batch_size * (WARM_UP + TIMED)]
    with TemporaryDirectory() as folder:
        trainer = Trainer(
            model_config,
            config,
            beginning,
            beginning[: 4 * config.batch_size],
            Path(folder),
            dictionary_sha256="",
            device=device,
            ranks=ranks,
        )
        seconds, tokens = 0.0, 0
        for segment in range(WARM_UP + TIMED):
            if trainer.record.position >= len(trainer.streams) or seconds > PATIENCE:
                break
            if segment == WARM_UP:
                seconds, tokens = 0.0, 0
            trainer.generator.manual_seed(config.seed)
            began = time.monotonic()
            tokens += trainer.step()[1]
            spent = trainer.ranks.sum(time.monotonic() - began, trainer.device)
            seconds += spent / trainer.ranks.count
        return seconds / tokens
