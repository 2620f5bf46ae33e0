from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from awd_lstm import AWDLSTM, AWDLSTMConfig, read_config
from hebblm.cli.eval import main
from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.io.files import sha256
from hebblm.io.installation import models_path
from hebblm.models.catalog import (
    ShippedModel,
    checkpoint_dictionary,
    is_causal,
    model_folder,
    shipped_models,
)


def test_the_models_that_ship_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--models"]) == 0
    said = capsys.readouterr().out
    for model in shipped_models():
        assert f"{model.parameters:,}" in said
        assert f"{model.valid_perplexity:.2f}" in said
        if is_causal(models_path() / model.name):
            continue
        config = AWDLSTMConfig(**read_config(models_path() / model.name)["config"])
        assert model.parameters == sum(p.numel() for p in AWDLSTM(config).parameters())


def test_a_model_of_transformers_says_what_it_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "llama-wt2"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    record = {"corpus": "wt2", "parameters": 12, "scores": {"valid": {"word_perplexity": 34.5}}}
    (folder / "training.json").write_text(json.dumps(record))
    monkeypatch.setattr("hebblm.models.catalog.models_path", lambda: tmp_path)
    assert shipped_models() == [ShippedModel("llama-wt2", "wt2", "raw", 12, 34.5)]
    for name in ("llama-wt2", str(folder)):
        config = ScenarioConfig(model=name, target="ptb").completed()
        assert (config.model, config.corpora(), config.normalization) == (
            str(folder),
            ("wt2", "ptb"),
            "raw",
        )
        assert (
            config
            == ScenarioConfig(checkpoint=Path(name), target="ptb").completed()
            == config.completed()
        )
    (folder / "training.json").unlink()
    assert ScenarioConfig(model="llama-wt2", target="ptb").completed().corpora() == (None, "ptb")


def test_a_shipped_model_knows_its_corpus_by_name_and_by_folder_unless_another_is_said() -> None:
    for name in (models_path() / "small-wt2-lower", Path("small-wt2-lower")):
        config = ScenarioConfig(checkpoint=name, target="ptb").completed()
        assert config.checkpoint == models_path() / "small-wt2-lower"
        assert (config.corpora(), config.normalization) == (("wt2", "ptb"), "lower")
        assert config.completed() == config
    asked = ScenarioConfig(
        checkpoint=Path("small-wt2-raw"), source="pydoc", target="ptb", normalization="lower"
    )
    assert (asked.completed().source, asked.completed().normalization) == ("pydoc", "lower")


def test_a_name_or_its_beginning_that_fits_one_model_is_enough() -> None:
    assert model_folder(Path("small-ptb")) == models_path() / "small-ptb-raw"
    assert model_folder(Path("tiny")) == models_path() / "tiny-pydoc-raw"
    for name in ("small-pbt", "small-wt2"):  # the second fits two
        with pytest.raises(UserError, match=f"unknown model '{name}'; did you mean small-"):
            model_folder(Path(name))


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.name)])
def test_what_is_no_folder_is_not_asked_of_the_hub(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("mine"))
    with pytest.raises(UserError, match="mine is not a folder; name the folder of a model"):
        model_folder(Path("mine"))


@pytest.mark.parametrize("name", ["tiny-pydoc-raw", None])
def test_options_of_other_models_are_refused(name: str | None) -> None:
    asked = {"checkpoint": name and Path(name), "source": "pydoc", "target": "numpy"}
    for option, value in (
        ("key", "ffn-input"),
        ("dtype", "float16"),
        ("context", 9),
        ("stride", 3),
    ):
        with pytest.raises(UserError, match=f"{option}={value} is for models of transformers"):
            ScenarioConfig(**asked, **{option: value}).completed()


def test_a_scenario_is_named_by_its_options() -> None:
    config = ScenarioConfig(
        checkpoint=Path("m"), text=Path("my text.txt"), k=50, max_tokens=9, split="valid"
    )
    config = replace(config, streams=4, memory_scope="stream")
    assert config.arguments() == ["--checkpoint", "m", "--text", "my text.txt", "--k", "50"]


@pytest.mark.parametrize("earlier", [False, True])
def test_changed_counts_of_a_checkpoints_dictionary_are_refused(
    tmp_path: Path, earlier: bool
) -> None:
    path = tmp_path / "dict.txt"
    path.write_text("a 3\n<eos> 2\n<unk> 0\n")
    corpus = {"train_tokens": 5} if earlier else {"dictionary_file_sha256": sha256(path)}
    (tmp_path / "config.json").write_text(
        json.dumps({"format": "awd-lstm/1", "training": {"corpus": corpus}})
    )
    assert checkpoint_dictionary(tmp_path).counts == (3, 2, 0)
    path.write_text("a 5\n<eos> 2\n<unk> 0\n")
    with pytest.raises(UserError, match=r"restore it"):
        checkpoint_dictionary(tmp_path)
