"""What parts of methods gave to tokens, of words and of words in pieces."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import hebblm
from hebblm.report.render.inspection import inspect_page
from hebblm.report.result.tokens import COMPONENTS_FILE, Inspection

from ..models.architectures import random_model, tokenizer

TEXT = "the cat in a hat.\nThe fin the the Abc in the fog, a fan.\n" * 6


def test_shares_of_a_word_in_pieces_are_the_means_of_those_of_its_pieces(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    lm = hebblm.load((random_model("Llama"), tokenizer()))
    asked = {"memory_content": "test", "log_samples": True, "output_path": tmp_path / "out"}
    hebblm.evaluate(lm, tmp_path / "text.txt", "base,mixture,hebb", log_neighbors=150, **asked)
    rows = pq.read_table(tmp_path / "out" / COMPONENTS_FILE).to_pylist()
    words = TEXT.replace("\n", " \n ").split(" ")[:-1]
    logged = 1 + max(row["position"] for row in rows)
    assert 0 < logged < len(words)
    for at in range(logged):
        of_word = {
            row["component"]: row["share"]
            for row in rows
            if (row["method"], row["position"]) == ("mixture", at)
        }
        assert set(of_word) == {"base", "mixture"}
        assert sum(of_word.values()) == pytest.approx(1, abs=1e-5)
    run = Inspection.load(tmp_path / "out")
    assert set(run.components) == {"mixture"}
    assert "What gives" in inspect_page(run, method="mixture")
