"""Every subcommand end to end at sizes that take seconds; what is asserted is never a time."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from awd_lstm import AWDLSTM, AWDLSTMConfig, save_checkpoint
from recipes.bench import adapt
from recipes.bench.command import main
from recipes.bench.configs import HEADS
from recipes.bench.source import READ, filled, open_source

from ...support import toy

ADAPT = [
    "adapt", "--dim", "16", "--vocabulary", "600", "700", "--k", "12", "--batch", "10",
    "--neighbors", "6",
    "--entries", "150", "--heads", "gpt2",
]  # fmt: skip
RETRIEVE = [
    "retrieve", "--dim", "16", "--k", "10", "--batch", "8", "--entries", "300", "200",
    "--recall-queries", "30",
]  # fmt: skip
EVAL = [
    "eval", "--arch", "awd_lstm_tiny", "--vocabulary", "400", "--k", "10", "--batch", "20",
    "--memory-sizes", "200",
    "300", "--tokens", "40", "--currency-tokens", "40", "--stream-tokens", "250",
]  # fmt: skip
TRAIN = ["train", "--preset", "tiny", "--vocabulary", "200", "--segments", "1"]


@pytest.fixture(autouse=True, scope="module")
def small_heads() -> Iterator[None]:
    """Let a large softmax layer be a small one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HEADS, "gpt2", (500, 16))
        yield


