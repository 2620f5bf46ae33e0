"""A run logged token by token, and the page that shows it."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hebblm.cli.eval import main as evaluate
from hebblm.cli.report import main as report
from hebblm.evaluation.neighbors import CONTEXT, KEPT
from hebblm.report import Result
from hebblm.text.prepared import load_prepared

from .conftest import World

ARGUMENTS = ["--max-tokens", "300", "--methods", "lstm,knn", "--log-samples", "--device", "cpu"]


def words_of(folder: Path, split: str) -> list[str]:
    corpus = load_prepared(folder)
    return [corpus.dictionary[int(token)] for token in corpus.tokens(split)]


def test_neighbours_stand_where_the_log_says(world: World, tmp_path: Path) -> None:
    chosen = [
        "--intra-domain",
        str(world.prepared),
        "--checkpoint",
        str(world.model),
        "--training-entries",
        "5000",
    ]
    assert (
        evaluate([*chosen, *ARGUMENTS, "--log-neighbors", "250", "--output-path", str(tmp_path)])
        == 0
    )
    rows = pq.read_table(tmp_path / "neighbors.parquet").to_pylist()
    texts = {True: words_of(world.prepared, "test"), False: words_of(world.prepared, "train")}
    assert {row["from_stream"] for row in rows} == {True, False}
    assert {row["position"] for row in rows} == set(range(250))
    assert len(rows) == 250 * KEPT
    for row in rows:
        text, place = texts[row["from_stream"]], row["place"]
        assert row["label"] == text[place]
        assert row["context"] == " ".join(text[max(0, place - CONTEXT) : place])
        if row["from_stream"]:
            assert place < row["position"] // 50 * 50, "written before its mini-batch was observed"
        else:
            assert place >= len(text) - 5000
    assert report(["inspect", str(tmp_path)]) == 0
    assert rows[0]["context"].split()[-1] in (tmp_path / "inspect.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("vocabulary", ["union", "open"])
def test_shares_of_components_make_up_each_token(
    world: World, tmp_path: Path, vocabulary: str
) -> None:
    chosen = [
        "--target",
        str(world.other_prepared),
        "--checkpoint",
        str(world.model),
        "--vocabulary",
        vocabulary,
    ]
    chosen += [
        "--max-tokens",
        "120",
        "--methods",
        "lstm,mixture,hebb,best",
        "--log-samples",
        "--device",
        "cpu",
    ]
    assert evaluate([*chosen, "--log-neighbors", "100", "--output-path", str(tmp_path)]) == 0
    rows = pq.read_table(tmp_path / "components.parquet").to_pylist()
    tokens = pq.read_table(tmp_path / "tokens.parquet").to_pylist()
    assert {(row["method"], row["component"]) for row in rows} == {
        ("lstm", "base"), ("mixture", "base"), ("mixture", "mixture"), ("hebb", "hebb"),
        *(("best", part) for part in ("base", "cache", "knn", "mbpa", "ngram")),
    }  # fmt: skip
    sums: dict[tuple[str, int], float] = {}
    for row in rows:
        key = row["method"], row["position"]
        sums[key] = sums.get(key, 0.0) + row["share"]
    assert len(sums) == 4 * 100
    unseen = {at for at, token in enumerate(tokens) if token["is_oov"] and not token["seen"]}
    for (_, at), total in sums.items():
        no_row = vocabulary == "open" and at in unseen
        assert total == pytest.approx(0 if no_row else 1, abs=1e-5) or (
            vocabulary == "open" and total == 0
        )


def test_a_disk_that_fills_up_behind_the_tables_leaves_the_former_run(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = ["--target", str(world.other_prepared), "--checkpoint", str(world.model), *ARGUMENTS]
    chosen += ["--log-neighbors", "10", "--output-path", str(tmp_path / "out")]
    assert evaluate(chosen) == 0
    former = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def full(self: Result, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "result.json"))

    with monkeypatch.context() as patched:
        patched.setattr(Result, "save", full)
        assert evaluate([*chosen, "--k", "7"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == former


def test_logging_changes_no_number(world: World, tmp_path: Path) -> None:
    chosen = ["--target", str(world.other_prepared), "--checkpoint", str(world.model), *ARGUMENTS]
    for name, more in (("with", ["--log-neighbors", "100"]), ("without", [])):
        assert evaluate([*chosen, *more, "--output-path", str(tmp_path / name)]) == 0
    tables = [pq.read_table(tmp_path / name / "tokens.parquet") for name in ("with", "without")]
    assert tables[0].equals(tables[1])
    assert not (tmp_path / "without" / "neighbors.parquet").exists()
