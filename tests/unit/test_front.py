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
        (hebblm.evaluate, {"log_samples": True}, "--log-samples needs --output-path"),
        (hebblm.evaluate, {"log_neighbors": 3}, "needs --log-samples"),
        (hebblm.evaluate, {"forgetting": 10}, "ptb is the only one"),
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


def test_a_model_that_ships_is_told_of_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("Call the function with two arguments .\n" * 10)
    lm = hebblm.load("tiny-pydoc-raw", device="cpu")
    hebblm.evaluate(lm, text, ["lstm"], memory_content="test", device="cpu")
    assert "with hebblm-tune --checkpoint tiny-pydoc-raw --text" in capsys.readouterr().err
