from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from hebblm.cli.vision import main
from hebblm.files import sha256
from hebblm.vision.digits import load_digits
from hebblm.vision.settings import SCALES
from hebblm.vision.tasks import draw, generator

from .samples import mnist_files

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEBBLM_DATA", raising=False)


def numbers(document: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a result that the same command has to repeat."""
    methods = json.loads(json.dumps(document["methods"]))
    for method in methods.values():
        for seed in method["seeds"]:
            del seed["seconds"]
    return {"methods": methods, "tuning": document["tuning"]}


def test_smoke_from_command_to_files(tmp_path: Path, capsys: Capture) -> None:
    command = ["permuted-mnist", "--scale", "smoke", "--seeds", "1", "2", "--set", "epochs=8", "tasks=2"]
    command += ["tune_tasks=2", "--device", "cpu", "--output-path"]
    assert main([*command, "first"]) == 0
    assert "Hebb-50" in capsys.readouterr().out
    folder = tmp_path / "first"
    assert sorted(path.name for path in folder.iterdir()) == [
        "permuted-mnist.png",
        "report.md",
        "result.json",
        "seed-1.safetensors",
        "seed-2.safetensors",
        "tables.tex",
    ]
    document = json.loads((folder / "result.json").read_text())
    assert document["schema"] == "hebblm-vision/1"
    assert document["provenance"]["seeds"] == [1, 2]
    assert document["provenance"]["command"].startswith("hebblm-vision permuted-mnist")
    assert set(document["data"]["sha256"]) == {"pixels and labels"}
    assert document["settings"]["epochs"] == 8
    for seed in document["seeds"]:
        file = folder / seed["file"]
        assert sha256(file) == seed["file_sha256"]
        tensors = load_file(file)
        drawn = draw(load_digits(), SCALES["smoke"].changed({"tasks": "2", "tune_tasks": "2"}), seed["seed"])
        assert drawn.sha256() == seed["sha256"]
        for name, method in document["methods"].items():
            right = (tensors[f"predictions.{name}"][1] == tensors["labels"]).double().mean(1)
            per_seed = next(entry for entry in method["seeds"] if entry["seed"] == seed["seed"])
            assert per_seed["accuracy"][1] == pytest.approx(right.tolist())
            assert per_seed["average_accuracy"] == pytest.approx(float(right.mean()))
    mlp, ewc = (document["methods"][name]["average_accuracy"]["mean"] for name in ("mlp", "ewc"))
    assert ewc > mlp > 0.3
    report = (folder / "report.md").read_text()
    assert "| MbPA-25 |" in report
    assert "Order in the paper" in report
    assert "\\begin{tabular}" in (folder / "tables.tex").read_text()

    assert main([*command, "second"]) == 0
    assert numbers(json.loads(Path("second/result.json").read_text())) == numbers(document)


def test_generators_do_not_depend_on_each_other() -> None:
    assert generator(1, "a").initial_seed() != generator(1, "b").initial_seed()
    assert generator(1, "a").initial_seed() != generator(2, "a").initial_seed()


def damaged() -> None:
    """Put MNIST into data/ with a truncated file."""
    Path("data").mkdir()
    path = mnist_files(Path("data")) / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:20])


def tiny_mnist() -> None:
    """Put MNIST into data/ with too few pictures."""
    Path("data").mkdir()
    mnist_files(Path("data"))


@pytest.mark.parametrize(
    ("arguments", "prepare", "told"),
    [
        ([], None, "experiment"),
        (["rotated-mnist"], None, "rotated-mnist"),
        (["permuted-mnist", "--scale", "huge"], None, "huge"),
        (["permuted-mnist", "--set", "epoch=1"], None, "unknown setting 'epoch'"),
        (["permuted-mnist", "--set", "epochs"], None, "has no value"),
        (["permuted-mnist", "--set", "epochs=0"], None, "epochs = 0 is out of range"),
        (["permuted-mnist", "--hyperparameters", "best"], None, "best"),
        (["permuted-mnist", "--scale", "smoke", "--seeds", "1", "1"], None, "each once"),
        (["permuted-mnist", "--scale", "smoke", "--seeds", "one"], None, "one"),
        (["permuted-mnist", "--scale", "smoke", "--set", "train_samples=5000"], None, "lower one"),
        (["permuted-mnist", "--device", "tpu"], None, "unknown device 'tpu'"),
        (["permuted-mnist", "--scale", "small"], None, "no train-images-idx3-ubyte.gz in"),
        (["permuted-mnist", "--scale", "small"], damaged, "truncated or damaged"),
        (["permuted-mnist", "--scale", "small"], tiny_mnist, "more than the 6 samples of MNIST"),
        (
            ["permuted-mnist", "--scale", "smoke", "--output-path", "/proc/here"],
            None,
            "cannot write /proc/here",
        ),
    ],
)
def test_says_what_is_wrong(
    arguments: list[str], prepare: Callable[[], None] | None, told: str, tmp_path: Path, capsys: Capture
) -> None:
    if prepare is not None:
        prepare()
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("hebblm-vision: error: ")
    assert told in lines[0]
    assert sorted(tmp_path.rglob("*")) == before
