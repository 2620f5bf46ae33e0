"""The speed of training by the presets, against a plain model of the same sizes."""

from __future__ import annotations

import itertools
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from awd_lstm import Trainer
from awd_lstm.streams import Ids, ParallelStreams
from hebblm.models.presets import get_preset
from recipes.bench.configs import TrainBenchConfig
from recipes.bench.machine import peak_resident_bytes, resident_bytes
from recipes.bench.plain_lstm import PlainTraining
from recipes.bench.record import Case, Rounds, Row
from recipes.bench.timing import Turn, stopwatch

TEXTS = {10_000: ("ptb", 929_589), 33_278: ("wt2", 2_088_628)}
"""By vocabulary, the corpus whose recipe is taken, and its tokens; others take Penn Treebank's."""


def cases(config: TrainBenchConfig, rounds: Rounds) -> list[Case]:
    """Return a case a preset and vocabulary."""
    return [
        partial(_training, config, name, classes, rounds)
        for name in config.preset
        for classes in config.vocabulary
    ]


def _training(config: TrainBenchConfig, name: str, classes: int, rounds: Rounds) -> Row:
    """Take optimiser steps by the plain model and by the preset in turn."""
    corpus, tokens = TEXTS.get(classes, ("ptb", 0))
    preset = get_preset(name, corpus, classes, config.seed)
    training, sizes, device = preset.training, preset.model, rounds.device
    # Segments differ in length; twice their mean leaves room for the longest draws.
    longest = 2 * training.bptt * config.segments * (config.repeats + 1)
    ids = zipf_ids(longest * training.batch_size, sizes.vocabulary_size, config.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            sizes, training, ids, ids, Path(folder), dictionary_sha256="", device=device
        )
        torch.manual_seed(config.seed)
        plain = PlainTraining(
            sizes, optimizer=training.optimizer, lr=training.lr, clip=training.clip, device=device
        )
        resident: list[int | None] = []
        streams, places = (
            ParallelStreams(ids, training.batch_size),
            itertools.count(0, training.bptt),
        )

        def steps() -> None:
            for place in itertools.islice(places, config.segments):
                plain.step(*streams.segment(place, training.bptt, device))

        count = config.segments * training.bptt * training.batch_size
        timings = rounds.times(
            {
                "plain": stopwatch(steps, count, device),
                "preset": _preset_turn(trainer, config.segments, resident),
            }
        )
    speed = 1000 / timings["preset"].milliseconds().median
    values = {"tokens_per_second": speed, "peak_bytes": float(peak_resident_bytes())}
    if tokens:
        values["recipe_hours"] = training.epochs * tokens / speed / 3600
    # The first rounds allocate what lasts; only what comes after is growth.
    middle = len(resident) // 2
    first, last = resident[middle], resident[-1]
    if first is not None and last is not None:
        segments = config.segments * (len(resident) - 1 - middle)
        values["growth_bytes_per_segment"] = (last - first) / segments
    return Row(
        "train",
        {
            "preset": name,
            "vocabulary": sizes.vocabulary_size,
            "architecture": sizes.to_dict(),
            "batch": training.batch_size,
            "bptt": training.bptt,
            "softmax": training.softmax,
            "precision": training.precision,
            "recurrent": training.recurrent,
            "epochs": training.epochs,
            "reference": "torch.nn.LSTM of the same sizes, float32, no dropout, all logits",
        },
        timings,
        {"preset": "plain"},
        values,
    )


def zipf_ids(count: int, classes: int, seed: int) -> Ids:
    """Return ids (T,) int64 in which class i occurs in proportion to 1 / (i + 3)."""
    shares = 1 / (np.arange(classes) + 3.0)
    reached = np.cumsum(shares / shares.sum())
    drawn = np.searchsorted(reached, np.random.default_rng(seed).random(count))
    return np.minimum(drawn, classes - 1).astype(np.int64)


def _preset_turn(trainer: Trainer, segments: int, resident: list[int | None]) -> Turn:
    """Return a turn of the preset, whose segments differ in length; the resident memory after each
    turn is noted.
    """

    def turn() -> tuple[float, int]:
        started = time.perf_counter()
        tokens = sum(trainer.step()[1] for _ in range(segments))
        seconds = time.perf_counter() - started
        resident.append(resident_bytes())
        return seconds, tokens

    return turn
