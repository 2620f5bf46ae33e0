from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision.permuted_mnist import chain as chain_module
from hebblm.vision.permuted_mnist.chain import train_task
from hebblm.vision.permuted_mnist.experiment import PermutedMnist, PermutedOutcome
from hebblm.vision.permuted_mnist.settings import PermutedSettings
from hebblm.vision.permuted_mnist.tasks import TaskStream
from hebblm.vision.setup import Setup

from .samples import TINY, after, patterns

METHODS = ["mlp", "mbpa-5", "hebb-5", "mbpa-10", "hebb-10", "ewc"]


def setup(folder: Path, settings: PermutedSettings = TINY, seeds: tuple[int, ...] = (1,)) -> Setup[PermutedSettings]:
    cpu = torch.device("cpu")
    return Setup(patterns(), settings, seeds, device=cpu, cache=folder / "cache", folder=folder)


def experiment(folder: Path, settings: PermutedSettings = TINY, seeds: tuple[int, ...] = (1,)) -> PermutedMnist:
    return PermutedMnist(setup(folder, settings, seeds))


def same(one: PermutedOutcome, other: PermutedOutcome) -> bool:
    return one.values == other.values and all(
        torch.equal(a.predictions[name], b.predictions[name])
        for a, b in zip(one.seeds, other.seeds, strict=True)
        for name in METHODS
    )


@pytest.mark.parametrize("calls", [3, 5, 8])  # in EWC's tuning, in that of MbPA, in the first seed
def test_interrupted_runs_end_the_same(calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = experiment(tmp_path / "whole").run()
    with monkeypatch.context() as patch:
        patch.setattr(chain_module, "train_task", after(calls, train_task))
        with pytest.raises(KeyboardInterrupt):
            experiment(tmp_path / "parted").run()
    assert same(whole, experiment(tmp_path / "parted").run())


def test_test_samples_are_read_after_tuning_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, tuned = TaskStream.test, []

    def watched(self: TaskStream, task: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        tuned.append((tmp_path / "state" / "tuning.json").exists())
        return read(self, task, size)

    monkeypatch.setattr(TaskStream, "test", watched)
    experiment(tmp_path).run()
    assert tuned
    assert all(tuned)


def test_chooses_the_best_point_on_held_out_samples(tmp_path: Path) -> None:
    outcome = experiment(tmp_path).run()
    assert outcome.tried is not None
    assert [point["lambda"] for point in outcome.tried["ewc"]] == [10.0, 100.0]
    assert set(outcome.values) == set(METHODS) - {"mlp"}
    for name, points in outcome.tried.items():
        winner = sorted(points, key=lambda point: (-point["accuracy"], point["loss"]))[0]
        assert outcome.values[name] == {key: value for key, value in winner.items() if key not in ("accuracy", "loss")}


def test_one_value_each_is_taken_without_tuning(tmp_path: Path) -> None:
    fixed = replace(TINY, ewc_lambda=(7.0,), mbpa_lambda=(0.1,), hebb_beta=(0.4,), hebb_eta=(0.3,))
    outcome = experiment(tmp_path, fixed).run()
    assert outcome.tried is None
    assert outcome.values["ewc"] == {"lambda": 7.0}
    assert outcome.values["mbpa-5"] == {"lr": 0.1}
    assert outcome.values["hebb-10"] == {"beta": 0.4, "eta": 0.3}
    assert not (tmp_path / "state" / "tuning.json").exists()


def test_without_a_rate_and_a_scale_adaptation_is_the_network(tmp_path: Path) -> None:
    fixed = replace(TINY, ewc_lambda=(0.0,), mbpa_lambda=(0.0,), hebb_beta=(0.5,), hebb_eta=(0.0,))
    seed = experiment(tmp_path, fixed).run().seeds[0]
    for name in METHODS:
        assert torch.equal(seed.predictions[name], seed.predictions["mlp"])


def test_clears_its_state(tmp_path: Path) -> None:
    own = setup(tmp_path)
    PermutedMnist(own).run()
    assert (tmp_path / "state").is_dir()
    own.clear()
    assert not list(tmp_path.iterdir())


def test_refuses_the_state_of_other_settings(tmp_path: Path) -> None:
    experiment(tmp_path).run()
    with pytest.raises(UserError, match="belongs to a run with other settings"):
        experiment(tmp_path, replace(TINY, epochs=4)).run()


@pytest.mark.parametrize("seeds", [(), (1, 2, 1)])
def test_refuses_seeds(seeds: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one, each once"):
        experiment(tmp_path, seeds=seeds)
