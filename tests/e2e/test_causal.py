"""A model of transformers through the commands: reports by word, bits a byte, dynamic evaluation,
tuning.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import hebblm
from hebblm.adapt.grid import Grid
from hebblm.cli.eval import main as evaluate
from hebblm.cli.read import main as read
from hebblm.cli.tune import main as tune
from hebblm.errors import UserError
from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.hyperparameters import defaults
from hebblm.evaluation.neighbors import KEPT
from hebblm.evaluation.opening import open_scenario
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.models.update import TRANSFORMERS
from hebblm.report.render.inspection import inspect_page
from hebblm.report.result.tokens import Inspection, with_edges
from hebblm.tuning.tune import tune as tuned

from ..unit.models.architectures import random_model, tokenizer

METHODS = "lstm,dynamic,cache,knn,mixture,mbpa,hebb,mixture+hebb,dynamic+best"
WINDOW = ["--context", "32", "--stride", "16", "--device", "cpu"]


def test_every_method_is_reported_by_word(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = llama / "out"
    text, source = (llama / "text.txt"), f"text:{llama / 'train.txt'}"
    arguments = ["--model", str(llama / "model"), "--text", str(text), "--source", source, *WINDOW]
    assert (
        evaluate([*arguments, "--methods", METHODS, "--output-path", str(out), "--log-samples"])
        == 0
    )
    capsys.readouterr()
    result = json.loads((out / "result.json").read_text())
    words = text.read_text().replace("\n", " <eos> ").split()
    scenario, methods = result["scenario"], result["methods"]
    assert scenario["tokens"] == len(words) < scenario["pieces"]
    lm = hebblm.load(llama / "model", device="cpu", context=32, stride=16)
    scores = lm.reader("lstm").read(text.read_text())
    assert scenario["pieces"] == len(scores)
    plain = methods["lstm"]
    assert plain["nll"] * len(words) == pytest.approx(float(scores.nll.sum()), rel=1e-5)
    assert plain["bits_per_byte"] == pytest.approx(scores.bits_per_byte, rel=1e-5)
    assert plain["words_perplexity"] == pytest.approx(plain["perplexity"], rel=1e-5)
    # its first 80 %
    trained = " ".join(llama.joinpath("train.txt").read_text().splitlines()[:96]).split()
    new = [word != "<eos>" and word not in trained for word in words]
    assert 0 < scenario["oov_tokens"] == sum(new)
    table = pq.read_table(out / "tokens.parquet").to_pydict()
    assert table["token"] == words
    assert table["is_oov"] == new
    assert [
        count for word, count in zip(words, table["train_count"], strict=True) if word != "<eos>"
    ] == [trained.count(word) for word in words if word != "<eos>"]
    assert plain["oov_nll"] == pytest.approx(
        float(np.mean(np.array(table["nll_lstm"])[new])), rel=1e-5
    )
    assert sum(bucket["tokens"] for bucket in plain["frequency"]) == len(words)
    assert sum(bucket["tokens"] for bucket in plain["oov_occurrences"]) == sum(new)
    assert all(methods[name]["nll"] < plain["nll"] for name in METHODS.split(",")[1:])
    assert result["model"]["arch"] == "llama"
    assert result["model"]["learning_parameters"] == result["model"]["parameters"]


def test_the_front_door_evaluates_a_model_that_the_caller_holds(llama: Path) -> None:
    lm, out = (
        hebblm.load((random_model("Llama"), tokenizer()), context=32, stride=16),
        llama / "held",
    )
    logged = {"output_path": out, "log_samples": True, "log_neighbors": 120}
    found = hebblm.evaluate(
        lm,
        llama / "text.txt",
        ["base", "mixture"],
        device="cpu",
        max_tokens=150,
        update_every=20,
        **logged,
    )
    assert found.scenario.extra["pieces"] == 150
    assert found.scenario.oov_tokens == 0
    assert found.methods["mixture"].nll < found.methods["lstm"].nll
    text = llama / "text.txt"
    pieces = lm.vocabulary.encode(text.read_text(), include=False).tokens[:150]
    scores = lm.reader("lstm").read(text.read_text())
    bits = float(scores.nll[:150].double().sum()) / math.log(2)
    assert found.methods["lstm"].bits_per_byte == pytest.approx(
        bits / len("".join(pieces)), rel=1e-5
    )
    # No text to count words in: no bucket, no new word, and a report that says so.
    assert all(not item.frequency for item in found.methods.values())
    assert [gain.part for gain in found.methods["mixture"].gains] == ["All", "Pieces"]
    assert "training counts and new words not known" in (out / "report.md").read_text()
    assert "Training count" not in (out / "report.md").read_text()
    run = Inspection.load(out)
    assert run.losses.train_counts is None
    assert Inspection.load(out).methods() == ["mixture"]
    assert '"counts":null' in inspect_page(run)
    with pytest.raises(UserError, match="source=CORPUS"):
        with_edges(run.result, run.losses, [1])
    # Neighbours stand at their words: as many as the pieces of a word have together.
    table = pq.read_table(out / "neighbors.parquet").to_pydict()
    words = run.losses.words
    assert max(table["position"]) < words.size < 120
    assert len({*zip(table["position"], table["rank"], strict=True)}) == len(table["rank"])
    assert max(table["rank"]) > KEPT
    assert all(place < at for place, at in zip(table["place"], table["position"], strict=True))
    for at, label in list(zip(table["place"], table["label"], strict=True))[:50]:
        assert label.strip() in words[at].replace("<eos>", "\n")
    with pytest.raises(UserError, match="context is set"):
        hebblm.evaluate(lm, text, ["lstm"], device="cpu", context=8)


def test_the_training_text_is_remembered_beside_the_stream(llama: Path) -> None:
    options = {
        "source": f"text:{llama / 'train.txt'}",
        "device": "cpu",
        "context": 32,
        "stride": 16,
    }
    empty, filled = (
        hebblm.evaluate(
            llama / "model", llama / "text.txt", ["mixture"], memory_content=content, **options
        )
        for content in ("test", "both")
    )
    assert filled.methods["mixture"].nll != empty.methods["mixture"].nll
    assert filled.memory["entries"] > empty.memory["entries"] + 500


def test_reading_and_tuning_from_the_command_line(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text = str(llama / "model"), str(llama / "text.txt")
    assert read([model, text, "--suggest", "ba", "--generate", "ba", "--device", "cpu"]) == 0
    assert "bits a byte" in capsys.readouterr().out
    arguments = [
        "--model",
        model,
        "--text",
        text,
        *WINDOW,
        "--max-tokens",
        "60",
        "--methods",
        "mixture",
    ]
    assert tune([*arguments, "--output-path", str(llama / "tuned")]) == 0
    header, second = [
        line for line in capsys.readouterr().out.splitlines() if "Bits" in line or "byte" in line
    ]
    assert "Nats" in header
    assert second.split() == ["piece", "piece", "piece", "byte"]
    assert evaluate([*arguments, "--config", str(llama / "tuned" / "config.json")]) == 0
    assert "Mixture" in capsys.readouterr().out


def test_a_search_compares_with_the_defaults_of_its_kind_of_model(llama: Path) -> None:
    options = {
        "target": f"text:{llama / 'text.txt'}",
        "split": "valid",
        "context": 32,
        "stride": 16,
        "max_tokens": 60,
    }
    config = ScenarioConfig(model=str(llama / "model"), **options)  # type: ignore[arg-type]
    scenario = open_scenario(config, torch.device("cpu"), {})
    settings, _ = resolve_settings(config, "tune", {}, {})
    search = tuned(scenario, settings, Grid(), dynamic=False, methods={"cache"})
    assert search.usual == defaults() | TRANSFORMERS


def test_half_precision_weights_are_loaded_as_asked(llama: Path) -> None:
    lm = hebblm.load(llama / "model", device="cpu", dtype="bfloat16")
    assert lm.model.describe()["dtype"] == "bfloat16"
    assert lm.model.head.weight.dtype == torch.float32
