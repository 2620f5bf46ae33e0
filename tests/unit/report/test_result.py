from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hebblm.errors import UserError
from hebblm.report.render.result import Result
from hebblm.report.result.numbers import display, perplexity
from hebblm.report.result.parts import FrequencyBucket
from hebblm.report.result.record import decode, encode

from .samples import sample_result

FIXTURE = Path(__file__).parents[2] / "data" / "report" / "result.json"


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return document


def test_the_contract_is_read_field_by_field() -> None:
    result = Result.load(FIXTURE)
    assert result.scenario.label == "ptb test"
    assert result.scenario.extra == {"update_every": 100}
    assert result.provenance["versions"] == {"torch": "2.13.0"}
    lstm, cache = result.methods["lstm"], result.methods["cache"]
    assert lstm.oov_nll is None
    assert lstm.stabilized_queries is None
    assert lstm.frequency[1] == FrequencyBucket("50-100", 0, None, None)
    assert cache.nll == math.inf
    assert cache.running == ((5, 2.5), (10, math.inf))
    assert cache.extra == {"windows_tried": [500, 2000]}


def test_what_was_read_is_written_back_unchanged() -> None:
    assert Result.load(FIXTURE).to_json() == _document()


def test_save_and_load_round_trip(tmp_path: Path) -> None:
    result = sample_result(400)
    path = result.save(tmp_path / "new" / "folder")
    assert path.name == "result.json"
    assert Result.load(path) == result
    assert Result.load(path.parent) == Result.load(str(path.parent)) == result
    assert [item.name for item in path.parent.iterdir()] == ["result.json"]


def test_a_text_of_ones_own_is_called_by_its_file() -> None:
    scenario = replace(
        sample_result(400).scenario, source="text:/home/me/a.b.txt", target="text:notes/"
    )
    assert scenario.label == "a.b.txt-to-notes test"
    assert replace(scenario, source=scenario.target).label == "notes test"
    assert (
        replace(scenario, source="hf:owner/set:part", target="text:").label
        == "hf:owner/set:part-to-text: test"
    )


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        (("schema",), "hebblm-result/2", "hebblm-result/2"),
        (("methods",), {}, "no methods"),
        (("methods", "lstm", "nll"), "much", "methods.lstm.nll"),
        (("methods", "lstm", "nll"), True, "methods.lstm.nll"),
        (("methods", "lstm", "nll"), math.nan, "methods.lstm.nll"),
        (("methods", "lstm", "nll"), -math.inf, "methods.lstm.nll"),
        (("methods", "cache", "running"), [[1]], "methods.cache.running"),
        (("scenario", "tokens"), -1, "scenario.tokens"),
        (("scenario", "split"), 3, "scenario.split"),
    ],
)
def test_a_wrong_value_is_named(
    tmp_path: Path, where: tuple[str, ...], value: Any, named: str
) -> None:
    document = _document()
    parent = document
    for key in where[:-1]:
        parent = parent[key]
    parent[where[-1]] = value
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match=named.replace(".", r"\.")):
        Result.load(path)


def test_a_missing_key_is_named() -> None:
    for section in ("scenario", "model", "memory", "provenance", "methods"):
        document = _document()
        del document[section]
        with pytest.raises(UserError, match=f"lacks '{section}'"):
            Result.from_json(document)
    for key in (
        "nll",
        "perplexity",
        "oov_nll",
        "in_vocabulary_nll",
        "frequency",
        "hyperparameters",
        "seconds",
    ):
        document = _document()
        del document["methods"]["lstm"][key]
        with pytest.raises(UserError, match=f"lacks '{key}'"):
            Result.from_json(document)


def test_a_truncated_or_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with pytest.raises(UserError, match="does not exist"):
        Result.load(path)
    path.write_text(FIXTURE.read_text(encoding="utf-8")[:300], encoding="utf-8")
    with pytest.raises(UserError, match="not valid JSON"):
        Result.load(path)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="schema"):
        Result.load(path)


def test_nan_is_never_written(tmp_path: Path) -> None:
    result = Result.from_json(_document())
    spoiled = replace(result, model={"loss": math.nan})
    with pytest.raises(UserError, match=r"model\.loss is nan"):
        spoiled.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


numbers = st.floats(allow_nan=False).filter(lambda value: value != -math.inf)
data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | numbers
    | st.text().filter(lambda text: text != "inf"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(data)
def test_encoding_survives_strict_json(value: Any) -> None:
    assert decode(json.loads(json.dumps(encode(value, "x"), allow_nan=False)), "x") == value


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "nll", "-"),
        (math.inf, "perplexity", "inf"),
        (-math.inf, "signed", "-inf"),
        (4.56789, "nll", "4.5679"),
        (0.1, "signed", "+0.1000"),
        (58.534, "perplexity", "58.53"),
        (3061.75, "perplexity", "3,061.8"),
        (999_999.0, "perplexity", "999,999"),
        (1_234_567.0, "perplexity", "1.23e+06"),
        (12.34, "amount", "12.3"),
        (-5_550_000.0, "amount", "-5,550,000"),
        (82_430, "count", "82,430"),
        (88.18, "percent", "88.2"),
        (0.393, "percent", "0.39"),
        (0.004, "percent", "<0.01"),
        (0.0, "percent", "0.00"),
        ("<50", "text", "<50"),
    ],
)
def test_numbers_as_readers_want_them(value: Any, kind: Any, text: str) -> None:
    assert display(value, kind) == text
    assert (perplexity(1e4), perplexity(0.0)) == (math.inf, 1.0)


def test_settings_of_the_last_release_have_their_present_names(tmp_path: Path) -> None:
    result = sample_result(30)
    earlier = {"mbpa": {"pull": 0.25, "lr": 3.0}, "hebb": {"closeness": "max"}}
    item = replace(result.methods["hebb"], hyperparameters=earlier)
    replace(result, methods={**result.methods, "hebb": item}).save(tmp_path)
    assert Result.load(tmp_path).methods["hebb"].hyperparameters == {
        "mbpa": {"l2_to_base": 0.25, "lr": 3.0},
        "hebb": {"kernel_weight": "max"},
    }
