"""Several streams side by side through the commands: what a result says of them, and what is
refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hebblm
from hebblm.cli.eval import main as evaluate

from ..unit.models.architectures import random_model, tokenizer
from .conftest import World, result, run, sentences

SMALL = ["--update-every", "10", "--k", "20", "--device", "cpu"]


def test_documents_are_read_side_by_side(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for index in range(12):
        (folder / f"{index:02d}.txt").write_text(
            "\n".join(sentences(3, index, 600, offset=150)) + "\n"
        )
    methods = "lstm,dynamic,cache,mixture,mbpa"
    chosen = [
        "--checkpoint",
        str(world.model),
        "--target",
        f"text:{folder}",
        "--methods",
        methods,
        *SMALL,
    ]
    chosen += ["--set", "dynamic.rule=sgd", "dynamic.lr=8e-4", "--log-samples", "--split", "test"]
    for name, more in {
        "plain": ["--streams", "1"],
        "shared": ["--streams", "2"],
        "stream": ["--streams", "2", "--memory-scope", "stream"],
    }.items():
        assert evaluate([*chosen, *more, "--output-path", str(tmp_path / name)]) == 0
        assert ("reads the text as one stream" in capsys.readouterr().err) == (
            name in ("shared", "stream")
        )
    tables = {
        name: pq.read_table(tmp_path / name / "tokens.parquet")
        for name in ("plain", "shared", "stream")
    }
    for name in ("shared", "stream"):
        found, scenario = result(tmp_path / name), result(tmp_path / name)["scenario"]
        assert (scenario["streams"], scenario["memory_scope"]) == (2, name)
        for column in ("position", "token", "seen", "nll_dynamic"):
            assert tables[name][column].equals(tables["plain"][column])
        losses = tables[name]["nll_mixture"].to_numpy()
        assert np.abs(losses - tables["plain"]["nll_mixture"].to_numpy()).max() > 1e-3
        assert [document["name"] for document in found["documents"]] == ["10.txt", "11.txt"]
        sizes = [document["tokens"] for document in found["documents"]]
        assert sum(sizes) == scenario["tokens"]
        means = [document["nll"]["mixture"] for document in found["documents"]]
        np.testing.assert_allclose(
            means, [losses[: sizes[0]].mean(), losses[sizes[0] :].mean()], rtol=1e-5
        )
    assert "streams" not in result(tmp_path / "plain")["scenario"]
    assert not tables["shared"]["nll_mixture"].equals(tables["stream"]["nll_mixture"])
    assert tables["shared"]["nll_cache"].equals(tables["stream"]["nll_cache"])


def test_streams_remember_for_themselves_beside_the_training_text(
    world: World, tmp_path: Path
) -> None:
    chosen = (
        f"eval --intra-domain {world.prepared} --checkpoint {world.model} --max-tokens 90 "
        "--methods mixture"
    )
    chosen += f" --training-entries 600 --streams 3 {' '.join(SMALL)}"
    found = {}
    for scope, content in (("shared", "both"), ("stream", "both"), ("shared", "train")):
        out = tmp_path / scope / content
        assert (
            run(f"{chosen} --memory-scope {scope} --memory-content {content} --output-path {out}")
            == 0
        )
        found[scope, content] = (
            result(out)["memory"]["entries"],
            result(out)["methods"]["mixture"]["nll"],
        )
    assert [entries for entries, _ in found.values()] == [690, 630, 600]
    assert found["shared", "both"][1] != pytest.approx(found["stream", "both"][1], rel=1e-7)


def test_a_model_of_pieces_reads_several(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences(12, 2, 40, offset=15)) + "\n")
    lm = hebblm.load((random_model("Llama"), tokenizer()), context=32, stride=16)
    options = {"device": "cpu", "update_every": 10, "k": 20, "memory_content": "test"}
    one, many = (
        hebblm.evaluate(lm, text, ["lstm", "hebb"], streams=count, **options) for count in (1, 3)
    )
    assert many.scenario.extra["streams"] == 3
    assert many.scenario.tokens == one.scenario.tokens
    assert many.methods["lstm"].nll == pytest.approx(one.methods["lstm"].nll, rel=0.05)
    assert many.methods["lstm"].nll != one.methods["lstm"].nll
