"""A training that is killed again and again, or divided over processes, ends like an undisturbed
one of one process.

Run as a script, this file is one of the processes:
``FOLDER CONFIG MOMENT NUMBER`` alone, to be killed then, or ``FOLDER CONFIGS STORE RANK COUNT
NUMBER`` with others.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import awd_lstm
from awd_lstm import (
    AWDLSTMConfig,
    Event,
    Trainer,
    TrainingConfig,
    TrainingRanks,
    checkpoint,
    load_checkpoint,
    read_config,
    training,
)  # fmt: skip
from awd_lstm.checkpoint import STATE, load_state

from .conftest import one_thread

MODEL = AWDLSTMConfig(40, 6, 8, 2, dropout=0.2, dropouth=0.1, dropouti=0.2, dropoute=0.1, wdrop=0.3)
ADAMW: dict[str, Any] = {"optimizer": "adamw", "lr": 0.01, "bptt": 10}
SAMPLED = ADAMW | {"softmax": "sampled", "samples": 20, "full_from": 0.5}
CONFIGS = {
    "sgd": TrainingConfig(batch_size=4, epochs=8, lr=5.0, bptt=10, nonmono=1),
    "sampled": TrainingConfig(batch_size=4, epochs=7, precision="bfloat16", **SAMPLED),
    "divided sgd": TrainingConfig(batch_size=4, epochs=5, lr=2.0, bptt=10, nonmono=1),
    "divided sampled": TrainingConfig(batch_size=5, epochs=2, **SAMPLED),
    "divided bfloat16": TrainingConfig(
        batch_size=4, epochs=1, precision="bfloat16", recurrent="bfloat16", **ADAMW
    ),
}
SAVE_EVERY = 7  # segments, so that a kill loses learnt ones that have to be learnt again


def ids(count: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 40, count, dtype=np.uint8)


def trainer(folder: Path, name: str, ranks: TrainingRanks | None = None) -> Trainer:
    text = ids(1500 if name.startswith("divided") else 2000, 0)
    return Trainer(
        MODEL, CONFIGS[name], text, ids(300, 1), folder, dictionary_sha256="d" * 64, ranks=ranks
    )


def finish(folder: Path, name: str) -> Path:
    """Train to the end in this process."""
    with one_thread():
        trainer(folder, name).run()
    return folder


def record_of(folder: Path) -> dict[str, Any]:
    return load_state(folder / STATE)[1]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(
    folder: Path, name: str, moment: str, number: int, ranks: TrainingRanks | None = None
) -> None:
    """Train to the end, or until this process kills itself at the given moment."""
    run = trainer(folder, name, ranks)
    replace, save_file = os.replace, checkpoint.save_file

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

    # By a clock of one tick a segment the moments of saving are the same in every process, and
    # every time.
    clock = itertools.count()
    training.time = SimpleNamespace(monotonic=lambda: float(next(clock)))  # type: ignore[assignment]
    if moment == "state":
        checkpoint.save_file = half_a_file
    if moment == "config":
        os.replace = dying_replace
    run.run(report, SAVE_EVERY)


def started(*arguments: object) -> subprocess.Popen[bytes]:
    """Start this file as a script."""
    root = str(Path(awd_lstm.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.e2e.test_training_killed", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, cwd=root)


def killed(*arguments: object) -> bool:
    """Whether a training that shall be killed was."""
    return started(*arguments).wait(timeout=120) == -signal.SIGKILL


def together(
    folder: Path, names: str, count: int, *, victim: int = -1, number: int = 0
) -> list[int]:
    """Train in several processes at once; return their exit statuses, negative for a signal."""
    folder.mkdir(exist_ok=True)
    store = folder / f"store-{len(list(folder.iterdir()))}"
    processes = [
        started(folder, names, store, rank, count, number if rank == victim else 0)
        for rank in range(count)
    ]
    return [process.wait(timeout=120) for process in processes]


def assert_same_run(folder: Path, undisturbed: Path) -> None:
    """Compare states, records and checkpoints of two runs bit for bit; only the clock may
    differ.
    """
    tensors, record = load_state(folder / STATE)
    expected_tensors, expected = load_state(undisturbed / STATE)
    assert len(expected["curve"]) >= 3
    assert {**record, "seconds": 0} == {**expected, "seconds": 0}
    assert tensors.keys() == expected_tensors.keys()
    for name, value in expected_tensors.items():
        assert torch.equal(tensors[name], value), name
    best, expected_best = (load_checkpoint(place).state_dict() for place in (folder, undisturbed))
    for name, value in expected_best.items():
        assert torch.equal(best[name], value), name
    stories = [read_config(place)["training"] for place in (folder, undisturbed)]
    assert {**stories[0], "seconds": 0} == {**stories[1], "seconds": 0}


def assert_agree(folder: Path, expected: Path, tolerance: float) -> None:
    """Compare curves, validation losses, states and best weights of two runs, and where they
    stand.
    """
    tensors, record = load_state(folder / STATE)
    wanted_tensors, wanted = load_state(expected / STATE)
    for name in ("epoch", "position", "segments", "averaging", "loss_tokens"):
        assert record[name] == wanted[name], name
    assert len(wanted["valid"]) == record["epoch"]
    for part in ("valid", "loss_sum"):
        np.testing.assert_allclose(record[part], wanted[part], rtol=tolerance)
    curves = ([loss for *_, loss in each["curve"]] for each in (record, wanted))
    np.testing.assert_allclose(*curves, rtol=tolerance)
    assert tensors.keys() == wanted_tensors.keys()
    for name, value in wanted_tensors.items():
        if name.startswith("rng"):
            assert torch.equal(tensors[name], value), name
        else:
            assert tensors[name].shape == value.shape, name
    ours, theirs = (load_checkpoint(place).state_dict() for place in (folder, expected))
    for name, value in theirs.items():
        assert (ours[name] - value).abs().max() <= 100 * tolerance, name


@pytest.mark.slow
def test_descent_that_turns_into_averaging_survives_every_kill(tmp_path: Path) -> None:
    folder, undisturbed = tmp_path / "killed", finish(tmp_path / "undisturbed", "sgd")
    final = record_of(undisturbed)
    assert final["averaging"]
    assert final["epoch"] == 8

    # Before averaging, in mid-epoch.
    assert killed(folder, "sgd", "segment", 75)
    record = record_of(folder)
    assert not record["averaging"]
    assert record["position"] > 0
    assert record["segments"] < 75

    # In the middle of writing a state: the one before is whole.
    assert killed(folder, "sgd", "state", 120)
    assert 100 < record_of(folder)["segments"] < 120

    # While averaging, in mid-epoch.
    assert killed(folder, "sgd", "segment", final["segments"] - 25)
    record = record_of(folder)
    assert record["averaging"]
    assert record["position"] > 0
    assert_same_run(finish(folder, "sgd"), undisturbed)


@pytest.mark.slow
def test_adamw_with_a_sampled_softmax_survives_every_kill(tmp_path: Path) -> None:
    folder, undisturbed = tmp_path / "killed", finish(tmp_path / "undisturbed", "sampled")
    # Between the weights of a checkpoint and its description: what is there loads.
    assert killed(folder, "sampled", "config", 0)
    assert load_checkpoint(folder, dictionary_sha256="d" * 64).config == MODEL
    assert killed(folder, "sampled", "segment", 130)
    assert 0 < record_of(folder)["segments"] < 130
    assert_same_run(finish(folder, "sampled"), undisturbed)


@pytest.mark.slow
def test_two_processes_follow_the_curve_of_one(tmp_path: Path) -> None:
    tolerances = {"divided sgd": 1e-5, "divided sampled": 1e-5, "divided bfloat16": 1e-3}
    two = tmp_path / "two"
    assert together(two, ",".join(tolerances), 2) == [0, 0]
    for name, tolerance in tolerances.items():
        one = finish(tmp_path / "one" / name, name)
        assert_agree(two / name, one, tolerance)
        assert [read_config(place)["training"]["processes"] for place in (two / name, one)] == [
            2,
            1,
        ]
    assert record_of(two / "divided sgd")["averaging"], "NT-ASGD's trigger fired"


@pytest.mark.slow
def test_a_run_goes_on_whoever_is_killed_and_with_any_number_of_processes(tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if begun.record.segments >= 40:
            raise KeyboardInterrupt

    name = "divided sgd"
    undisturbed, folder = finish(tmp_path / "one", name), tmp_path / "many" / name
    begun = trainer(folder, name)
    with pytest.raises(KeyboardInterrupt):
        begun.run(interrupt, 0)
    first = record_of(folder)["segments"]
    # The other one ends with an error, and does not wait.
    assert together(tmp_path / "many", name, 2, victim=1, number=90) == [1, -signal.SIGKILL]
    assert first < record_of(folder)["segments"] <= 90
    assert together(tmp_path / "many", name, 3) == [0, 0, 0]
    assert_agree(folder, undisturbed, 1e-5)


def test_more_processes_than_streams_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="5 processes are more than the 4 streams of a batch; use fewer"
    ):
        trainer(tmp_path, "sgd", TrainingRanks(0, 5))


if __name__ == "__main__":
    place, names, *rest = sys.argv[1:]
    torch.set_num_threads(1)
    if len(rest) == 2:
        train(Path(place), names, rest[0], int(rest[1]))
    else:
        store, rank, count, number = rest
        torch.distributed.init_process_group(
            "gloo", f"file://{store}", timedelta(seconds=60), int(count), int(rank)
        )
        for name in names.split(","):
            train(
                Path(place) / name,
                name,
                "segment" if int(number) else "",
                int(number),
                TrainingRanks.current(),
            )
        torch.distributed.destroy_process_group()
