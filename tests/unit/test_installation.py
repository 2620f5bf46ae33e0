"""What comes with hebblm is found in a checkout and in an installation, and the installation has all of it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from hebblm import installation
from hebblm.errors import UserError
from hebblm.installation import manifest_path, models_path

ROOT = Path(__file__).parents[2]


def test_a_checkout_has_its_own_data() -> None:
    assert manifest_path() == ROOT / "data" / "corpora.json"
    assert models_path() == ROOT / "data" / "models"


def test_an_installation_finds_its_data_below_the_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "lib" / "hebblm" / "installation.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(UserError, match=r"the list of corpora is missing .*install hebblm again"):
        manifest_path()
    share = tmp_path / "share" / "hebblm"
    (share / "models").mkdir(parents=True)
    (share / "corpora.json").write_text("{}")
    assert manifest_path() == share / "corpora.json"
    assert models_path() == share / "models"


def test_an_installation_gets_every_file_of_the_data_folder() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    installed = {
        (Path(target) / file.name).relative_to("share/hebblm"): file
        for target, patterns in listed.items()
        for pattern in patterns
        for file in ROOT.glob(pattern)
    }
    data = ROOT / "data"
    shipped = {data / "corpora.json", *(path for path in (data / "models").rglob("*") if path.is_file())}
    assert {data / target for target in installed} == set(installed.values()) == shipped
