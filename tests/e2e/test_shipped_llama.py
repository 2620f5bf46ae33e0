"""The model of transformers that ships, by its name, through every command that takes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hebblm.cli.eval import main as evaluate
from hebblm.cli.memory import main as memory
from hebblm.cli.read import main as read
from hebblm.cli.report import main as report
from hebblm.cli.tune import main as tune

METHODS = "lstm,dynamic,cache,knn,mixture,mbpa,hebb,mixture+mbpa,best"
MODEL = "llama-wt2-small"
TEXT = "The village of Frobnitz lies on the river Quux .\nFrobnitz was founded by settlers from the north .\n"


def test_from_a_text_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT * 10)
    Path("source.txt").write_text(TEXT * 10)
    device = ["--device", "cpu"]
    assert memory(["build", "--model", MODEL, "--text", "text.txt", "--output-path", "held", *device]) == 0
    assert memory(["info", "held"]) == 0
    told = capsys.readouterr().out
    assert "llama" in told.lower()
    seen = ["--memory", "held", "--read-only"]
    assert read([MODEL, "text.txt", *seen, "--suggest", "The village of", "--generate", "Frobnitz", *device]) == 0
    assert "bits a byte" in capsys.readouterr().out
    source = ["--model", MODEL, "--text", "text.txt", *device]
    source += ["--source", "text:source.txt", "--max-tokens", "150"]
    assert tune([*source, "--methods", "cache,mixture", "--output-path", "tuned"]) == 0
    logs = ["--log-samples", "--log-neighbors", "10"]  # none were retrieved so early
    options = ["--methods", METHODS, *logs, "--set", "dynamic.rule=sgd", "dynamic.lr=0.01"]
    assert evaluate([*source, *options, "--hyperparameters", "tuned/tuned.json", "--output-path", "run"]) == 0
    result = json.loads(Path("run/result.json").read_text())
    base = result["methods"]["lstm"]["nll"]
    assert all(result["methods"][name]["nll"] < base for name in ("cache", "mixture", "mbpa", "dynamic"))
    assert report(["run"]) == 0
    assert report(["inspect", "run"]) == 0
    assert "Frobnitz" in Path("run/inspect.html").read_text()
