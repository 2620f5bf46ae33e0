from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision import permuted
from hebblm.vision.experiments import _permuted_method, accuracies_of, continual_scores
from hebblm.vision.mlp import MLP, Penalty, fisher_diagonal
from hebblm.vision.permuted import Chain, TaskStream, draw, run_permuted, train_task
from hebblm.vision.result import MISSING, Outcome, SeedRun, at_end
from hebblm.vision.settings import PermutedSettings
from hebblm.vision.state import Setup, generator

from .samples import CPU, TINY, after, patterns


def test_held_out_samples_are_in_no_task() -> None:
    settings = replace(TINY, train_samples=180)  # with 20 held out, all there are
    drawn = draw(patterns(), settings, 1)
    for task in drawn.train:
        assert torch.equal(torch.cat([task, drawn.held_out]).sort().values, torch.arange(200))


def test_a_seed_decides() -> None:
    first, again, other = (vars(draw(patterns(), TINY, seed)) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_more_tasks_leave_the_first_as_they_are() -> None:
    few, many = draw(patterns(), TINY, 1), draw(patterns(), replace(TINY, tasks=5), 1)
    assert torch.equal(few.permutations, many.permutations[:3])
    assert torch.equal(few.train, many.train[:3])
    assert torch.equal(few.test, many.test)


def test_a_task_shows_its_own_order_of_pixels() -> None:
    dataset = patterns()
    stream = TaskStream(dataset, TINY, 1, CPU)
    drawn = stream.drawn
    pixels, labels = stream.train(2)
    sample = drawn.train[2, 5]
    plain = dataset.train.pixels[sample].flatten() / 255
    assert torch.equal(pixels[5], plain[drawn.permutations[2]])
    assert labels[5] == dataset.train.labels[sample]
    entries = stream.under(MLP.initial(16, 4, 3, generator(1, "network")), 3, 7).memory.entries()
    assert torch.equal(entries.keys[14:], pixels[:7])
    assert torch.equal(entries.values[14:], labels[:7])
    test, _ = stream.test(0, 20)
    assert test.shape == (20, 16)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"train_samples": 181},
            "train_samples = 181 and held_out = 20 are more than the 200 samples",
        ),
        ({"test_samples": 41}, "test_samples = 41 is more than the 40"),
    ],
)
def test_refuses_more_than_there_is(change: dict[str, int], told: str) -> None:
    with pytest.raises(UserError, match=told):
        draw(patterns(), replace(TINY, **change), 1)


STREAM = TaskStream(patterns(), replace(TINY, test_samples=40), 1, CPU)
RECIPE = replace(TINY, epochs=15, batch_size=16, lr=1e-2)


def start() -> MLP:
    return MLP.initial(16, 16, 3, generator(1, "network"))


def accuracy(model: MLP, task: int) -> float:
    pixels, labels = STREAM.test(task, 40)
    return float((model.logits(pixels).argmax(1) == labels).double().mean())


def test_learns_and_leaves_the_start_alone() -> None:
    model, before = start(), start()
    trained = train_task(model, *STREAM.train(0), RECIPE, generator=generator(1, "order"))
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True)
    )
    assert accuracy(trained, 0) >= 0.9
    assert not any(parameter.requires_grad for parameter in trained.parameters())


def test_the_penalty_keeps_what_the_first_task_needs() -> None:
    first = train_task(start(), *STREAM.train(0), RECIPE, generator=generator(1, "order"))
    fisher = fisher_diagonal(first, *STREAM.train(0), kind="labels")
    penalty = Penalty.none(first.parameters()).fold(first.parameters(), fisher)
    after = [
        train_task(
            first,
            *STREAM.train(1),
            RECIPE,
            generator=generator(1, "order"),
            penalty=penalty,
            strength=strength,
        )
        for strength in (0.0, 1000.0)
    ]
    values = [
        sum(
            float((information * (theta - centre).square()).sum())
            for information, theta, centre in zip(
                penalty.precisions, model.parameters(), penalty.centres, strict=True
            )
        )
        for model in after
    ]
    assert values[1] < values[0] / 3
    assert accuracy(after[1], 0) >= accuracy(after[0], 0)


def test_says_that_training_diverged() -> None:
    pixels, labels = STREAM.train(0)
    with pytest.raises(UserError, match=r"training diverged with lr = 0\.01"):
        train_task(start(), pixels * torch.inf, labels, RECIPE, generator=generator(1, "order"))


