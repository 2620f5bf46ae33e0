from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from hebblm.cli import vision
from hebblm.cli.vision import main
from hebblm.io.files import sha256
from hebblm.vision.data import load_digits
from hebblm.vision.permuted import draw
from hebblm.vision.result import digest
from hebblm.vision.scales import PERMUTED_SCALES as SCALES
from hebblm.vision.tables import tables

from .samples import mnist_files, tiny_cifar

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEBBLM_DATA", raising=False)
    monkeypatch.setenv("HEBBLM_MIRROR", "http://127.0.0.1:9")


def test_smoke_from_command_to_files(tmp_path: Path, capsys: Capture) -> None:
    command = [
        "permuted-mnist",
        "--scale",
        "smoke",
        "--seeds",
        "1",
        "2",
        "--set",
        "epochs=8",
        "tasks=2",
    ]
    command += ["tune_tasks=2", "--device", "cpu", "--output-path"]
    assert main([*command, "first"]) == 0
    assert "Hebb-50" in capsys.readouterr().out
    folder = tmp_path / "first"
    assert sorted(path.name for path in folder.iterdir()) == [
        "permuted-mnist.csv",
        "permuted-mnist.png",
        "report.html",
        "report.md",
        "result.json",
        "seed-1.safetensors",
        "seed-2.safetensors",
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
        drawn = draw(
            load_digits(), SCALES["smoke"].changed({"tasks": "2", "tune_tasks": "2"}), seed["seed"]
        )
        assert {name: digest(tensor) for name, tensor in vars(drawn).items()} == seed["sha256"]
        for name, method in document["methods"].items():
            right = (tensors[f"predictions.{name}"][1] == tensors["labels"]).double().mean(1)
            per_seed = next(entry for entry in method["seeds"] if entry["seed"] == seed["seed"])
            assert per_seed["accuracy"][1] == pytest.approx(right.tolist())
            assert per_seed["average_accuracy"] == pytest.approx(float(right.mean()))
    tried = [point["lr"] for point in document["tuning"]["tried"]["mbpa-25"]]
    assert document["settings"]["mbpa_rate"] == "relative"
    assert document["methods"]["mbpa-25"]["hyperparameters"]["rho"] in tried
    mlp, ewc = (document["methods"][name]["average_accuracy"]["mean"] for name in ("mlp", "ewc"))
    assert ewc > mlp > 0.3
    report = (folder / "report.md").read_text()
    assert "| MbPA-25 |" in report
    assert "| Order | paper |" in report
    assert " ahead of " in report.splitlines()[2]

    absolute = ["--seeds", "1", "--hyperparameters", "paper", "--output-path", "absolute"]
    assert (
        main(["permuted-mnist", "--scale", "smoke", "--set", "epochs=1", "tasks=1", *absolute]) == 0
    )
    papers = json.loads(Path("absolute/result.json").read_text())["methods"]["mbpa-25"]
    assert papers["hyperparameters"] == {"lambda": 0.05, "stored": 25}


CLASS_FILES = {
    "incremental": ["1-1-seed-1", "1-1-seed-2", "2-1-seed-1", "2-1-seed-2"],
    "online": ["5-seed-1", "5-seed-2"],
    "pretrain-classes": ["3-seed-1", "3-seed-2", "7-seed-1", "7-seed-2"],
    "sensitivity": ["5-seed-1", "5-seed-2"],
    "timing": [],
    "ablation": ["5-seed-1", "5-seed-2"],
}


@pytest.mark.parametrize("experiment", CLASS_FILES)
def test_experiments_on_classes_from_command_to_files(
    experiment: str, tmp_path: Path, capsys: Capture
) -> None:
    command = [
        experiment,
        "--scale",
        "smoke",
        "--seeds",
        "1",
        "2",
        "--device",
        "cpu",
        "--set",
        "varied=3,7",
    ]
    command += ["pretraining.epochs=4", "--output-path"]
    assert main([*command, "out"]) == 0
    shown = capsys.readouterr().out
    assert "MbPA" in shown
    assert "results in out" in shown
    figure = [] if experiment == "timing" else [f"{experiment}.png"]
    tensors = [f"{name}.safetensors" for name in CLASS_FILES[experiment]]
    document = json.loads(Path("out/result.json").read_text())
    data = [f"{table.name}.csv" for table in tables(document)]
    files = sorted([*figure, *tensors, *data, "report.html", "report.md", "result.json"])
    assert sorted(path.name for path in Path("out").iterdir()) == files
    assert document["schema"] == "hebblm-vision/1"
    assert document["experiment"] == experiment
    assert document["provenance"]["seeds"] == [1, 2]
    assert all(entry["pretraining"]["held_out_top1"] > 0.6 for entry in document["seeds"])
    if experiment == "timing":
        assert document["methods"]["parametric"]["ratio"]["median"] == 1
        return
    for method in document["methods"].values():
        for summary in method["conditions"].values():
            assert summary["overall"]["std"] is not None
            assert len(summary["seeds"]) == 2
    if experiment == "online":
        assert main([*command, "again"]) == 0
        again = json.loads(Path("again/result.json").read_text())
        for part in ("methods", "tuning", "seeds"):
            assert again[part] == document[part]


def test_every_stage_of_the_paper_scale() -> None:
    seeds = ["1", "2"]
    tiny_cifar(Path("data"))
    command = ["online", "--scale", "paper", "--backbone", "mobilenetv2-x0.5", "--device", "cpu"]
    command += ["--hyperparameters", "paper", "--seeds", *seeds, "--output-path", "out", "--set"]
    command += ["pretraining.epochs=1,1,1", "old_classes=3", "held_out=1", "adaptation.k=5"]
    command += ["online.streamed=6", "online.interval=3"]
    assert main(command) == 0
    document = json.loads(Path("out/result.json").read_text())
    assert document["scale"] == "paper"
    assert document["settings"]["pretraining"]["lr"] == [0.1, 0.01, 0.001]
    assert set(document["tuning"].values()) == {None}
    assert len({entry["pretraining"]["run"] for entry in document["seeds"]}) == len(seeds)
    (summary,) = document["methods"]["mbpa"]["conditions"].values()
    assert summary["hyperparameters"] == {"rate": 1e-4, "steps": 5}


@pytest.mark.parametrize(
    "named", [["--backbone", "densenet121"], ["--set", "backbone=densenet121"]]
)
def test_the_papers_values_are_those_of_the_network_that_is_named(
    named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    monkeypatch.setattr(vision, "_run", lambda _, settings, *further: found.append(settings))
    assert main(["incremental", "--hyperparameters", "paper", "--device", "cpu", *named]) == 0
    assert (found[0].backbone, found[0].adaptation.mbpa_steps) == ("densenet121", (10,))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            ["adaptation.mbpa_steps=3"],
            "adaptation.mbpa_steps belongs to rmsprop, but MbPA uses newton",
        ),
        (["adaptation.mbpa_lambda=0.1"], "or set adaptation.mbpa_optimizer=rmsprop"),
        (
            ["adaptation.mbpa_optimizer=rmsprop", "adaptation.mbpa_l2_to_base=0.1"],
            "adaptation.mbpa_l2_to_base belongs to newton",
        ),
    ],
)
def test_a_value_of_the_optimizer_that_is_not_followed_is_refused(
    values: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["online", "--scale", "smoke", "--output-path", "out", "--set", *values]) == 2
    assert told in capsys.readouterr().err
    assert not Path("out").exists()


