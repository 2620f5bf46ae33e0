"""A checkpoint by itself: the text it was trained on is found, or what needs it is refused or left
out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hebblm.adapt.methods import DEFAULT_METHODS
from hebblm.cli.eval import main as evaluate
from hebblm.cli.tune import main as tune
from hebblm.text.binarize import prepared_corpus

from .conftest import World
from .conftest import result as read
from .test_own_text import CPU, LITTLE, losses


def test_a_checkpoint_finds_the_text_it_was_trained_on(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    moving = ["--text", str(world.other), "--methods", "lstm,dynamic", *LITTLE]
    for name, source in (("named", ["--source", str(world.prepared)]), ("found", [])):
        asked = [
            "--checkpoint",
            str(world.model),
            *source,
            *moving,
            "--output-path",
            str(tmp_path / name),
        ]
        assert evaluate(asked) == 0
    found, named = (read(tmp_path / name) for name in ("found", "named"))
    assert losses(tmp_path / "found") == losses(tmp_path / "named")
    hashes = [
        sorted(map(str, each["provenance"]["data_sha256"].values())) for each in (found, named)
    ]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 2, (
        "of the text that was read, and of that which the model was trained on"
    )
    # Without it dynamic evaluation goes by the text that is read, and is not tuned; both are told.
    quick = ["--text", str(world.other), "--max-tokens", "20", *CPU]
    absent = tmp_path / "gone"
    monkeypatch.setattr(
        "hebblm.models.catalog.prepared_corpus", lambda *_, **__: prepared_corpus(str(absent), None)
    )
    assert (
        evaluate(
            ["--checkpoint", str(world.model), *quick, "--output-path", str(tmp_path / "left")]
        )
        == 0
    )
    assert "dynamic evaluation finds its rate on the text that it reads" in capsys.readouterr().err
    assert list(losses(tmp_path / "left")) == list(DEFAULT_METHODS)
    assert read(tmp_path / "left")["methods"]["dynamic"]["hyperparameters"]["rule"] == "stream"
    assert (
        tune(["--checkpoint", str(world.model), *quick, "--output-path", str(tmp_path / "tuned")])
        == 0
    )
    assert "dynamic evaluation is left out: the training text of" in capsys.readouterr().err
    assert "dynamic.lr" not in json.loads((tmp_path / "tuned" / "tuned.json").read_text())["values"]
    for module in ("run.shared_pass", "passes.dynamic_pass"):
        monkeypatch.setattr(
            f"hebblm.evaluation.{module}",
            lambda *_, **__: pytest.fail("read before it was refused"),
        )
    monkeypatch.setattr(
        "hebblm.tuning.tune.tune_static", lambda *_: pytest.fail("tuned before it was refused")
    )
    capsys.readouterr()
    for corpus, why in (
        (tmp_path / "gone", "unknown corpus"),
        (world.other_prepared, "has other words here"),
    ):
        # As if the folder that the checkpoint names were not there by now, or held another text.
        monkeypatch.setattr(
            "hebblm.models.catalog.prepared_corpus",
            lambda _, *rest, c=corpus: prepared_corpus(str(c), *rest),
        )
        for command in (evaluate, tune):
            rms = ["--set", "dynamic.rule=rms"] if command is evaluate else []
            assert command(["--checkpoint", str(world.model), *moving, *rms]) == 2
            said = capsys.readouterr().err
            assert "is needed, but " in said
            assert why in said
            assert "leave dynamic evaluation out of --methods" in said
    assert tune(["--checkpoint", str(world.model), *moving, "--set", "dynamic.rule=stream"]) == 2
    assert "dynamic.rule=stream finds its rate by itself" in capsys.readouterr().err
