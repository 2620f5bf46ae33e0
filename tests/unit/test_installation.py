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

from hebblm import installation
from hebblm.cli.common import parse
from hebblm.cli.train import TrainConfig
from hebblm.errors import UserError
from hebblm.installation import manifest_path, models_path
from hebblm.models.catalog import CHECKOUT

ROOT = Path(__file__).parents[2]


def test_a_checkout_has_its_own_data() -> None:
    assert manifest_path() == ROOT / "data" / "corpora.json"
    assert models_path() == ROOT / "data" / "models"


def test_an_installation_finds_its_data_below_the_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        installation, "__file__", str(tmp_path / "lib" / "hebblm" / "installation.py")
    )
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(UserError, match=r"the list of corpora is missing .*install hebblm again"):
        manifest_path()
    share = tmp_path / "share" / "hebblm"
    (share / "models").mkdir(parents=True)
    (share / "corpora.json").write_text("{}")
    assert manifest_path() == share / "corpora.json"
    assert models_path() == share / "models"


def test_an_installation_gets_the_tiny_model_and_the_tuned_values() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "data-files"
    ]
    installed = {
        (Path(target) / file.name).relative_to("share/hebblm"): file
        for target, patterns in listed.items()
        for pattern in patterns
        for file in ROOT.glob(pattern)
    }
    data, models = ROOT / "data", ROOT / "data" / "models"
    wanted = [path for name in ("tiny-pydoc-raw", "tuned") for path in (models / name).iterdir()]
    assert (
        {data / target for target in installed}
        == set(installed.values())
        == {data / "corpora.json", *wanted}
    )
    assert {path.name for path in models.iterdir()} == {
        "tiny-pydoc-raw",
        "tuned",
        "vision",
        *CHECKOUT,
    }


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
