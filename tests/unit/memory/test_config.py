from __future__ import annotations

import pytest

from hebblm.errors import UserError
from hebblm.memory import MemoryConfig


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"store": "disc"}, r"unknown memory\.store 'disc'; did you mean disk\? use one of ram, disk"),
        ({"dtype": "floa32"}, r"unknown memory\.dtype 'floa32'; did you mean float32\? use one of float32, float16"),
    ],
)
def test_a_mistyped_word_is_told_before_anything_is_loaded(options: dict[str, str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        MemoryConfig(**options)  # type: ignore[arg-type]
