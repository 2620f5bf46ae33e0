"""A training run that is killed again and again ends bit for bit like an undisturbed one.

Run as a script, this file is the process that gets killed: ``FOLDER OPTIMIZER MOMENT NUMBER``.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import awd_lstm
from awd_lstm import AWDLSTMConfig, Event, Trainer, TrainingConfig, load_checkpoint, read_config, state, training
from awd_lstm.state import STATE, load_state

MODEL = AWDLSTMConfig(40, 6, 8, 2, dropout=0.2, dropouth=0.1, dropouti=0.2, dropoute=0.1, wdrop=0.3)
CONFIGS = {
    "sgd": TrainingConfig(batch_size=4, epochs=8, lr=5.0, bptt=10, nonmono=1),
    "adamw": TrainingConfig(
        batch_size=4, epochs=7, optimizer="adamw", lr=0.01, bptt=10, softmax="sampled", samples=20,
        full_from=0.5, precision="bfloat16",
    ),
}  # fmt: skip
SAVE_EVERY = 7  # segments, so that a kill loses learnt ones that have to be learnt again


def ids(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 40, count, dtype=np.uint8)


def trainer(folder: Path, optimizer: str) -> Trainer:
    return Trainer(MODEL, CONFIGS[optimizer], ids(2000, 0), ids(300, 1), folder, dictionary_sha256="d" * 64)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, optimizer: str, moment: str, number: int) -> None:
    """Train until this process kills itself at the given moment."""
    torch.set_num_threads(1)
    run = trainer(folder, optimizer)
    replace, save_file = os.replace, state.save_file

    def half_a_file(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        save_file(tensors, path, metadata)
        if run.record.segments >= number:
            os.truncate(path, path.stat().st_size // 2)
            die()

    def dying_replace(source: Path, target: Path) -> None:
        if Path(target).name == "config.json" and run.record.epoch >= number:
            die()
        replace(source, target)

    def report(event: Event) -> None:
        if moment == "segment" and run.record.segments >= number:
            die()

    # A clock of one tick a segment makes the moments of saving, and with them this test, repeatable.
    clock = itertools.count()
    training.time = SimpleNamespace(monotonic=lambda: float(next(clock)))  # type: ignore[assignment]
    if moment == "state":
        state.save_file = half_a_file
    if moment == "config":
        os.replace = dying_replace
    run.run(report, SAVE_EVERY)


def finish(folder: Path, optimizer: str) -> None:
    """Train to the end in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer(folder, optimizer).run()
    finally:
        torch.set_num_threads(threads)


def process(folder: Path, optimizer: str, moment: str, number: int) -> int:
    """Train in a process of its own that shall be killed; return its exit status, negative for a signal."""
    environment = {**os.environ, "PYTHONPATH": str(Path(awd_lstm.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(folder), optimizer, moment, str(number)]
    return subprocess.run(command, env=environment, check=False, timeout=120).returncode


def assert_same_run(folder: Path, undisturbed: Path) -> None:
    """Compare states, records and checkpoints of two runs bit for bit; only the clock may differ."""
    tensors, record = load_state(folder / STATE)
    expected_tensors, expected = load_state(undisturbed / STATE)
    assert len(expected["curve"]) >= 3
    assert record["curve"] == expected["curve"]
    assert record["valid"] == expected["valid"]
    assert {**record, "seconds": 0} == {**expected, "seconds": 0}
    assert tensors.keys() == expected_tensors.keys()
    for name, value in expected_tensors.items():
        assert torch.equal(tensors[name], value), name
    best, expected_best = (load_checkpoint(place).state_dict() for place in (folder, undisturbed))
    for name, value in expected_best.items():
        assert torch.equal(best[name], value), name
    stories = [read_config(place)["training"] for place in (folder, undisturbed)]
    assert {**stories[0], "seconds": 0} == {**stories[1], "seconds": 0}


def saved_record(folder: Path) -> dict[str, Any]:
    return load_state(folder / STATE)[1]


@pytest.mark.slow
def test_descent_that_turns_into_averaging_survives_every_kill(tmp_path: Path) -> None:
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    finish(undisturbed, "sgd")
    final = saved_record(undisturbed)
    assert final["averaging"]
    assert final["epoch"] == 8

    # Before averaging, in mid-epoch.
    assert process(killed, "sgd", "segment", 75) == -signal.SIGKILL
    record = saved_record(killed)
    assert not record["averaging"]
    assert record["position"] > 0
    assert record["segments"] < 75

    # In the middle of writing a state: the one before is whole.
    assert process(killed, "sgd", "state", 120) == -signal.SIGKILL
    assert 100 < saved_record(killed)["segments"] < 120

    # While averaging, in mid-epoch.
    last_epoch = final["segments"] - 25
    assert process(killed, "sgd", "segment", last_epoch) == -signal.SIGKILL
    record = saved_record(killed)
    assert record["averaging"]
    assert record["position"] > 0

    finish(killed, "sgd")
    assert_same_run(killed, undisturbed)


@pytest.mark.slow
def test_adamw_with_a_sampled_softmax_survives_every_kill(tmp_path: Path) -> None:
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    finish(undisturbed, "adamw")

    # Between the weights of a checkpoint and its description: what is there loads.
    assert process(killed, "adamw", "config", 0) == -signal.SIGKILL
    assert load_checkpoint(killed, dictionary_sha256="d" * 64).config == MODEL

    assert process(killed, "adamw", "segment", 130) == -signal.SIGKILL
    assert 0 < saved_record(killed)["segments"] < 130

    finish(killed, "adamw")
    assert_same_run(killed, undisturbed)


if __name__ == "__main__":
    place, kind, when, count = sys.argv[1:]
    train(Path(place), kind, when, int(count))
