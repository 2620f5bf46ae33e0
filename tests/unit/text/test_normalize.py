"""The case policy."""

from __future__ import annotations

import pytest

from hebblm.errors import UserError
from hebblm.text.normalize import normalize


def test_raw_changes_nothing_and_lower_keeps_the_special_symbols() -> None:
    line = "The <unk> of Ångström <eos>"
    assert normalize(line, "raw") == line
    assert normalize(line, "lower") == "the <unk> of ångström <eos>"


def test_another_policy_is_refused() -> None:
    with pytest.raises(UserError, match=r"'title'.*raw, lower"):
        normalize("x", "title")  # type: ignore[arg-type]