def run(tmp_path: Path, arguments: list[str]) -> dict[str, Any]:
    """Run a subcommand and return its JSON, checked for what all of them hold."""
    path = tmp_path / f"{arguments[0]}.json"
    assert main([*arguments, "--device", "cpu", "--threads", "1", "--json", str(path)]) == 0
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["schema"] == "hebblm-bench/1"
    assert document["kind"] == arguments[0]
    assert document["complete"] is True
    provenance = document["provenance"]
    assert provenance["command"].startswith(f"python -m recipes.bench {arguments[0]} ")
    assert provenance["threads"] == 1
    assert {"commit", "versions", "device", "seed", "cpu"} <= set(provenance)
    for row in document["rows"]:
        for timing in row["timings"].values():
            assert len(timing["seconds"]) == len(timing["tokens"])
            assert all(value > 0 for value in (*timing["seconds"], *timing["tokens"]))
            costs = sorted(
                1000 * s / n for s, n in zip(timing["seconds"], timing["tokens"], strict=True)
            )
            middle = (
                costs[len(costs) // 2]
                if len(costs) % 2
                else sum(costs[len(costs) // 2 - 1 :][:2]) / 2
            )
            assert timing["ms_per_token"]["median"] == pytest.approx(middle)
        for ratio in row["ratios"].values():
            assert ratio["min"] <= ratio["median"] <= ratio["max"]
            assert ratio["to"] in row["timings"]
        assert all(math.isfinite(value) for value in row["values"].values())
    return document


def named(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in document["rows"] if row["name"] == name]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("bench")
    return {
        "folder": {"path": folder},
        **{a[0]: run(folder, a) for a in (ADAPT, RETRIEVE, EVAL, TRAIN)},
    }


def test_adapt_measures_every_form_and_its_error(measured: dict[str, dict[str, Any]]) -> None:
    document = measured["adapt"]
    rows = named(document, "adapt")
    assert [(row["case"]["vocabulary"], row["case"]["steps"]) for row in rows] == [
        (600, 1), (600, 5), (700, 1), (700, 5),
    ]  # fmt: skip
    for row in rows:
        assert list(row["timings"]) == [
            "naive_mbpa",
            "fast_mbpa",
            "plain_fast_mbpa",
            "naive_hebb",
            "fast_hebb",
            "exact_mbpa",
            "hebbian",
            "addition",
        ]
        assert row["ratios"]["fast_hebb"]["to"] == "naive_mbpa"
        assert all(len(timing["seconds"]) == 5 for timing in row["timings"].values())
        values = row["values"]
        # of some hundred classes, a hundred are followed
        assert 0 <= values["error_mean"] <= values["error_max"] < 1e-1
        assert -1e-12 < values["kl"] < 1e-3
        assert row["case"]["source"]["kind"] == "synthetic"
    for row in named(document, "network"):
        assert row["values"]["difference_max"] < 1e-10
    assert [row["case"]["steps"] for row in named(document, "network")] == [1, 5]
    for row in named(document, "cache"):
        assert row["values"]["difference_max"] < 1e-5
    assert list(named(document, "neighbors")[0]["timings"]) == ["6", "12"]
    assert [row["case"]["head"] for row in named(document, "large_head")] == ["gpt2"]


def test_retrieve_finds_the_neighbours(measured: dict[str, dict[str, Any]]) -> None:
    rows = named(measured["retrieve"], "retrieve")
    assert [row["case"]["entries"] for row in rows] == [200, 300]
    # below 20,000 entries the memory compares all
    assert all(row["values"]["recall"] == 1 for row in rows)


def test_retrieve_times_what_a_search_consists_of(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    (row,) = named(
        run(tmp_path, [*RETRIEVE, "--entries", "300", "--index", "IVF8,PQ4x4fs"]), "retrieve"
    )
    assert list(row["timings"]) == ["exact", "index", "ranking", "proposals"]


def test_eval_compares_with_the_model_alone(measured: dict[str, dict[str, Any]]) -> None:
    document = measured["eval"]
    rows = named(document, "evaluation")
    assert [row["case"]["entries"] for row in rows] == [200, 300]
    assert [row["case"]["memory"]["entries"] for row in rows] == [200, 300]
    assert "untrained" in rows[0]["case"]["source"]["reading"]
    assert list(named(document, "currency")[0]["timings"]) == ["mini_batch", "every_token"]
    assert named(document, "currency")[0]["values"]["difference_max"] < 1e-3
    parts = named(document, "stream")[0]["timings"]
    assert sum(sum(part["tokens"]) for part in parts.values()) == 250
    [streams] = named(document, "streams")
    counts = [1, *document["settings"]["streams"]]
    assert list(streams["timings"]) == [
        f"{name} {count}" for count in counts for name in ("lstm", "all")
    ]
    assert {f"ms_mixture+hebb {count}" for count in counts} <= set(streams["values"])
    assert all(value > 0 for name, value in streams["values"].items() if name.startswith("ms_"))


def test_train_counts_the_tokens_it_reads(measured: dict[str, dict[str, Any]]) -> None:
    (row,) = named(measured["train"], "train")
    assert row["timings"]["plain"]["tokens"] == [20 * 35] * 5
    assert all(tokens % 20 == 0 for tokens in row["timings"]["preset"]["tokens"])
    assert row["ratios"]["preset"]["to"] == "plain"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the options that name a model."""
    folder = tmp_path_factory.mktemp("trained")
    prepared = toy.corpus(folder / "corpus", lines=300)
    save_checkpoint(
        folder / "model",
        AWDLSTM(AWDLSTMConfig(len(prepared.dictionary), 12, 16, 2)),
        dictionary_sha256=prepared.meta.dictionary_hash,
        training={"corpus": {"name": str(folder / "corpus"), "normalization": "raw"}},
    )
    return ["--checkpoint", str(folder / "model")]


def test_a_models_states_are_measured_beside_the_synthetic_ones(
    trained: list[str], tmp_path: Path
) -> None:
    for arguments in (ADAPT, RETRIEVE):
        rows = named(run(tmp_path, [*arguments, *trained]), arguments[0])
        kinds = [row["case"]["source"]["kind"] for row in rows]
        assert kinds == ["model"] * 2 + ["synthetic"] * (len(kinds) - 2)
        assert rows[0]["case"]["source"]["states"] == "model on toy"
        assert rows[0]["case"]["dim"] == 12


def test_a_models_entries_and_queries_are_the_states_of_its_texts(trained: list[str]) -> None:
    source = open_source(Path(trained[1]), torch.device("cpu"))
    base, count = source.model.base(), READ + 188  # too few for more than one stream
    keys, labels = filled(source, count)
    ids = torch.from_numpy(source.corpus.tokens("train").astype("int64"))[: count + 1]
    torch.testing.assert_close(keys, base.read(ids[:-1]))
    assert torch.equal(labels, ids[1:])
    hidden, targets = source.queries(20)
    base.reset()
    ids = torch.from_numpy(source.corpus.tokens("valid").astype("int64"))[:21]
    torch.testing.assert_close(hidden, base.read(ids[:-1]))
    assert torch.equal(targets, ids[1:])


def test_a_text_that_is_too_short_is_refused(
    trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RETRIEVE, *trained, "--entries", "50000"]) == 2
    assert "toy train has" in capsys.readouterr().err


def test_the_plot_reads_the_files(measured: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    files = [
        str(measured["folder"]["path"] / f"{kind}.json")
        for kind in ("adapt", "retrieve", "eval", "train")
    ]
    assert main(["plot", *files, "--output-path", str(tmp_path / "cost.svg")]) == 0
    assert "<svg" in (tmp_path / "cost.svg").read_text()


def test_what_is_finished_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adapt, "_cache", interrupted)
    path = tmp_path / "adapt.json"
    assert main([*ADAPT, "--device", "cpu", "--threads", "1", "--json", str(path)]) == 130
    document = json.loads(path.read_text())
    assert document["complete"] is False
    assert [row["name"] for row in document["rows"]] == ["adapt", "adapt"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "unknown subcommand"),
        ("fly", "adapt, retrieve, eval, real, serve, train, plot"),
        ("adapt --repeats 4", "repeats = 4"),
        ("adapt --threads 0", "threads = 0"),
        ("adapt --heads gtp2", "unknown head 'gtp2'; did you mean gpt2"),
        ("adapt --vocabulary 0 10", "vocabulary = 0"),
        ("adapt --checkpoint nowhere", "no checkpoint at nowhere"),
        ("adapt --json /proc/no/such.json", "cannot write"),
        ("retrieve --entries 100", "entries = 100 must be at least 200"),
        ("retrieve --index exacty --entries 300", "exacty"),
        ("eval --arch gpt", "awd_lstm_ptb"),
        ("train --preset huge", "'huge'"),
        ("train --unheard-of 1", "unheard-of"),
        ("plot no-such.json", "no-such.json does not exist"),
    ],
)
def test_mistakes_end_with_status_2_and_one_line(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("python -m recipes.bench: error: ")
    assert told in last


def test_lines_fit_eighty_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run(tmp_path, ADAPT)
    told = capsys.readouterr().out.splitlines()
    assert max(map(len, told[:-1])) <= 80, "the last line names a file"
    shown = " ".join(" ".join(told).split())
    assert "adapt: vocabulary 600, dim 16, k 12, batch 10, lr 8.0, steps 1" in shown
    assert re.search(r"fast_hebb [\d.e-]+ \(.* to .*\) [\d.]+ \(.*\) naive_mbpa", shown)
    assert "error_mean" in shown
