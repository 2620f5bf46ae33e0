"""Training on random ids: NT-ASGD's average, resuming, refusing another run's folder, and steady
memory.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.testing import assert_close

from awd_lstm import (
    AWDLSTM,
    AWDLSTMConfig,
    CheckpointError,
    Event,
    Trainer,
    TrainingConfig,
    load_checkpoint,
    read_config,
    training,
    validation_loss,
)
from awd_lstm.checkpoint import load_state, save_state
from awd_lstm.streams import ParallelStreams
from awd_lstm.training import _unigram

MODEL = AWDLSTMConfig(30, 5, 7, 2, dropout=0.2, dropouth=0.1, dropouti=0.2, dropoute=0.1, wdrop=0.3)
SGD = TrainingConfig(batch_size=4, epochs=6, lr=8.0, bptt=10, nonmono=1)
ADAMW = dataclasses.replace(SGD, optimizer="adamw", lr=0.01, epochs=2)
CPU = torch.device("cpu")


def ids(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 30, count, dtype=np.uint8)


def trainer(folder: Path, config: TrainingConfig = SGD, **overrides: Any) -> Trainer:
    settings = {"dictionary_sha256": "d" * 64, "provenance": {"command": "test"}, **overrides}
    model = settings.pop("model", MODEL)
    return Trainer(model, config, ids(600, 0), ids(200, 1), folder, **settings)


def weights(model: AWDLSTM) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


@contextmanager
def recorded_iterates() -> Iterator[list[tuple[str, list[Tensor]]]]:
    """Collect the optimiser's name and all weights after every step, and the weights in every
    validation.
    """
    seen: list[tuple[str, list[Tensor]]] = []

    def after_step(optimizer: Optimizer, args: object, kwargs: object) -> None:
        values = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
        seen.append((type(optimizer).__name__, values))

    plain = training.validation_loss

    def validate(model: AWDLSTM, streams: ParallelStreams, device: torch.device) -> float:
        seen.append(("validation", weights(model)))
        return plain(model, streams, device)

    handle = register_optimizer_step_post_hook(after_step)
    training.validation_loss = validate
    try:
        yield seen
    finally:
        training.validation_loss = plain
        handle.remove()


def test_after_the_trigger_the_plain_mean_of_the_iterates_is_validated(tmp_path: Path) -> None:
    config = dataclasses.replace(SGD, epochs=8)
    run = trainer(tmp_path, config)
    ends: list[tuple[Event, list[Tensor]]] = []

    def note(event: Event) -> None:
        if event.valid is not None:
            ends.append((event, weights(run.model)))

    with recorded_iterates() as seen:
        run.run(note)

    assert run.record.averaging
    averaged: list[list[Tensor]] = []
    last: list[Tensor] = []
    validations = 0
    for name, values in seen:
        if name != "validation":
            last = values
            averaged += [values] if name == "ASGD" else []
            continue
        # The published optimiser (t0 = 0) gives its first iterate the weight zero once there is a
        # second one.
        parts = zip(*averaged[1:], strict=True) if averaged else [(value,) for value in last]
        means = [torch.stack([part.double() for part in same]).mean(0) for same in parts]
        for value, mean in zip(values, means, strict=True):
            assert_close(value.double(), mean, rtol=1e-4, atol=1e-6)
        event, resumed = ends[validations]
        for value, before in zip(resumed, last, strict=True):
            # training goes on from the iterate itself, bit for bit
            assert torch.equal(value, before)
        if averaged:
            assert not torch.equal(values[0], last[0])
        assert event.valid == run.record.valid[validations]
        validations += 1
    assert validations == config.epochs
    assert len(averaged) > 40


def test_a_run_begins_with_the_weights_of_a_checkpoint_and_says_which(tmp_path: Path) -> None:
    trainer(tmp_path / "first", ADAMW).run()
    first = load_checkpoint(tmp_path / "first")
    run = trainer(tmp_path / "second", ADAMW, initial=tmp_path / "first")
    for value, expected in zip(weights(run.model), weights(first), strict=True):
        assert torch.equal(value, expected)
    assert not run.record.averaging
    run.run()
    told = read_config(tmp_path / "first")["weights_sha256"]
    assert read_config(tmp_path / "second")["training"]["initial_sha256"] == told
    assert read_config(tmp_path / "first")["training"]["initial_sha256"] == ""
    with pytest.raises(CheckpointError, match="whose initial_sha256 differs"):
        trainer(tmp_path / "second", ADAMW)


def test_sgd_that_begins_with_a_model_averages_from_its_first_step(tmp_path: Path) -> None:
    trainer(tmp_path / "first", ADAMW).run()
    run = trainer(
        tmp_path / "second", dataclasses.replace(SGD, epochs=1), initial=tmp_path / "first"
    )
    with recorded_iterates() as seen:
        run.run()
    assert {name for name, _ in seen} == {"ASGD", "validation"}
    parts = zip(*[values for name, values in seen if name == "ASGD"][1:], strict=True)
    for value, same in zip(seen[-1][1], parts, strict=True):
        assert_close(
            value.double(),
            torch.stack([part.double() for part in same]).mean(0),
            rtol=1e-4,
            atol=1e-6,
        )


def test_a_run_does_not_begin_with_a_model_of_another_shape_or_dictionary(tmp_path: Path) -> None:
    trainer(tmp_path / "first", ADAMW).run()
    with pytest.raises(
        CheckpointError, match="choose the preset and arch that it was trained with"
    ):
        trainer(
            tmp_path / "second",
            initial=tmp_path / "first",
            model=dataclasses.replace(MODEL, hidden_dim=8),
        )
    with pytest.raises(CheckpointError, match="trained with dictionary"):
        trainer(tmp_path / "second", initial=tmp_path / "first", dictionary_sha256="e" * 64)
    less = dataclasses.replace(MODEL, dropout=0.1)  # no shape
    trainer(tmp_path / "second", initial=tmp_path / "first", model=less)


def test_the_checkpoint_holds_the_weights_of_the_best_validation(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    with recorded_iterates() as seen:
        run.run()
    best = int(np.argmin(run.record.valid))
    validated = [values for name, values in seen if name == "validation"]
    loaded = load_checkpoint(tmp_path, dictionary_sha256="d" * 64)
    for value, expected in zip(weights(loaded), validated[best], strict=True):
        assert torch.equal(value, expected)
    story = read_config(tmp_path)["training"]
    assert story["command"] == "test"
    assert story["epoch"] == best + 1
    assert story["valid_loss"] == min(run.record.valid)
    assert story["valid_losses"] == run.record.valid[: best + 1]
    streams = ParallelStreams(ids(200, 1), 10)
    assert validation_loss(loaded, streams, CPU) == pytest.approx(story["valid_loss"], abs=1e-12)


@pytest.mark.parametrize("segment", [1, 7, 200])
def test_validation_is_the_plain_mean_whatever_the_segment(segment: int) -> None:
    torch.manual_seed(0)
    model = AWDLSTM(MODEL)
    streams = ParallelStreams(ids(95, 2), 3)
    inputs, targets = streams.segment(0, len(streams), CPU)
    model.eval()
    logits = model.logits(model(inputs, model.initial_state(3)).hidden)
    expected = F.cross_entropy(logits.reshape(-1, 30), targets.reshape(-1)).item()
    assert validation_loss(model.train(), streams, CPU, segment) == pytest.approx(
        expected, abs=1e-6
    )


def test_a_run_that_diverges_ends_before_its_weights_are_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^training diverged: .* lr = 1e\+38; lower lr$"):
        trainer(tmp_path, dataclasses.replace(SGD, lr=1e38)).run(save_every=0)
    assert not read_config(tmp_path)
    assert load_state(tmp_path / "training.safetensors")[1]["curve"] == []


@pytest.mark.parametrize("loss", [math.nan, math.inf, 710.0])
def test_a_validation_without_a_perplexity_is_not_the_best_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float
) -> None:
    monkeypatch.setattr(training, "validation_loss", lambda *args: loss)
    with pytest.raises(
        ValueError, match=f"^training diverged: its loss is {loss} with lr = 0.01; lower lr$"
    ):
        trainer(tmp_path, ADAMW).run()
    assert not read_config(tmp_path)
    assert load_state(tmp_path / "training.safetensors")[1]["valid"] == []


def test_training_learns_a_pattern(tmp_path: Path) -> None:
    pattern = np.tile(np.arange(30, dtype=np.uint8), 40)
    config = TrainingConfig(
        batch_size=4, epochs=4, optimizer="adamw", lr=0.05, bptt=10, alpha=0, beta=0
    )
    model = AWDLSTMConfig(30, 16, 16, 1, 0, 0, 0, 0, 0)
    run = Trainer(model, config, pattern, pattern[:300], tmp_path, dictionary_sha256="")
    run.run()
    assert run.record.valid[-1] < 0.5 < run.record.valid[0]


def test_a_sampled_run_ends_with_the_full_softmax(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    sampled, full = training.sampled_cross_entropy, training.linear_cross_entropy

    def note_sampled(*args: Any) -> Tensor:
        used.append("sampled")
        return sampled(*args)

    def note_full(*args: Any) -> Tensor:
        if torch.is_grad_enabled():
            used.append("full")
        return full(*args)

    monkeypatch.setattr(training, "sampled_cross_entropy", note_sampled)
    monkeypatch.setattr(training, "linear_cross_entropy", note_full)
    config = dataclasses.replace(ADAMW, softmax="sampled", samples=20, full_from=0.75)
    trainer(tmp_path, config).run()
    assert used == sorted(used, reverse=True)  # all sampled ones first
    assert used.count("sampled") / len(used) == pytest.approx(0.75, abs=0.06)


def test_the_rate_of_every_step_follows_the_length_of_its_segment(tmp_path: Path) -> None:
    steps: list[tuple[float, int]] = []
    run = trainer(tmp_path, dataclasses.replace(SGD, epochs=1))

    def note(event: Event) -> None:
        position = run.record.position or len(run.streams)
        steps.append((run.optimizer.param_groups[0]["lr"], position))

    run.run(note)
    lengths = np.diff([0, *[position for _, position in steps]])
    assert sum(lengths) == len(run.streams)
    assert len(set(lengths)) > 3
    np.testing.assert_allclose([rate for rate, _ in steps], 8.0 * lengths / 10)


def test_progress_and_events_reach_the_end(tmp_path: Path) -> None:
    events: list[Event] = []
    trainer(tmp_path, ADAMW).run(events.append)
    shares = [event.progress for event in events]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert [event.epoch for event in events if event.valid is not None] == [1, 2]
    assert all(event.tokens_per_second > 0 for event in events)


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    trainer(tmp_path, ADAMW).run()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = trainer(tmp_path, ADAMW)
    assert again.finished
    again.run()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def goes_on(resumed: Trainer, folder: Path) -> None:
    """A run that goes on ends like one that nothing stopped."""
    resumed.run()
    undisturbed = trainer(folder, resumed.config)
    undisturbed.run()
    assert resumed.record.valid == undisturbed.record.valid
    for mine, true in zip(weights(resumed.model), weights(undisturbed.model), strict=True):
        assert torch.equal(mine, true)


@pytest.mark.parametrize("recurrent", ["float32", "bfloat16"])
def test_an_interrupt_leaves_a_run_that_goes_on(
    tmp_path: Path, recurrent: Literal["float32", "bfloat16"]
) -> None:
    config = dataclasses.replace(ADAMW, recurrent=recurrent)

    def interrupt(event: Event) -> None:
        if event.progress > 0.7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path / "a", config).run(interrupt, save_every=0)
    resumed = trainer(tmp_path / "a", config)
    assert resumed.record.epoch == 1
    assert resumed.record.position > 0
    goes_on(resumed, tmp_path / "b")


def test_a_run_that_is_stopped_saves_its_state_behind_the_segment(tmp_path: Path) -> None:
    stopping = trainer(tmp_path / "a", ADAMW)

    def stop(event: Event) -> None:
        stopping.stopped = stopping.record.segments == 5

    with pytest.raises(KeyboardInterrupt):
        stopping.run(stop, save_every=1e9)
    resumed = trainer(tmp_path / "a", ADAMW)
    assert resumed.record.segments == 5
    goes_on(resumed, tmp_path / "b")


def test_a_run_stopped_in_its_first_epoch_goes_on_even_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = training.save_checkpoint

    def stop_after_the_checkpoint(*args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "save_checkpoint", stop_after_the_checkpoint)
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, ADAMW).run(save_every=1e9)
    monkeypatch.undo()
    resumed = trainer(tmp_path, ADAMW)
    resumed.run()
    assert resumed.finished
    assert len(resumed.record.valid) == ADAMW.epochs


@pytest.mark.parametrize(
    ("named", "change"),
    [
        ("model", {"model": dataclasses.replace(MODEL, hidden_dim=8)}),
        ("training", {"config": dataclasses.replace(ADAMW, lr=0.02)}),
        ("dictionary_sha256", {"dictionary_sha256": "e" * 64}),
        ("text_sha256", {"text_sha256": {"train": "f" * 64}}),
    ],
)
def test_the_folder_of_another_run_is_refused(
    tmp_path: Path, named: str, change: dict[str, Any]
) -> None:
    trainer(tmp_path, ADAMW).run()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        CheckpointError, match=f"holds a run whose {named} differs; choose another folder"
    ):
        trainer(tmp_path, **{"config": ADAMW, **change})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_state_that_does_not_say_its_text_or_beginning_goes_on(tmp_path: Path) -> None:
    trainer(tmp_path, ADAMW).run()
    tensors, record = load_state(tmp_path / "training.safetensors")
    del record["text_sha256"], record["initial_sha256"]
    save_state(tmp_path / "training.safetensors", tensors, record)
    assert trainer(tmp_path, ADAMW, text_sha256={"train": "f" * 64}).record.text_sha256 == {
        "train": "f" * 64
    }


def test_a_run_begun_on_a_cpu_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer(tmp_path, ADAMW).run()
    moved = trainer(tmp_path, ADAMW)
    moved.device = torch.device("cuda")
    monkeypatch.setattr(Tensor, "to", lambda self, *_, **__: self)  # there need be no such device
    moved._resume()
    assert moved.finished


def test_a_checkpoint_counts_the_seconds_up_to_its_own_moment(tmp_path: Path) -> None:
    run = trainer(tmp_path, dataclasses.replace(ADAMW, epochs=1))
    run.run(save_every=1e9)
    assert 0 < read_config(tmp_path)["training"]["seconds"] <= run.record.seconds


def test_a_model_without_its_run_is_not_overwritten(tmp_path: Path) -> None:
    trainer(tmp_path, ADAMW).run()
    (tmp_path / "training.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match="already holds a model; choose another folder or delete it"
    ):
        trainer(tmp_path, ADAMW)


def test_a_truncated_state_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, ADAMW).run()
    path = tmp_path / "training.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="truncated"):
        trainer(tmp_path, ADAMW)


def test_the_state_carries_everything_that_moves(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    run.run()
    tensors, record = load_state(tmp_path / "training.safetensors")
    kinds = {name.split(".")[0] for name in tensors}
    assert kinds == {"model", "optimizer", "hidden", "rng"}
    assert {name.rsplit(".", 1)[1] for name in tensors if name.startswith("optimizer")} == {
        "ax", "eta", "mu", "step",
    }  # fmt: skip
    assert record["valid"] == run.record.valid


def live_tensors() -> tuple[int, int]:
    """Return the number of live tensors and the bytes of their distinct storages, without
    collecting.
    """
    found = [o for o in gc.get_objects() if type(o) in (Tensor, torch.nn.Parameter)]
    storages = {o.untyped_storage().data_ptr(): o.untyped_storage().nbytes() for o in found}
    return len(found), sum(storages.values())


@pytest.mark.parametrize("config", [SGD, ADAMW], ids=["sgd", "adamw"])
def test_fifty_steps_leave_no_tensors_behind_and_warn_of_nothing(
    tmp_path: Path, config: TrainingConfig
) -> None:
    measured: list[tuple[int, int]] = []
    config = dataclasses.replace(config, epochs=40, nonmono=100, bptt=5)

    def count(event: Event) -> None:
        # In mid-epoch: the fresh state after an epoch's end is made of fewer tensors.
        if run.record.segments >= 10 + 18 * len(measured) and event.valid is None:
            measured.append(live_tensors())
            if len(measured) == 4:
                raise KeyboardInterrupt

    gc.collect()
    gc.disable()  # a cycle that only the collector frees is growth, too
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = trainer(tmp_path, config)
            with pytest.raises(KeyboardInterrupt):
                run.run(count, save_every=0)
    finally:
        gc.enable()
    assert run.record.segments >= 64
    assert run.record.epoch >= 1
    assert len(set(measured)) == 1, measured


@pytest.mark.parametrize("softmax", ["full", "sampled"])
def test_gradients_of_words_are_added_into_one_lasting_matrix(tmp_path: Path, softmax: str) -> None:
    run = trainer(tmp_path, dataclasses.replace(ADAMW, softmax=softmax, samples=20, full_from=1.0))
    weight = run.model.embedding
    assert weight.grad is not None
    place = weight.grad.data_ptr()
    for _ in range(3):
        run.step()
        assert weight.grad.layout == torch.strided
        assert weight.grad.data_ptr() == place


def test_words_that_training_lacks_are_drawn_as_if_they_occurred_once() -> None:
    shares = _unigram(np.array([0, 0, 0, 2], dtype=np.uint16), 4, block=3)
    assert shares.tolist() == pytest.approx([3 / 6, 1 / 6, 1 / 6, 1 / 6])
    assert _unigram(np.array([0, 0, 0, 1], dtype=np.uint16), 2).tolist() == [0.75, 0.25]
