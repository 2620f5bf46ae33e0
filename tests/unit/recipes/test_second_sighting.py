"""What is said of the second sighting of a word, from a table of tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hebblm.report.result.parts import Bootstrap
from hebblm.report.result.tokens import FILE_NAME
from recipes.second_sighting import first_learned, measured, rare_words, sightings_of_rare_words

from ..models.architectures import opened


def test_rare_words_are_those_the_model_never_saw_or_whose_first_sighting_cost_most() -> None:
    tokens = ["a", "b", "c", "d", "<eos>", "b", "c", "a"]
    seen = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    base = np.array([1.0, 9.0, 2.0, 3.0, 99.0, 50.0, 60.0, 70.0])
    none = np.zeros(8, dtype=bool)
    found = rare_words(tokens, seen, none, base)
    assert [token for token, rare in zip(tokens, found.tolist(), strict=True) if rare] == ["b", "b"]
    oov = np.array([token == "c" for token in tokens])
    assert rare_words(tokens, seen, oov, base).tolist() == oov.tolist()


def test_losses_and_accuracy_are_means_by_sighting_with_paired_gains(tmp_path: Path) -> None:
    times = 40
    table = pa.table(
        {
            "token": ["x", "a", "x", "a"] * times,
            "seen": [0, 5, 1, 6] * times,
            "is_oov": [True, False, True, False] * times,
            "nll_lstm": pa.array([9.0, 1.0, 8.0, 1.0] * times, type=pa.float32()),
            "nll_cache": pa.array([9.5, 1.0, 5.0, 1.0] * times, type=pa.float32()),
            "rank_lstm": [900, 1, 700, 1] * times,
            "rank_cache": [-1, 1, 5, 1] * times,
        }
    )
    pq.write_table(table, tmp_path / FILE_NAME)
    assert first_learned(["a", "x", "x", "a", "x"], 2).tolist() == [False, False, True, True, True]
    apart = measured(tmp_path, Bootstrap(block=8, resamples=50), every=4)
    assert apart["words"] | {"1st": 0} == {
        "1st": 0,
        "2nd": times,
        "3rd": 0,
        "4th and later": 0,
        "2nd, learned": times - 1,
        "2nd, not yet": 1,
    }
    found = measured(tmp_path, Bootstrap(block=8, resamples=50))
    assert found["words"] == {"1st": times, "2nd": times, "3rd": 0, "4th and later": 0}
    cache = found["methods"]["cache"]
    assert cache["nll"]["1st"] == pytest.approx(
        {"value": 9.5, "gain": -0.5, "low": -0.5, "high": -0.5}
    )
    assert cache["nll"]["2nd"] == pytest.approx(
        {"value": 5.0, "gain": 3.0, "low": 3.0, "high": 3.0}
    )
    assert cache["top5"]["2nd"] == pytest.approx(
        {"value": 1.0, "gain": 1.0, "low": 1.0, "high": 1.0}
    )
    assert cache["top5"]["1st"]["value"] == 0
    assert found["methods"]["lstm"]["nll"]["2nd"] == {"value": 8.0}


def test_words_that_were_not_asked_for_have_losses_but_no_accuracy(tmp_path: Path) -> None:
    table = pa.table(
        {
            "token": ["x", "a", "x", "a", "x"],
            "seen": [0, 0, 1, 1, 2],
            "is_oov": [True] * 5,
            "nll_lstm": pa.array([9.0, 1.0, 8.0, 3.0, 5.0], type=pa.float32()),
            "rank_lstm": pa.array([None, None, 2, None, None], type=pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / FILE_NAME)
    found = measured(tmp_path, Bootstrap(block=2, resamples=50))
    assert (found["words"]["2nd"], found["asked"]) == (2, {"2nd": 1})
    of_base = found["methods"]["lstm"]
    assert of_base["nll"]["2nd"]["value"] == pytest.approx(5.5)
    assert {part: item["value"] for part, item in of_base["top5"].items()} == {"2nd": 1.0}


def test_a_model_of_pieces_is_asked_for_the_second_and_third_sightings_of_its_rare_words(
    tmp_path: Path,
) -> None:
    pytest.importorskip("transformers")
    words = ("the cat in a hat the fan in the fog a fan " + "the cat a hat the fog").split()
    (tmp_path / "text.txt").write_text(" ".join(words) + "\n")
    found = sightings_of_rare_words(
        {"model": opened("Llama"), "target": str(tmp_path / "text.txt")}
    )
    rare = {words[place] for place in found}
    assert rare
    assert rare < {*words}
    assert found == [
        at for at, word in enumerate(words) if word in rare and 1 <= words[:at].count(word) < 3
    ]
