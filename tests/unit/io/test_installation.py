"""What comes with hebblm is found in a checkout and in an installation, which has the tiny model
alone.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
from functools import partial
from pathlib import Path

import pytest

from hebblm.cli.common import parse
from hebblm.cli.train import TrainConfig
from hebblm.errors import UserError
from hebblm.io import installation
from hebblm.io.installation import manifest_path, models_path
from hebblm.models.catalog import CHECKOUT

from ...support.served import serving

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]


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
        parse(TrainConfig, arguments, prog=name, description="", example="")


def build_wheel(tmp_path: Path) -> Path:
    """Build the wheel of what is in the checkout, and return it."""
    source = tmp_path / "source"
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
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


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

    target = tmp_path / "target"
    wheel = build_wheel(tmp_path)
    assert wheel.stat().st_size < 12_000_000
    options = ("--quiet", "--no-deps")
    installed = run("-m", "pip", "install", *options, "--target", target, wheel)
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


def test_the_extra_of_the_server_names_what_it_imports() -> None:
    project = PYPROJECT["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    names = {re.split(r"[^\w-]", one)[0].replace("-", "_").lower() for one in declared}
    names |= {"anyio"}  # of starlette, which cannot be without it
    imported = set()
    for path in [*(ROOT / "hebblm" / "serve").glob("*.py"), ROOT / "hebblm" / "cli" / "serve.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    others = imported - set(sys.stdlib_module_names) - {"hebblm"}
    assert {"starlette", "uvicorn", "torch"} <= others
    assert others <= names


@pytest.mark.slow
def test_a_wheel_with_the_extra_serves_the_tiny_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the wheel needs is taken from the environment of the tests, so that nothing is fetched;
    hebblm itself is the wheel's.
    """
    for needed in ("starlette", "uvicorn", "sse_starlette", "prometheus_client"):
        pytest.importorskip(needed)
    wheel, environment = build_wheel(tmp_path), tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    for name in ("PYTHONPATH", "HEBBLM_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*words: str | Path) -> str:
        done = subprocess.run([python, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    run("-m", "pip", "install", "--quiet", "--no-deps", wheel)
    run("-m", "pip", "uninstall", "--quiet", "--yes", "setuptools")  # older than torch's
    here = run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(here, "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    told = run("-m", "pip", "install", "--no-index", "hebblm[serve]")  # fails if it lacks one
    assert "does not provide the extra" not in told
    assert here in run("-c", "import hebblm; print(hebblm.__file__)")
    monkeypatch.setattr(sys, "executable", str(python))
    with serving(tmp_path, "tiny-pydoc-raw") as served:
        served.post("/v1/documents", text="Call frobnitz with two arguments .\n" * 3, name="a")
        words = served.post("/v1/suggest", prefix="Call fro", n=1)["suggestions"]
        assert [one["word"] for one in words] == ["frobnitz"]
        assert "<title>hebblm</title>" in served.ask("/")[1]
        assert served.end() == 0
