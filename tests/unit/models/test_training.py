from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from awd_lstm import (
    AWDLSTM,
    AWDLSTMConfig,
    CheckpointError,
    Event,
    Trainer,
    TrainingConfig,
    read_config,
)
from awd_lstm.checkpoint import STATE, load_state
from awd_lstm.document import CONFIG
from hebblm.errors import UserError
from hebblm.models import training
from hebblm.models.catalog import CHECKOUT, cached_folder, shipped_folder
from hebblm.models.presets import Preset
from hebblm.models.training import obtain_model, open_model, train_model
from hebblm.runtime.progress import Display
from hebblm.text import Dictionary, PreparedCorpus
from hebblm.text.binarize import prepared_corpus

from ...support import toy

CPU = torch.device("cpu")


def recipe(prepared: PreparedCorpus, epochs: int = 2) -> Preset:
    model = AWDLSTMConfig(
        len(prepared.dictionary),
        6,
        8,
        2,
        dropout=0.1,
        dropouth=0.1,
        dropouti=0.1,
        dropoute=0.0,
        wdrop=0.1,
    )
    return Preset(
        model, TrainingConfig(batch_size=4, epochs=epochs, optimizer="adamw", lr=0.01, bptt=10)
    )


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedCorpus:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "cache"))
    return toy.corpus(tmp_path / "corpus")


def train(prepared: PreparedCorpus, folder: Path, preset: Preset | None = None):  # type: ignore[no-untyped-def]
    return train_model(
        prepared, preset or recipe(prepared), folder, device=CPU, provenance={"command": "here"}
    )


def interrupt(event: Event) -> None:
    if event.epoch:
        raise KeyboardInterrupt


def interrupted(trainer: Trainer, name: str) -> None:
    trainer.run(interrupt, save_every=0.0)


def same(one: AWDLSTM, other: AWDLSTM) -> bool:
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def refuse_training(*args: object, **kwargs: object) -> None:
    raise AssertionError("nothing is to be trained")


def test_a_checkpoint_carries_all_that_reading_another_text_takes(
    prepared: PreparedCorpus, tmp_path: Path
) -> None:
    train(prepared, tmp_path / "model")
    record = read_config(tmp_path / "model")["training"]
    assert record["corpus"]["name"] == "toy"
    assert record["corpus"]["normalization"] == "raw"
    assert record["corpus"]["tokenizer"] == {"name": "whitespace"}
    assert record["command"] == "here" or record["provenance"]["command"] == "here"
    assert Dictionary.load(tmp_path / "model" / "dict.txt") == prepared.dictionary
    assert not (tmp_path / "model" / STATE).exists()


