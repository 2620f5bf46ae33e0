from __future__ import annotations

from collections.abc import Callable
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