def test_the_first_rank_alone_tries_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hebblm.vision.experiments.run_experiment", lambda *_: None)
    (tmp_path / "out").touch()  # where no folder can be made
    command = ["online", "--scale", "smoke", "--device", "cpu", "--output-path", "out"]
    assert main(command) == 2
    monkeypatch.setattr(vision, "leads", lambda: False)
    assert main(command) == 0


def damaged() -> None:
    """Put MNIST into data/ with a truncated file."""
    Path("data").mkdir()
    path = mnist_files(Path("data")) / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:20])


def few() -> None:
    """Put MNIST into data/ with too few pictures."""
    Path("data").mkdir()
    mnist_files(Path("data"))


def damaged_cifar() -> None:
    """Put CIFAR-100 into data/, truncated."""
    path = tiny_cifar(Path("data"))
    path.write_bytes(path.read_bytes()[:500])


@pytest.mark.parametrize(
    ("arguments", "prepare", "told"),
    [
        ([], None, "experiment"),
        (["permuted-mnist", "--set", "epoch=1"], None, "unknown setting 'epoch'"),
        (["permuted-mnist", "--set", "epochs"], None, "has no value"),
        (["permuted-mnist", "--scale", "smoke", "--seeds", "one"], None, "one"),
        (["permuted-mnist", "--scale", "smoke", "--set", "train_samples=5000"], None, "lower one"),
        (["permuted-mnist", "--device", "tpu"], None, "unknown device 'tpu'"),
        (
            ["permuted-mnist", "--scale", "small"],
            None,
            "cannot download train-images-idx3-ubyte.gz",
        ),
        (["permuted-mnist", "--scale", "small"], damaged, "truncated or damaged"),
        (["permuted-mnist", "--scale", "small"], few, "more than the 6 samples of MNIST"),
        (
            ["permuted-mnist", "--scale", "smoke", "--output-path", "/proc/here"],
            None,
            "cannot write /proc/here",
        ),
        (["permuted-mnist", "--backbone", "resnet50"], None, "takes no --backbone, not 'resnet50'"),
        (["online", "--backbone", "vgg"], None, "backbone = vgg must be one of resnet50, "),
        (
            ["online", "--scale", "smoke", "--hyperparameters", "paper"],
            None,
            "backbone 'cnn2-w16'; use --hyperparameters tuned",
        ),
        (
            ["online", "--scale", "smoke", "--set", "epochs=1"],
            None,
            "unknown setting 'epochs'; known are",
        ),
        (["ablation", "--scale", "smoke", "--seeds", "2", "2"], None, "each once"),
        (
            ["online", "--scale", "smoke", "--set", "old_classes=10"],
            None,
            "10 pre-training classes leave no",
        ),
        (["incremental", "--scale", "small"], None, "cannot download cifar-100-binary.tar.gz"),
        (["incremental", "--scale", "paper"], damaged_cifar, "truncated or not an archive"),
        (["timing", "--scale", "smoke", "--set", "timing.samples=360"], None, "360 test pictures"),
    ],
)
def test_says_what_is_wrong(
    arguments: list[str],
    prepare: Callable[[], None] | None,
    told: str,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    if prepare is not None:
        prepare()
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments) == 2
    *notes, error = capsys.readouterr().err.splitlines()
    assert all("is not the original file" in note for note in notes)
    assert error.startswith("hebblm-vision: error: ")
    assert told in error
    assert sorted(tmp_path.rglob("*")) == before
