"""Training divided over real processes gives what one process gives, whatever their number and whoever is killed.

Run as a script, this file is one of the processes: ``FOLDER STORE NAME RANK COUNT KILL``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

import awd_lstm
from awd_lstm import AWDLSTMConfig, Event, Trainer, TrainingConfig, TrainingRanks, load_checkpoint, read_config
from awd_lstm import training as module
from awd_lstm.state import STATE, load_state

MODEL = AWDLSTMConfig(40, 6, 8, 2, dropout=0.2, dropouth=0.1, dropouti=0.2, dropoute=0.1, wdrop=0.3)
SGD = TrainingConfig(batch_size=4, epochs=5, lr=2.0, bptt=10, nonmono=1)
CONFIGS = {
    "sgd": SGD,
    "adamw": TrainingConfig(
        batch_size=5, epochs=2, optimizer="adamw", lr=0.01, bptt=10, softmax="sampled", samples=20, full_from=0.5
    ),
    "bfloat16": TrainingConfig(
        batch_size=4, epochs=1, optimizer="adamw", lr=0.01, bptt=10, precision="bfloat16", recurrent="bfloat16"
    ),
}  # fmt: skip
SAVE_EVERY = 7  # segments


def ids(count: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 40, count, dtype=np.uint8)


def trainer(folder: Path, name: str, ranks: TrainingRanks | None = None) -> Trainer:
    return Trainer(MODEL, CONFIGS[name], ids(1500, 0), ids(300, 1), folder, dictionary_sha256="d" * 64, ranks=ranks)


def train_one(folder: Path, name: str, ranks: TrainingRanks, kill: int) -> None:
    """Train to the end, or until this process kills itself after a number of segments."""
    run = trainer(folder, name, ranks)

    def report(event: Event) -> None:
        if kill and run.record.segments >= kill:
            os.kill(os.getpid(), signal.SIGKILL)

    # By a clock of one tick a segment the moments of saving are the same in every process.
    ticks = iter(range(1_000_000))
    module.time = type("Clock", (), {"monotonic": staticmethod(lambda: float(next(ticks)))})  # type: ignore[assignment]
    run.run(report, SAVE_EVERY)


def alone(folder: Path, name: str) -> Path:
    """Train to the end in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer(folder, name).run()
    finally:
        torch.set_num_threads(threads)
    return folder


def together(folder: Path, names: str, count: int, *, victim: int = -1, kill: int = 0) -> list[int]:
    """Train in several processes at once; return their exit statuses, negative for a signal."""
    folder.mkdir(exist_ok=True)
    store = folder / f"store-{len(list(folder.iterdir()))}"
    environment = {**os.environ, "PYTHONPATH": str(Path(awd_lstm.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [
                sys.executable, __file__, str(folder), str(store), names, str(rank), str(count),
                str(kill if rank == victim else 0),
            ],
            env=environment,
        )
        for rank in range(count)
    ]  # fmt: skip
    return [process.wait(timeout=120) for process in started]


def assert_agree(folder: Path, expected: Path, tolerance: float) -> None:
    """Compare curves, validation losses, states and best weights of two runs, and where they stand."""
    tensors, record = load_state(folder / STATE)
    wanted_tensors, wanted = load_state(expected / STATE)
    for name in ("epoch", "position", "segments", "averaging", "loss_tokens"):
        assert record[name] == wanted[name], name
    assert len(wanted["valid"]) == record["epoch"]
    np.testing.assert_allclose(record["valid"], wanted["valid"], rtol=tolerance)
    np.testing.assert_allclose(
        [loss for *_, loss in record["curve"]], [loss for *_, loss in wanted["curve"]], rtol=tolerance
    )
    np.testing.assert_allclose(record["loss_sum"], wanted["loss_sum"], rtol=tolerance)
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
def test_two_processes_follow_the_curve_of_one(tmp_path: Path) -> None:
    two = tmp_path / "two"
    assert together(two, ",".join(CONFIGS), 2) == [0, 0]
    for name, tolerance in (("sgd", 1e-5), ("adamw", 1e-5), ("bfloat16", 1e-3)):
        one = alone(tmp_path / "one" / name, name)
        assert_agree(two / name, one, tolerance)
        assert read_config(two / name)["training"]["processes"] == 2
        assert read_config(one)["training"]["processes"] == 1
    assert load_state(two / "sgd" / STATE)[1]["averaging"], "NT-ASGD's trigger fired"


@pytest.mark.slow
def test_a_run_goes_on_whoever_is_killed_and_with_any_number_of_processes(tmp_path: Path) -> None:
    def interrupt(event: Event) -> None:
        if begun.record.segments >= 40:
            raise KeyboardInterrupt

    undisturbed = alone(tmp_path / "one", "sgd")
    folder = tmp_path / "many" / "sgd"
    begun = trainer(folder, "sgd")
    with pytest.raises(KeyboardInterrupt):
        begun.run(interrupt, 0)
    first = load_state(folder / STATE)[1]["segments"]
    killed = together(tmp_path / "many", "sgd", 2, victim=1, kill=90)
    assert killed[1] == -signal.SIGKILL
    assert killed[0] == 1, "the other one ends with an error, and does not wait"
    second = load_state(folder / STATE)[1]["segments"]
    assert first < second <= 90
    assert together(tmp_path / "many", "sgd", 3) == [0, 0, 0]
    assert_agree(folder, undisturbed, 1e-5)


def test_more_processes_than_streams_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="5 processes are more than the 4 streams of a batch; use fewer"):
        trainer(tmp_path, "sgd", TrainingRanks(0, 5))


if __name__ == "__main__":
    place, store, kinds, rank, count, kill = sys.argv[1:]
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(count), timeout=timedelta(seconds=60)
    )
    for kind in kinds.split(","):
        train_one(Path(place) / kind, kind, TrainingRanks.here(), int(kill))
    torch.distributed.destroy_process_group()
