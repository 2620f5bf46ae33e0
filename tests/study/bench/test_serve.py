"""The measurement of the server at a size that takes seconds; no time is asserted."""
# ruff: noqa: E402  (what follows importorskip needs what it asks for)

from __future__ import annotations

from pathlib import Path

import pytest

for needed in ("starlette", "uvicorn", "sse_starlette", "prometheus_client"):
    pytest.importorskip(needed)

from hebblm.errors import UserError
from hebblm.io.files import read_json
from recipes.bench.command import main
from recipes.bench.serve import _gguf
from recipes.bench.servers import running

TEXT = "The cat sat on the mat , and the dog sat on the log .\n" * 20


@pytest.mark.slow
def test_the_command_measures_letters_and_completions(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "serve.json"
    text.write_text(TEXT)
    words = ["serve", "--models", "tiny-pydoc-raw", "--text", str(text), "--typed", str(text)]
    sizes = ["--context", "30", "--letters", "4", "--tokens", "2", "--threads", "1"]
    assert main([*words, *sizes, "--device", "cpu", "--json", str(out)]) == 0
    document = read_json(out)
    (row,) = document["rows"]
    assert document["complete"]
    assert set(row["timings"]) == {"best", "base", "a letter more", "a letter more, processor"}
    assert len(row["timings"]["a letter more"]["seconds"]) == 4
    assert len(row["timings"]["best"]["seconds"]) == 5
    assert all(1 <= tokens <= 2 for tokens in row["timings"]["base"]["tokens"])
    values = row["values"]
    assert 0 < values["processor p50 ms"] <= values["processor p95 ms"]
    assert 0 < values["ready processor s"] <= values["ready s"] * 4


def test_a_server_that_does_not_start_is_one_line() -> None:
    with (
        pytest.raises(UserError, match=r"does not answer: .*no_such_server"),
        running(["python3", "-m", "no_such_server"], 1),
    ):
        pass


def test_only_a_file_of_llama_is_served_by_llama() -> None:
    assert _gguf("tiny-pydoc-raw") is None
    assert _gguf("some/model.gguf") == Path("some/model.gguf")
