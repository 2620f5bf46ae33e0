from __future__ import annotations

import pytest

from hebblm.progress import duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 seconds"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (1800, "30 minutes"),
        (7200, "2 hours"),
        (2.6e6, "30 days"),
    ],
)
def test_a_duration_reads_in_the_largest_unit_that_gives_two(seconds: float, words: str) -> None:
    assert duration(seconds) == words
