"""Committed JSON is small, and says what it said before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hebblm.errors import UserError
from hebblm.io.files import write_json
from hebblm.report import Result
from recipes.compact import COMMITTED, POINTS, compact, json_files, lines, thin

from ..report.samples import sample_result


def test_committed_json_is_compact_and_small() -> None:
    files = list(json_files(COMMITTED))
    assert len(files) > 100
    other = [path for path in files if path.read_text(encoding="utf-8") != compact(path)]
    assert not other, "run python -m recipes.compact"
    assert sum(path.stat().st_size for path in json_files(COMMITTED[:1])) <= 5_000_000


def test_a_result_loads_as_before_with_a_shorter_curve(tmp_path: Path) -> None:
    result = sample_result()
    curve = tuple((at, 4 + 1 / at) for at in range(1, 401))
    methods = {name: replace(item, running=curve) for name, item in result.methods.items()}
    path = replace(result, methods=methods).save(tmp_path)
    size = path.stat().st_size
    path.write_text(compact(path), encoding="utf-8")
    assert path.stat().st_size < size / 4
    assert path.read_text(encoding="utf-8") == compact(path), "what is compact stays as it is"
    found = Result.load(path)
    for name, item in found.methods.items():
        assert item.nll == pytest.approx(methods[name].nll, rel=1e-9)
        assert len(item.running) == POINTS
        assert item.running[-1] == (400, 4.0025)
    path.write_text(path.read_text(encoding="utf-8").replace("4.0025", "4.0035"), encoding="utf-8")
    with pytest.raises(UserError, match="was changed since it was written"):
        Result.load(path)


def test_image_results_keep_the_curves_that_are_shown(tmp_path: Path) -> None:
    curve = [{"at": at, "new": {"mean": 1 / 3, "std": None}} for at in range(1, 101)]
    seeds = [{"seed": 1, "new": 0.5, "curve": curve}]
    kept = {}
    for experiment in ("incremental", "online", "sensitivity", "timing"):
        method = {"seconds": {"median": 1.0}}
        if experiment != "timing":
            method = {"conditions": {"50": {"curve": curve, "seeds": seeds}}}
        path = tmp_path / f"{experiment}.json"
        write_json(
            path,
            {"schema": "hebblm-vision/1", "experiment": experiment, "methods": {"hebb": method}},
        )
        found = json.loads(compact(path))["methods"]["hebb"]
        if experiment == "timing":
            assert found == method
        else:
            condition = found["conditions"]["50"]
            kept[experiment] = len(condition["curve"]), len(condition["seeds"][0]["curve"])
    assert kept == {"incremental": (100, 100), "online": (POINTS, 0), "sensitivity": (0, 0)}


def test_scores_are_kept_where_they_chose_or_are_shown(tmp_path: Path) -> None:
    chose = {"eta": 0.1, "old": 0.5, "new": 0.25, "harmonic_mean": 1 / 3, "loss": 1.0}
    both = [chose, {**chose, "overall": 0.4}]
    tuning = {"50": {"parametric": both, "hebb": both, "mbpa": [chose]}}
    path = tmp_path / "online.json"
    document = {"schema": "hebblm-vision/1", "experiment": "online", "methods": {}}
    write_json(path, {**document, "tuning": tuning})
    found = json.loads(compact(path))["tuning"]["50"]
    assert found["mbpa"] == [{**chose, "harmonic_mean": 0.333333}]
    shown = {"eta": 0.1, "old": 0.5, "new": 0.25, "loss": 1.0, "overall": 0.4}
    assert found["parametric"][1] == shown
    assert found["hebb"][1] == {"eta": 0.1, "loss": 1.0, "overall": 0.4}


def test_a_curve_keeps_its_end() -> None:
    assert thin([]) == []
    assert thin([1, 2, 3]) == [1, 2, 3]
    long = thin(list(range(1, 1001)))
    assert (len(long), long[-1]) == (POINTS, 1000)


def test_long_values_have_a_line_for_each_item() -> None:
    value = {"short": {"a": [1, 2]}, "long": {str(number): ["x" * 99] for number in range(20)}}
    text = lines(value)
    assert json.loads(text) == value
    assert text.count("\n") == 1 + 2 + 20 + 1
    assert text.startswith('{\n"short":{"a":[1,2]},\n"long":{\n')
