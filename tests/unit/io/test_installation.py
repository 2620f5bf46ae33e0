"""What comes with hebblm is found in a checkout and in an installation, which has the tiny model
alone.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

from hebblm.cli.common import parse
from hebblm.cli.train import TrainConfig
from hebblm.errors import UserError
from hebblm.io import installation
from hebblm.io.installation import manifest_path, models_path
from hebblm.models.catalog import CHECKOUT

ROOT = Path(__file__).parents[3]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_a_checkout_has_its_own_data() -> None:
    assert manifest_path() == ROOT / "data" / "corpora.json"
    assert models_path() == ROOT / "data" / "models"


def test_an_installation_finds_its_data_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lib" / "hebblm"
    monkeypatch.setattr(installation, "PACKAGE", package)
    (tmp_path / "lib" / "data" / "models").mkdir(parents=True)  # of another project
    with pytest.raises(UserError, match=r"the list of corpora is missing .*install hebblm again"):
        manifest_path()
    (package / "data" / "models").mkdir(parents=True)
    (package / "data" / "corpora.json").write_text("{}")
    assert manifest_path() == package / "data" / "corpora.json"
    assert models_path() == package / "data" / "models"


def test_an_installation_gets_the_tiny_model_and_the_tuned_values() -> None:
    data, models = ROOT / "data", ROOT / "data" / "models"
    patterns = SETUPTOOLS["package-data"]["hebblm.data"]
    installed = {file for pattern in patterns for file in data.glob(pattern)}
    wanted = [path for name in ("tiny-pydoc-raw", "tuned") for path in (models / name).iterdir()]
    assert installed == {data / "corpora.json", *wanted}
    assert {path.name for path in models.iterdir()} == {
        "tiny-pydoc-raw",
        "tuned",
        "vision",
        *CHECKOUT,
    }


def test_every_package_is_installed() -> None:
    found = {
        str(path.parent.relative_to(ROOT)).replace(os.sep, ".")
        for package in ("hebblm", "awd_lstm")
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert {*SETUPTOOLS["packages"]} == {*found, "hebblm.data"}


def test_the_commands_that_train_a_missing_model_are_understood() -> None:
    commands = [shlex.split(command) for command in CHECKOUT.values() if command]
    assert len(commands) == 3
    for name, *arguments in commands:
        assert name == "hebblm-train"
        parse(
            TrainConfig,
            [*arguments, "--output-path", "model"],
            prog=name,
            description="",
            example="",
        )


@pytest.mark.slow
def test_a_wheel_has_the_tiny_model_and_names_the_others(tmp_path: Path) -> None:
    def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            check=False,
        )

    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "hebblm",
        "awd_lstm",
        "data/corpora.json",
        "data/models",
    ):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).symlink_to(ROOT / name)
    options = ("--quiet", "--no-deps", "--no-build-isolation")
    built = run("-m", "pip", "wheel", *options, "--wheel-dir", tmp_path, source)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 12_000_000
    installed = run("-m", "pip", "install", *options[:2], "--target", target, wheel)
    assert installed.returncode == 0, installed.stderr
    evaluate = partial(
        run, "-m", "hebblm.cli.eval", PYTHONPATH=str(target), HEBBLM_CACHE=str(tmp_path / "cache")
    )
    listed = evaluate("--models")
    assert "tiny-pydoc-raw" in listed.stdout
    assert "Only in a checkout of the repository" in listed.stdout
    read = evaluate(
        "--checkpoint",
        "tiny-pydoc-raw",
        "--target",
        "numpy",
        "--max-tokens",
        "100",
        "--methods",
        "lstm",
    )
    assert read.returncode == 0, read.stderr
    for name, command in CHECKOUT.items():
        refused = evaluate("--checkpoint", name, "--target", "numpy")
        assert refused.returncode == 2
        (line,) = refused.stderr.splitlines()
        assert (
            f"{name} is not installed; run pip install -e . in a checkout of the repository" in line
        )
        assert command in line
