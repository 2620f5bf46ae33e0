from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from hebblm.errors import UserError
from hebblm.vision.settings import Settings


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    flip: bool = True


@dataclass(frozen=True)
class Outer(Settings):
    count: int = 1
    word: Literal["a", "b"] = "a"
    values: tuple[int, ...] = (1,)
    inner: Inner = field(default_factory=Inner)


def test_changes_by_dotted_name() -> None:
    before = Outer()
    after = before.changed({"count": "3", "inner.flip": "false", "inner.rate": "2e-3", "values": "4,5"})
    assert after == Outer(3, "a", (4, 5), Inner(2e-3, False))
    assert before == Outer()
    assert before.changed({}) == before


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"counts": "1"}, "unknown setting 'counts'; did you mean count? known are count"),
        ({"inner": "1"}, "unknown setting 'inner'"),
        ({"rate": "1"}, "unknown setting 'rate'"),
        ({"inner.flip": "perhaps"}, "inner.flip=perhaps must be a value of type bool"),
        ({"word": "c"}, "word = 'c' is unknown"),
        ({"values": "1,x"}, "values=x must be a value of type int"),
        ({"values": ""}, "values= must be a value"),
    ],
)
def test_refuses(values: dict[str, str], told: str) -> None:
    with pytest.raises(UserError) as caught:
        Outer().changed(values)
    assert told in str(caught.value)
