from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hebblm
from hebblm.errors import UserError


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (hebblm.evaluate, {"methods": ["heb"]}, "did you mean hebb"),
        (hebblm.evaluate, {"settings": {"hebb.bta": 1}}, "did you mean hebb.beta"),
        (hebblm.evaluate, {"max_token": 3}, "unknown option 'max_token'; did you mean max_tokens?"),
        (hebblm.evaluate, {"log_samples": True}, "--log-samples needs --output-path"),
        (hebblm.evaluate, {"log_neighbors": 3}, "needs --log-samples"),
        (hebblm.evaluate, {"forgetting": 10}, "ptb is the only one"),
        (hebblm.evaluate, {"forgetting": 0}, "forgetting = 0 must be at least 1"),
        (hebblm.evaluate, {"memory_content": "tests"}, "memory_content = 'tests'.*did you mean test"),
        (hebblm.evaluate, {"memory_scope": "Stream", "streams": 2}, "memory_scope = 'Stream' is unknown"),
        (hebblm.evaluate, {"new_rows": "zeros"}, "did you mean zero"),
        (hebblm.tune, {"split": "test"}, "'test' must not be tuned on"),
        (hebblm.tune, {"split": None}, "None must not be tuned on"),
        (hebblm.tune, {"vocabulary": "open"}, "'open' cannot be tuned"),
        (hebblm.tune, {"methods": ["hebb-v1"]}, "no values of its own"),
    ],
)
def test_a_mistake_is_told_before_anything_is_opened(
    function: Callable[..., Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        function(intra_domain="ptb", **options)


def test_a_folder_is_scored_by_document_and_a_result_that_will_be_replaced_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / name).write_text("Call the function with two arguments .\n" * 10)
    options: dict[str, Any] = {"memory_content": "test", "device": "cpu", "output_path": tmp_path / "out"}
    target = f"text:{tmp_path / 'texts'}"
    result = hebblm.evaluate("tiny-pydoc-raw", target, ["lstm"], max_tokens=100, **options)
    assert [(each["name"], each["tokens"]) for each in result.extra["documents"]] == [("a.txt", 80), ("b.txt", 20)]
    assert "is replaced when this run ends" not in capsys.readouterr().err
    hebblm.evaluate("tiny-pydoc-raw", target, ["lstm"], max_tokens=100, **options)
    assert "out holds a finished result; it is replaced when this run ends" in capsys.readouterr().err


def test_a_model_that_ships_is_told_of_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("Call the function with two arguments .\n" * 10)
    lm = hebblm.load("tiny-pydoc-raw", device="cpu")
    hebblm.evaluate(lm, text, ["lstm"], memory_content="test", device="cpu")
    assert "with hebblm-tune --checkpoint tiny-pydoc-raw --text" in capsys.readouterr().err