METHODS = ["mlp", "mbpa-5", "hebb-5", "mbpa-10", "hebb-10", "ewc"]


def run_tiny(folder: Path, settings: PermutedSettings = TINY) -> Outcome:
    return run_permuted(
        Setup(patterns(), settings, (1,), device=CPU, cache=folder / "cache", folder=folder)
    )


def same_outcome(one: Outcome, other: Outcome) -> bool:
    return all(
        a.values == b.values and torch.equal(a.predictions[name], b.predictions[name])
        for a, b in zip(one.runs, other.runs, strict=True)
        for name in METHODS
    )


@pytest.mark.parametrize("calls", [3, 8])  # in EWC's tuning, in the first seed
def test_interrupted_runs_end_the_same(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []

    def counted(*args: Any, **options: Any) -> MLP:
        trained.append(1)
        return train_task(*args, **options)

    monkeypatch.setattr(permuted, "train_task", counted)
    whole = run_tiny(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(permuted, "train_task", after(calls, train_task))
        with pytest.raises(KeyboardInterrupt):
            run_tiny(tmp_path / "parted")
    at_once = len(trained)
    assert same_outcome(whole, run_tiny(tmp_path / "parted"))
    assert len(trained) == 2 * at_once - calls


def test_a_network_is_placed_as_torch_places_its_own() -> None:
    chain = Chain(STREAM, 100.0)
    shifted = {
        name: torch.cat([value.new_zeros(1), value.flatten()])[1:].view_as(value)
        for name, value in chain.state_dict().items()
    }
    chain.load_state_dict(shifted)
    assert {value.data_ptr() % 64 for value in chain.state_dict().values()} == {0}


def test_predictions_stand_below_the_diagonal(tmp_path: Path) -> None:
    for made in run_tiny(tmp_path).runs[0].predictions.values():
        assert made.shape == (3, 3, 20)
        for task, tested in enumerate((8, 8, 20)):
            assert (made[task, : task + 1, :tested] < 3).all()
            assert (made[task, : task + 1, tested:] == MISSING).all()
            assert (made[task, task + 1 :] == MISSING).all()


@pytest.mark.parametrize("kept", [0, 500])
def test_refuses_a_truncated_state(kept: int, tmp_path: Path) -> None:
    run_tiny(tmp_path)
    path = tmp_path / "state" / "seed-1-mlp.state.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match="truncated or unreadable"):
        run_tiny(tmp_path)


def test_test_samples_are_read_after_tuning_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, tuned = TaskStream.test, []

    def watched(self: TaskStream, task: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        tuned.append(any((tmp_path / "state").glob("tuning-*.json")))
        return read(self, task, size)

    monkeypatch.setattr(TaskStream, "test", watched)
    run_tiny(tmp_path)
    assert tuned
    assert all(tuned)


def test_chooses_the_best_point_on_held_out_samples(tmp_path: Path) -> None:
    outcome = run_tiny(tmp_path)
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
    outcome = run_tiny(tmp_path, fixed)
    assert outcome.tuning == {"": None}
    assert outcome.runs[0].values["ewc"] == {"lambda": 7.0}
    assert outcome.runs[0].values["mbpa-5"] == {"lr": 0.1}
    assert outcome.runs[0].values["hebb-10"] == {"beta": 0.4, "eta": 0.3}
    assert not list((tmp_path / "state").glob("tuning-*"))
    counted = outcome.runs[0].counted  # MbPA and Hebb share a pass, whose time is neither's
    assert {name: set(numbers) for name, numbers in counted.items()} == {
        name: {"rose"} for name in METHODS
    }


def test_without_a_rate_and_a_scale_adaptation_is_the_network(tmp_path: Path) -> None:
    fixed = replace(TINY, ewc_lambda=(0.0,), mbpa_lambda=(0.0,), hebb_beta=(0.5,), hebb_eta=(0.0,))
    seed = run_tiny(tmp_path, fixed).runs[0]
    for name in METHODS:
        assert torch.equal(seed.predictions[name], seed.predictions["mlp"])


def test_refuses_the_state_of_other_settings(tmp_path: Path) -> None:
    run_tiny(tmp_path)
    with pytest.raises(UserError, match="belongs to a run with other settings"):
        run_tiny(tmp_path, replace(TINY, epochs=4))


def test_refuses_the_state_of_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tiny(tmp_path)
    monkeypatch.setattr(permuted, "program", lambda *_: "other")
    with pytest.raises(
        UserError, match="belongs to a run with other settings, data, seeds or program"
    ):
        run_tiny(tmp_path)


def test_a_strength_that_diverges_is_tried_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penalty = Penalty.add_gradient

    def diverging(self: Penalty, parameters: Any, strength: float) -> None:
        penalty(self, parameters, math.nan if strength == 100.0 else strength)

    monkeypatch.setattr(Penalty, "add_gradient", diverging)
    outcome = run_tiny(tmp_path)
    assert outcome.tuning[""]["ewc"][1] == {"lambda": 100.0, "accuracy": 0.0, "loss": math.inf}
    assert outcome.runs[0].values["ewc"] == {"lambda": 10.0}


def test_accuracies_by_hand() -> None:
    labels = torch.tensor([0, 1, 2, 1])
    predictions = torch.full((2, 2, 4), MISSING, dtype=torch.uint8)
    predictions[0, 0, :3] = torch.tensor([0, 1, 1])  # of the first three only
    predictions[1, 0] = torch.tensor([0, 0, 0, 0])
    predictions[1, 1] = torch.tensor([0, 1, 2, 1])
    assert accuracies_of(predictions, labels) == [[pytest.approx(2 / 3)], [0.25, 1.0]]


def test_summaries_by_hand() -> None:
    accuracies = [[0.8], [0.9, 0.7], [0.5, 0.75, 0.6]]
    assert continual_scores([[0.8], [0.9, 0.7], [0.6, 0.7, 0.8]], accuracies) == {
        "average_accuracy": pytest.approx(2.1 / 3),
        "forgetting": pytest.approx(((0.9 - 0.5) + (0.7 - 0.75)) / 2),
        "backward_transfer": pytest.approx(((0.5 - 0.8) + (0.75 - 0.7)) / 2),
    }


def test_what_a_task_changes_is_measured_on_the_same_samples() -> None:
    labels = torch.zeros(4, dtype=torch.int64)
    predictions = torch.full((2, 2, 4), MISSING, dtype=torch.uint8)
    predictions[0, 0, :2] = torch.tensor([0, 0])
    predictions[1] = torch.tensor([0, 0, 1, 1])  # the first ones as right as before
    settings = replace(TINY, tasks=2, test_samples=4, curve_samples=2, tune_tasks=2)
    runs = [SeedRun(1, {}, labels, {"mlp": predictions}, {"mlp": {}}, {})]
    found = _permuted_method(runs, "mlp", settings)
    assert [
        found[name]["mean"] for name in ("average_accuracy", "forgetting", "backward_transfer")
    ] == [0.5, 0.0, 0.0]
    assert [point["mean"] for point in found["curve"]] == [1.0, 1.0]
    assert found["seeds"][0]["accuracy"] == [[1.0], [0.5, 0.5]]


def test_a_best_value_at_an_end_is_told_with_its_condition() -> None:
    tried = {
        "parametric": [
            {"lr": lr, "harmonic_mean": lr, "harmonic_mean_reached": 0.1, "loss": lr}
            for lr in (1, 2, 3)
        ],
        "hebb": [
            {"beta": beta, "eta": 1.0, "harmonic_mean": beta, "loss": 1.0} for beta in (0.1, 0.2)
        ],
        "mixture": [
            {"theta": theta, "harmonic_mean": theta % 3, "loss": 1.0} for theta in (1.0, 2.0, 3.0)
        ],
    }
    assert at_end({"50": tried, "70": None}) == ["parametric.lr (50)", "hebb.beta (50)"]
    assert at_end({"": {"ewc": [{"lambda": 1.0, "accuracy": 0.5, "loss": 1.0}]}}) == []
    flat = [{"theta": theta, "accuracy": min(theta, 2.0), "loss": 1.0} for theta in (1.0, 2.0, 3.0)]
    assert at_end({"": {"mixture": flat[:2]}}) == ["mixture.theta"]
    assert at_end({"": {"mixture": flat[::-1]}}) == [], "the value before the end does as well"
    for value, ends in ((0.9, ["mixture.gamma"]), (1.0, [])):  # nothing lies beyond a share of 1
        points = [{"gamma": gamma, "accuracy": gamma, "loss": 1.0} for gamma in (0.5, value)]
        assert at_end({"": {"mixture": points}}) == ends
