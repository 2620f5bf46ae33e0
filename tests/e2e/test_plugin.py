"""A method of the user's own, in one file, is known to every command and to Python."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

import hebblm
from hebblm.adapt import methods
from hebblm.adapt.methods import METHODS, check_methods, register
from hebblm.errors import UserError

from .conftest import World, refused, result, run

Capture = pytest.CaptureFixture[str]
PAGE = Path(__file__).parents[2] / "docs" / "new-method.md"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The method of the page, as a reader of the page saves it."""
    path = tmp_path / "recent_words.py"
    path.write_text(
        re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    )
    return path


def test_a_command_evaluates_it(world: World, plugin: Path, tmp_path: Path) -> None:
    line = (
        f"eval --checkpoint {world.model} --target {world.other_prepared} --max-tokens 200 "
        "--device cpu"
    )
    run(
        f"{line} --plugin {plugin} --methods lstm,recent --set recent.share=0.3 --output-path "
        f"{tmp_path / 'out'}"
    )
    found = result(tmp_path / "out")["methods"]
    assert found["recent"]["hyperparameters"] == {"share": 0.3, "window": 100}
    assert found["recent"]["nll"] != found["lstm"]["nll"]


def test_a_reader_adapts_by_it(world: World, plugin: Path) -> None:
    methods.load_plugin(plugin)
    scores = hebblm.load(world.model).reader(method="recent").read(world.other.read_text()[:2000])
    assert scores.unadapted is not None
    assert scores.perplexity != scores.unadapted.perplexity


def test_an_installed_package_registers_it(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(plugin.parent)
    points = [importlib.metadata.EntryPoint("recent", "recent_words", "hebblm.methods")]
    monkeypatch.setattr(
        methods, "entry_points", lambda group: points if group == "hebblm.methods" else []
    )
    check_methods(["recent"])
    with pytest.raises(UserError, match="unknown method 'recently'"):
        check_methods(["recently"])


def test_names_that_are_taken_are_refused(plugin: Path) -> None:
    with pytest.raises(UserError, match="a method 'knn' is there already; give yours another name"):
        register(METHODS["knn"])
    plugin.write_text(plugin.read_text().replace('section = "recent"', 'section = "knn"'))
    with pytest.raises(UserError, match="a section 'knn' of settings is there already"):
        methods.load_plugin(plugin)
    assert "recent" not in METHODS


def test_a_file_that_fails_is_one_line(world: World, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    line = f"eval --checkpoint {world.model} --target {world.other_prepared} --plugin"
    refused(
        capsys,
        f"{line} {tmp_path / 'broken.py'}",
        "broken.py fails: ZeroDivisionError: division by zero",
    )
    refused(capsys, f"{line} {tmp_path / 'absent.py'}", "absent.py fails: FileNotFoundError")
