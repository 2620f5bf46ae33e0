from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hebblm
from hebblm.io.files import read_json
from recipes.bench import real
from recipes.bench.command import main

from ...unit.models.architectures import random_model, saved

TEXT = "The cat sat on the mat, and the dog sat on the log. " * 20


def test_the_plain_loop_has_the_losses_of_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that both read the same windows: these are full several times."""
    monkeypatch.setattr(real, "READ_AHEAD", 5)
    lm = hebblm.load(saved(random_model("Llama"), tmp_path / "model"), context=8, device="cpu")
    ids = torch.as_tensor(lm.vocabulary.encode(TEXT, include=False).ids)
    assert len(ids) > 3 * 8
    scores = lm.reader("cache").read(ids).unadapted
    assert scores is not None
    assert real._plain(lm, ids) == pytest.approx(float(scores.nll.sum()), rel=1e-4)


def test_the_command_measures_each_window(tmp_path: Path) -> None:
    model, text, out = (
        saved(random_model("Llama"), tmp_path / "model"),
        tmp_path / "text.txt",
        tmp_path / "real.json",
    )
    text.write_text(TEXT)
    words = [
        "real",
        "--model",
        str(model),
        "--text",
        str(text),
        "--tokens",
        "60",
        "--contexts",
        "8",
    ]
    assert main([*words, "--threads", "1", "--json", str(out)]) == 0
    (row,) = read_json(out)["rows"]
    assert row["case"]["window"] == 8
    assert set(row["timings"]) == {"plain", "base", "base,best"}
    assert row["values"]["times_base"] > 1
