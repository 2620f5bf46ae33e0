"""The harness's own command gets the same log-likelihoods from the server and in process."""
# ruff: noqa: E402  (what follows importorskip needs what it asks for)

from __future__ import annotations

from pathlib import Path

import pytest

for needed in ("starlette", "uvicorn", "sse_starlette", "prometheus_client", "lm_eval"):
    pytest.importorskip(needed)

from hebblm.io.files import read_json
from recipes import harness

WAYS = ("best: server and process", "base: server and process", "base: server and hf")


@pytest.mark.slow
def test_the_command_agrees_on_three_tasks(tmp_path: Path) -> None:
    out = tmp_path / "harness.json"
    assert harness.main(["--items", "3", "--context", "128", "--json", str(out)]) == 0
    found = read_json(out)["differences"]
    assert set(found) == {f"{way}, {task}" for way in WAYS for task in harness.TASKS}
    for name, row in found.items():
        assert row["answers"] == (9 if name.endswith("next_sentence") else 3)
        assert row["nats"] <= harness.ALLOWED


def test_answers_of_different_lengths_are_no_agreement() -> None:
    assert harness.difference([1.0, 2.0], [1.0, 2.5]) == {"answers": 2, "nats": 0.5}
    with pytest.raises(ValueError, match="zip"):
        harness.difference([1.0], [1.0, 2.0])