def test_an_interrupted_run_goes_on_to_the_same_weights(
    prepared: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(prepared, tmp_path / "whole")

    with monkeypatch.context() as patch:
        patch.setattr(training, "_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(prepared, tmp_path / "killed")
    assert (tmp_path / "killed" / STATE).exists()
    begun: list[dict[str, float]] = []
    add_task = Display.add_task
    monkeypatch.setattr(
        Display,
        "add_task",
        lambda self, *words, **task: begun.append(task) or add_task(self, *words, **task),
    )
    resumed = train(prepared, tmp_path / "killed")
    assert begun[0]["completed"] > 0.4 * begun[0]["total"], (
        "the estimate counts this run's steps alone"
    )
    assert same(whole, resumed)


def test_ctrl_c_within_a_segment_ends_behind_it_and_nothing_is_learned_twice(
    prepared: PreparedCorpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, step = train(prepared, tmp_path / "whole"), Trainer.step

    def press(trainer: Trainer) -> tuple[float, int]:
        if trainer.folder == tmp_path / "killed" and trainer.record.segments == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", press)
        with pytest.raises(KeyboardInterrupt):
            train(prepared, tmp_path / "killed")
    assert load_state(tmp_path / "killed" / STATE)[1]["segments"] == 4
    capsys.readouterr()
    resumed = train(prepared, tmp_path / "killed")
    told = " ".join(capsys.readouterr().err.split())
    assert "goes on in" in told
    assert "starts again" not in told
    assert same(whole, resumed)


def test_a_run_that_was_killed_before_it_learned_says_that_it_begins_anew(
    prepared: PreparedCorpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def killed(trainer: Trainer) -> tuple[float, int]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "_announce", lambda *args: None)
        patch.setattr(Trainer, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            train(prepared, tmp_path / "model")
    train(prepared, tmp_path / "model")
    assert "had learned nothing yet: it starts again from the beginning" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_finished_run_is_used_as_it_is_and_another_is_refused(
    prepared: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = train(prepared, tmp_path / "model")
    monkeypatch.setattr(training, "Trainer", refuse_training)
    assert torch.equal(train(prepared, tmp_path / "model").embedding, model.embedding)
    with pytest.raises(UserError, match="already holds another model"):
        train(prepared, tmp_path / "model", recipe(prepared, epochs=3))
    for other in (toy.corpus(tmp_path / "other", seed=9, words=12), other_validation(prepared)):
        with pytest.raises(UserError, match="already holds another model"):
            train(other, tmp_path / "model")
    document = read_config(tmp_path / "model")
    del document["training"]["corpus"]["text_sha256"]  # as an earlier version
    (tmp_path / "model" / CONFIG).write_text(json.dumps(document))
    train(other_validation(prepared), tmp_path / "model")


def test_a_model_fine_tuned_from_another_one_is_another_model(
    prepared: PreparedCorpus, tmp_path: Path
) -> None:
    train(prepared, tmp_path / "first")
    tune = lambda initial: train_model(  # noqa: E731
        prepared, recipe(prepared), tmp_path / "second", device=CPU, provenance={}, initial=initial
    )
    tuned = tune(tmp_path / "first")
    valid = [
        read_config(tmp_path / name)["training"]["valid_losses"] for name in ("first", "second")
    ]
    assert valid[1][0] < valid[0][0], "what was learned is there from the start"
    assert torch.equal(tune(tmp_path / "first").embedding, tuned.embedding)
    for beginning in (None, tmp_path / "second"):
        with pytest.raises(UserError, match="already holds another model"):
            tune(beginning)


def other_validation(prepared: PreparedCorpus) -> PreparedCorpus:
    splits = {**prepared.meta.splits, "valid": replace(prepared.split("valid"), sha256="0" * 64)}
    return replace(prepared, meta=replace(prepared.meta, splits=splits))


def test_a_run_is_refused_for_another_text_and_left_as_it_is(
    prepared: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(training, "_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(prepared, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    for other in (other_validation(prepared), toy.corpus(tmp_path / "other", seed=9, words=12)):
        with pytest.raises(UserError, match=r"holds a run whose .* differs"):
            train(other, tmp_path / "model")
        assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


def test_what_cannot_be_trained_or_written_is_a_users_mistake(
    prepared: PreparedCorpus, tmp_path: Path
) -> None:
    preset, folder = recipe(prepared), tmp_path / "model"
    for values, words in (
        ({"batch_size": 10_000}, "too few"),
        ({"lr": 1e38}, "training diverged: .*; lower lr"),
    ):
        with pytest.raises(UserError, match=words):
            train(prepared, folder, replace(preset, training=replace(preset.training, **values)))  # type: ignore[arg-type]
        assert not read_config(folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot write"):
        train(prepared, tmp_path / "file" / "model")


def test_a_model_meets_its_own_dictionary_only(
    prepared: PreparedCorpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(prepared, tmp_path / "model")
    loaded = open_model(tmp_path / "model", prepared.meta.dictionary_hash, CPU)
    described = loaded.describe()
    assert described["origin"] == "checkpoint"
    assert described["vocabulary_size"] == len(prepared.dictionary)
    assert described["parameters"] == sum(p.numel() for p in loaded.model.parameters())
    assert (
        described["weights_sha256"]
        == loaded.sha256
        == read_config(tmp_path / "model")["weights_sha256"]
    )
    with pytest.raises(CheckpointError, match="trained with dictionary"):
        open_model(tmp_path / "model", "0" * 64, CPU)
    assert "has not ended" not in capsys.readouterr().err
    (tmp_path / "model" / "training.safetensors").write_bytes(b"")  # as while it is trained
    open_model(tmp_path / "model", prepared.meta.dictionary_hash, CPU)
    assert "has not ended" in capsys.readouterr().err


def test_the_cached_model_is_trained_once_and_the_shipped_one_never(
    prepared: PreparedCorpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(training, "get_preset", lambda *args: recipe(prepared, epochs=1))
    monkeypatch.setitem(CHECKOUT, "tiny-toy-raw", "")
    ask = lambda: obtain_model(prepared, "tiny", seed=1, device=CPU, provenance={})  # noqa: E731
    first = ask()
    assert "training one, kept in" in (said := capsys.readouterr().err)
    assert "; a checkout of the repository has one" in said
    assert first.origin == "trained"
    assert first.folder == cached_folder(prepared, recipe(prepared, epochs=1))
    monkeypatch.setattr(training, "Trainer", refuse_training)
    assert ask().sha256 == first.sha256
    place = tmp_path / "shipped"
    monkeypatch.setattr("hebblm.models.catalog.models_path", lambda: place)
    place.mkdir()
    first.folder.rename(place / "tiny-toy-raw")
    assert ask().origin == "shipped"
    assert shipped_folder(prepared, "small") is None


def test_another_recipe_or_text_is_another_folder(prepared: PreparedCorpus, tmp_path: Path) -> None:
    other = toy.corpus(tmp_path / "other", seed=5)
    folders = {
        cached_folder(prepared, recipe(prepared)),
        cached_folder(prepared, recipe(prepared, epochs=3)),
        cached_folder(other, recipe(other)),
        cached_folder(other_validation(prepared), recipe(prepared)),
    }
    assert len(folders) == 4
    assert cached_folder(prepared, recipe(prepared)) in folders
    assert all("toy-raw-" in folder.name for folder in folders)


def test_a_text_is_prepared_once_a_policy_under_a_name_of_its_own(
    tmp_path: Path, prepared: PreparedCorpus
) -> None:
    for name in ("a b", "a-b"):
        (tmp_path / f"{name}.txt").write_text("The cat\nthe dog\n" * 20)
    asked = (("a b", None), ("a b", "lower"), ("a-b", "raw"))
    raw, lower, twin = (
        prepared_corpus(f"text:{tmp_path}/{name}.txt", policy) for name, policy in asked
    )
    assert len({raw.folder, lower.folder, twin.folder}) == 3
    assert (len(raw.dictionary), len(lower.dictionary)) == (6, 5)


def test_only_a_new_run_says_how_long_it_will_take_and_is_as_it_would_have_been(
    prepared: PreparedCorpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    announced = train(prepared, tmp_path / "announced")
    assert f"2 x {len(prepared.tokens('train')):,} tokens: about" in capsys.readouterr().err
    train(prepared, tmp_path / "announced")
    assert "about" not in capsys.readouterr().err
    monkeypatch.setattr(training, "_announce", lambda *args: None)
    assert same(announced, train(prepared, tmp_path / "silent"))
