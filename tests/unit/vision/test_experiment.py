from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision import permuted as chain_module
from hebblm.vision.mlp import Penalty
from hebblm.vision.permuted import TaskStream, run_permuted, train_task
from hebblm.vision.result import Outcome
from hebblm.vision.settings import PermutedSettings, check_seeds
from hebblm.vision.state import Setup

from .samples import TINY, after, patterns

METHODS = ["mlp", "mbpa-5", "hebb-5", "mbpa-10", "hebb-10", "ewc"]


def setup(folder: Path, settings: PermutedSettings = TINY) -> Setup[PermutedSettings]:
    cpu = torch.device("cpu")
    return Setup(patterns(), settings, (1,), device=cpu, cache=folder / "cache", folder=folder)


def run(folder: Path, settings: PermutedSettings = TINY) -> Outcome:
    return run_permuted(setup(folder, settings))


def same(one: Outcome, other: Outcome) -> bool:
    return all(
        a.values == b.values and torch.equal(a.predictions[name], b.predictions[name])
        for a, b in zip(one.runs, other.runs, strict=True)
        for name in METHODS
    )


@pytest.mark.parametrize("calls", [3, 5, 8])  # in EWC's tuning, in that of MbPA, in the first seed
def test_interrupted_runs_end_the_same(calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(chain_module, "train_task", after(calls, train_task))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parted")
    assert same(whole, run(tmp_path / "parted"))


def test_test_samples_are_read_after_tuning_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, tuned = TaskStream.test, []

    def watched(self: TaskStream, task: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        tuned.append(any((tmp_path / "state").glob("tuning-*.json")))
        return read(self, task, size)

    monkeypatch.setattr(TaskStream, "test", watched)
    run(tmp_path)
    assert tuned
    assert all(tuned)


def test_chooses_the_best_point_on_held_out_samples(tmp_path: Path) -> None:
    outcome = run(tmp_path)
    assert outcome.tuning[""] is not None
    assert [point["lambda"] for point in outcome.tuning[""]["ewc"]] == [10.0, 100.0]
    assert set(outcome.runs[0].values) == set(METHODS) - {"mlp"}
    for name, points in outcome.tuning[""].items():
        winner = sorted(points, key=lambda point: (-point["accuracy"], point["loss"]))[0]
        assert outcome.runs[0].values[name] == {
            key: value for key, value in winner.items() if key not in ("accuracy", "loss")
        }


def test_one_value_each_is_taken_without_tuning(tmp_path: Path) -> None:
    fixed = replace(TINY, ewc_lambda=(7.0,), mbpa_lambda=(0.1,), hebb_beta=(0.4,), hebb_eta=(0.3,))
    outcome = run(tmp_path, fixed)
    assert outcome.tuning == {"": None}
    assert outcome.runs[0].values["ewc"] == {"lambda": 7.0}
    assert outcome.runs[0].values["mbpa-5"] == {"lr": 0.1}
    assert outcome.runs[0].values["hebb-10"] == {"beta": 0.4, "eta": 0.3}
    assert not list((tmp_path / "state").glob("tuning-*"))
    counted = outcome.runs[0].counted  # MbPA and Hebb share a pass, whose time is neither's
    assert {name: set(numbers) for name, numbers in counted.items()} == {name: {"rose"} for name in METHODS}


def test_without_a_rate_and_a_scale_adaptation_is_the_network(tmp_path: Path) -> None:
    fixed = replace(TINY, ewc_lambda=(0.0,), mbpa_lambda=(0.0,), hebb_beta=(0.5,), hebb_eta=(0.0,))
    seed = run(tmp_path, fixed).runs[0]
    for name in METHODS:
        assert torch.equal(seed.predictions[name], seed.predictions["mlp"])


def test_clears_its_state(tmp_path: Path) -> None:
    own = setup(tmp_path)
    run_permuted(own)
    assert (tmp_path / "state").is_dir()
    own.clear()
    assert not list(tmp_path.iterdir())


def test_refuses_the_state_of_other_settings(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(UserError, match="belongs to a run with other settings"):
        run(tmp_path, replace(TINY, epochs=4))


def test_a_strength_that_diverges_is_tried_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    penalty = Penalty.add_gradient

    def diverging(self: Penalty, parameters: Any, strength: float) -> None:
        penalty(self, parameters, math.nan if strength == 100.0 else strength)

    monkeypatch.setattr(Penalty, "add_gradient", diverging)
    outcome = run(tmp_path)
    assert outcome.tuning[""]["ewc"][1] == {"lambda": 100.0, "accuracy": 0.0, "loss": math.inf}
    assert outcome.runs[0].values["ewc"] == {"lambda": 10.0}


def test_another_program_does_not_go_on_with_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    monkeypatch.setattr(chain_module, "program", lambda *_: "other")
    with pytest.raises(UserError, match="belongs to a run with other settings, data, seeds or program"):
        run(tmp_path)


@pytest.mark.parametrize("seeds", [(), (1, 2, 1), (1, -1)])
def test_refuses_seeds(seeds: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="at least one, each once"):
        check_seeds(seeds)
