"""A user's own text, from the file to the report, through the commands."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from hebblm.adapt.methods import DEFAULT_METHODS, EVALUATED, OUR_METHODS
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.cli.eval import main as evaluate
from hebblm.cli.preprocess import main as preprocess
from hebblm.cli.report import main as report
from hebblm.cli.train import main as train
from hebblm.cli.tune import main as tune
from hebblm.report.result.numbers import perplexity
from recipes.study.command import main as study
from recipes.study.readings.record import Readings

from .conftest import World
from .conftest import result as read

EVERY = list(EVALUATED)
BUCKETS = ["<50", "50-100", "100-500", ">500"]
CPU = ["--device", "cpu"]
TOKENS = 100
LITTLE = ["--max-tokens", str(TOKENS), "--set", "dynamic.statistics=2000", *CPU]


def losses(folder: Path) -> dict[str, float]:
    """Return the loss of each method."""
    return {name: method["nll"] for name, method in read(folder)["methods"].items()}


@pytest.fixture(scope="module")
def intra(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluate every method on the novel's own test split."""
    out = tmp_path_factory.mktemp("intra")
    arguments = ["--checkpoint", str(world.model), "--log-samples", *LITTLE]
    chosen = [
        "--intra-domain",
        str(world.prepared),
        "--methods",
        ",".join(EVERY),
        "--output-path",
        str(out),
    ]
    assert evaluate([*chosen, *arguments]) == 0
    return out


def test_the_result_keeps_its_contract(world: World, intra: Path) -> None:
    result = read(intra)
    assert result["schema"] == "hebblm-result/1"
    scenario = result["scenario"]
    assert scenario["kind"] == "intra-domain"
    assert scenario["source"] == scenario["target"] == str(world.prepared)
    assert (scenario["split"], scenario["normalization"], scenario["vocabulary"]) == (
        "test",
        "raw",
        "union",
    )
    assert scenario["tokens"] == TOKENS
    assert {"oov_tokens", "oov_types"} <= set(scenario)
    assert {"command", "commit", "versions", "device", "seed", "data_sha256"} <= set(
        result["provenance"]
    )
    assert result["model"]["arch"] == "awd_lstm"
    assert result["memory"]["content"] == "both"
    assert list(result["methods"]) == EVERY
    for name, method in result["methods"].items():
        assert math.isfinite(method["nll"]), name
        # inf beyond e^709
        assert float(method["perplexity"]) == pytest.approx(perplexity(method["nll"]))
        assert {"oov_nll", "in_vocabulary_nll", "hyperparameters"} <= set(method)
        assert method["tokens_per_second"] == pytest.approx(TOKENS / method["seconds"])


def test_frequency_buckets_recombine_to_all(intra: Path) -> None:
    for method in read(intra)["methods"].values():
        buckets = method["frequency"]
        assert [bucket["bucket"] for bucket in buckets] == BUCKETS
        assert sum(bucket["tokens"] for bucket in buckets) == TOKENS
        total = sum(bucket["tokens"] * bucket["nll"] for bucket in buckets if bucket["tokens"])
        assert total / TOKENS == pytest.approx(method["nll"], abs=1e-9)


def test_tokens_are_logged_one_a_row(intra: Path) -> None:
    table = pq.read_table(intra / "tokens.parquet").to_pydict()
    columns = ["position", "token", "train_count", "is_oov", "seen", "text"]
    assert list(table) == [*columns, *(f"nll_{name}" for name in EVERY)]
    assert table["seen"] == [
        table["token"][:at].count(token) for at, token in enumerate(table["token"])
    ]
    assert table["position"] == list(range(TOKENS))
    words = "".join(table["text"]).replace("\n", " <eos> ").split()
    assert words == table["token"], "a tokenised text stands as it is"
    for name, nll in losses(intra).items():
        assert np.mean(np.array(table[f"nll_{name}"], dtype=np.float64)) == pytest.approx(
            nll, abs=1e-6
        )


def test_the_same_command_gives_the_same_numbers(world: World, intra: Path, tmp_path: Path) -> None:
    arguments = ["--intra-domain", str(world.prepared), "--checkpoint", str(world.model), *LITTLE]
    methods = ["--methods", ",".join(EVERY), "--output-path", str(tmp_path)]
    assert evaluate([*arguments, *methods]) == 0
    assert losses(tmp_path) == losses(intra)


def test_two_trainings_give_the_same_weights(world: World, tmp_path: Path) -> None:
    quick = ["--preset", "tiny", "--epochs", "1", *CPU, "--output-path", str(tmp_path / "again")]
    assert train(["--corpus", str(world.prepared), *quick]) == 0
    again, first = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "again", world.model)
    )
    assert again.keys() == first.keys()
    assert all(again[name].equal(first[name]) for name in first)


@pytest.mark.parametrize("vocabulary", ["union", "open"])
def test_across_domains_token_by_token(world: World, tmp_path: Path, vocabulary: str) -> None:
    arguments = ["--source", str(world.prepared), "--target", str(world.other_prepared)]
    policy = ["--vocabulary", vocabulary, "--update-every", "1", "--max-tokens", "40"]
    files = ["--checkpoint", str(world.model), "--output-path", str(tmp_path)]
    probe = ["--forgetting", "--forgetting-tokens", "50"]
    assert evaluate([*arguments, *policy, *files, *probe, *CPU]) == 0
    result = read(tmp_path)
    assert result["scenario"]["kind"] == "cross-domain"
    assert result["forgetting"] == {"corpus": str(world.prepared), "split": "test", "tokens": 50}
    assert {"before", "after", "memory_kept"} == set(result["methods"]["hebb"]["forgetting"])
    assert "before and after" in (tmp_path / "report.md").read_text()
    assert result["scenario"]["vocabulary"] == vocabulary
    assert result["scenario"]["oov_tokens"] > 0
    assert list(result["methods"]) == list(DEFAULT_METHODS)
    oov, total = result["scenario"]["oov_tokens"], result["scenario"]["tokens"]
    for method in result["methods"].values():
        parts = oov * method["oov_nll"] + (total - oov) * method["in_vocabulary_nll"]
        assert parts / total == pytest.approx(method["nll"], abs=1e-6)
        occurrences = method["oov_occurrences"]
        assert [item["bucket"] for item in occurrences] == ["1st", "2nd", "3rd", "4th-7th", "8th+"]
        summed = sum(item["tokens"] * item["nll"] for item in occurrences if item["tokens"])
        assert summed == pytest.approx(oov * method["oov_nll"])


def test_a_dataset_without_a_train_split_can_be_read(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    (tmp_path / "set").mkdir()
    records = [json.dumps({"text": line}) for line in world.other.read_text().splitlines()[:30]]
    (tmp_path / "set" / "test.jsonl").write_text("\n".join(records) + "\n")
    name, quick = f"hf:{tmp_path / 'set'}", ["--methods", "lstm,mixture", *CPU]
    arguments = ["--checkpoint", str(world.model), "--target", name, *quick]
    assert evaluate([*arguments, "--output-path", str(tmp_path / "out")]) == 0
    scenario = read(tmp_path / "out")["scenario"]
    assert scenario["split"] == "test"
    assert scenario["oov_tokens"] > 0, "all of its words are told apart"
    capsys.readouterr()
    for main, others, told in (
        (evaluate, [*arguments, "--split", "valid"], f"{name} has no split 'valid'; it has test"),
        (evaluate, ["--intra-domain", name, *quick], f"{name} has no train split, only test"),
        (train, ["--corpus", name], f"{name} has no train split, only test"),
    ):
        assert main(others) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert told in line


def test_the_memory_of_a_long_training_text_is_bounded(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--checkpoint",
        str(world.model),
        "--intra-domain",
        str(world.prepared),
        "--max-tokens",
        "30",
    ]
    bound = ["--training-entries", "500", "--memory-content", "train", "--methods", "lstm,mixture"]
    assert evaluate([*arguments, *bound, "--output-path", str(tmp_path), *CPU]) == 0
    assert read(tmp_path)["memory"]["entries"] == 500
    assert "the memory holds the last 500 of" in capsys.readouterr().err


def test_without_a_model_one_is_trained_and_kept(world: World, tmp_path: Path) -> None:
    arguments = ["--intra-domain", str(world.other_prepared), "--methods", "lstm", *CPU]
    for out in ("first", "second"):
        assert evaluate([*arguments, "--output-path", str(tmp_path / out)]) == 0
    first, second = read(tmp_path / "first"), read(tmp_path / "second")
    assert first["model"]["origin"] == "trained"
    assert first["model"] == second["model"]
    assert losses(tmp_path / "first") == losses(tmp_path / "second")


@pytest.mark.parametrize("tokenizer", ["moses", "sentencepiece"])
def test_other_tokenizers(world: World, tmp_path: Path, tokenizer: str) -> None:
    corpus, model, out = tmp_path / "corpus", tmp_path / "model", tmp_path / "out"
    text = ["--text", str(world.other), "--tokenizer", tokenizer, "--vocab-size", "200"]
    assert preprocess([*text, "--output-path", str(corpus)]) == 0
    quick = ["--preset", "tiny", "--epochs", "1", *CPU]
    assert train(["--corpus", str(corpus), *quick, "--output-path", str(model)]) == 0
    arguments = [
        "--intra-domain",
        str(corpus),
        "--checkpoint",
        str(model),
        "--methods",
        "lstm,mixture",
    ]
    assert evaluate([*arguments, "--output-path", str(out), *CPU]) == 0
    result = read(out)
    assert result["scenario"]["tokenizer"]["name"] == tokenizer
    for method in result["methods"].values():
        assert method["bits_per_byte"] > 0
        assert method["words_perplexity"] >= method["perplexity"] * (1 - 1e-9)
        assert (method["words_perplexity"] > method["perplexity"] * 1.01) == (
            tokenizer == "sentencepiece"
        )


def test_tuned_values_serve_an_evaluation(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = ["--intra-domain", str(world.prepared), "--checkpoint", str(world.model), *CPU]
    quick = ["--max-tokens", "40", "--set", "dynamic.rule=sgd", "dynamic.lr=8e-4"]
    assert tune([*scenario, *quick, "--output-path", str(tmp_path / "tuned")]) == 0
    assert "are replaced" not in capsys.readouterr().err
    again = [*scenario, *quick, "--methods", "cache", "--skip-dynamic"]
    shutil.copytree(tmp_path / "tuned", tmp_path / "before")
    assert tune([*again, "--output-path", str(tmp_path / "before")]) == 0
    assert "before holds tuned values; they are replaced" in capsys.readouterr().err
    tuned = json.loads((tmp_path / "tuned" / "tuned.json").read_text())
    assert tuned["schema"] == "hebblm-tuned/1"
    assert tuned["scenario"]["memory_content"] == "both"
    few = ["--max-tokens", "30", "--set", "dynamic.rule=sgd", "dynamic.lr=8e-4"]
    small = [*scenario, *few, "--methods", ",".join(["mixture", "hebb", *OUR_METHODS])]
    given: dict[str, Callable[[], list[str]]] = {
        "config": lambda: ["--config", str(tmp_path / "tuned" / "config.json")],
        "hyperparameters": lambda: ["--hyperparameters", str(tmp_path / "tuned" / "tuned.json")],
    }
    for name, arguments in given.items():
        assert evaluate([*arguments(), *small, "--output-path", str(tmp_path / name)]) == 0
        chosen = read(tmp_path / name)["methods"]["mixture"]["hyperparameters"]
        assert chosen["theta"] == tuned["values"]["mixture.theta"]
        assert chosen["gamma"] == tuned["values"]["mixture.gamma"]
        ours = {m: read(tmp_path / name)["methods"][m]["hyperparameters"] for m in OUR_METHODS}
        assert ours["mbpa-absolute"]["mbpa_absolute"]["lr"] == tuned["values"]["mbpa_absolute.lr"]
        assert ours["dynamic+best"]["dynamic"]["lr"] == tuned["values"]["dynamic.lr"]
        assert ours["best"]["mbpa"]["l2_to_base"] == tuned["values"]["mbpa.l2_to_base"]
    assert losses(tmp_path / "config") == losses(tmp_path / "hyperparameters")


def test_readings_are_compared(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = ["--intra-domain", str(world.prepared), "--checkpoint", str(world.model), *CPU]
    small = [
        "--max-tokens",
        "30",
        "--training-entries",
        "200",
        "--output-path",
        str(tmp_path / "out"),
    ]
    assert study(["readings", *scenario, *small, "--methods", "lstm"]) == 2
    assert "no method that retrieves" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert study(["readings", *scenario, *small, "--methods", "lstm,mixture,hebb"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["readings.json"]
    found = Readings.from_json(json.loads((tmp_path / "out" / "readings.json").read_text()))
    assert {effect.method for effect in found.effects} == {"mixture", "hebb"}
    assert {"memory of train", "memory of test", "literal gate"} <= {
        e.reading for e in found.effects
    }
    assert "Mixture as printed" in capsys.readouterr().out


def test_results_are_reported_alone_and_side_by_side(intra: Path, tmp_path: Path) -> None:
    assert {"report.md", "report.html"} <= {path.name for path in intra.iterdir()}
    assert any(path.suffix == ".png" for path in intra.iterdir())
    assert "mixture+hebb" in (intra / "report.md").read_text().lower().replace(" ", "")
    assert (
        report(
            [
                str(intra),
                "--format",
                "md",
                "--output-path",
                str(tmp_path / "one"),
                "--edges",
                "10,100",
            ]
        )
        == 0
    )
    assert "10-100" in (tmp_path / "one" / "report.md").read_text()
    assert (
        report(
            [str(intra), str(intra), "--format", "md,csv", "--output-path", str(tmp_path / "two")]
        )
        == 0
    )
    assert list((tmp_path / "two").glob("*.md"))


def test_a_text_has_several_names_and_one_reading(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, lines = tmp_path / "folder", world.other.read_text().splitlines(keepends=True)
    folder.mkdir()
    (folder / "1.txt").write_text("".join(lines[:40]))
    (folder / "2.txt").write_text("".join(lines[40:]))
    named = {
        "text": ["--text", str(world.other)],
        "target": ["--target", f"text:{world.other}"],
        "folder": ["--target", f"text:{folder}"],
    }
    for split, part, share in (
        ([], "the whole text", 1.0),
        (["--split", "test"], "the last tenth of its lines", 0.1),
    ):
        found = []
        for name, arguments in named.items():
            out = tmp_path / f"{name}-{len(split)}"
            asked = [
                "--checkpoint",
                str(world.model),
                *arguments,
                *split,
                "--methods",
                "lstm",
                *CPU,
            ]
            assert evaluate([*asked, "--output-path", str(out)]) == 0
            said = capsys.readouterr()
            assert f"tokens of {part}" in " ".join(said.out.split())
            assert "hyper-parameters" not in said.err, (
                "the default ones are one set for every model"
            )
            scenario = read(out)["scenario"]
            assert (scenario["part"], scenario["split"]) == (part, "test" if split else "all")
            assert scenario["unk_tokens"] == 0
            assert scenario["oov_tokens"] > 0
            found.append((scenario["tokens"], read(out)["methods"]["lstm"]["nll"]))
        assert found[0] == found[1] == found[2]
        words = sum(len(line.split()) + 1 for line in lines[round(len(lines) * (1 - share)) :])
        assert found[0][0] == words


def test_the_command_that_tuning_prints_works_as_it_stands(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = [
        "--checkpoint",
        str(world.model),
        "--text",
        str(world.other),
        *CPU,
        "--memory-content",
        "test",
    ]
    chosen = [
        "--methods",
        "mixture+mbpa",
        "--max-tokens",
        "60",
        "--output-path",
        str(tmp_path / "tuned"),
    ]
    assert tune([*scenario, *chosen]) == 0
    said = capsys.readouterr()
    assert "60 tokens are few" in said.err
    assert "; raise --max-tokens" in said.err
    document = json.loads((tmp_path / "tuned" / "tuned.json").read_text())
    assert set(document["nll"]) == {"lstm", "mixture", "mbpa", "mixture+mbpa"}
    cells = next(line.split() for line in said.out.splitlines() if line.split()[:1] == ["MbPA"])
    default = {"mbpa.l2_to_base": MbpaConfig().l2_to_base, "mbpa.weight": MbpaConfig().weight}
    usual = next(p["nll"] for p in document["tried"]["mbpa"] if default.items() <= p.items())
    assert float(cells[2]) == pytest.approx(usual, abs=1e-4), (
        "what the default values cost stands beside the best"
    )
    command = said.out.strip().splitlines()[-1].split()
    assert command[0] == "hebblm-eval"
    assert evaluate([*command[1:], "--output-path", str(tmp_path / "out")]) == 0
    used = read(tmp_path / "out")
    assert list(used["methods"]) == ["lstm", "mixture+mbpa"]
    assert used["scenario"]["split"] == "test", "not what was tuned on"
    weight = used["methods"]["mixture+mbpa"]["hyperparameters"]["mixture_mbpa"]["weight"]
    assert weight == document["values"]["mixture_mbpa.weight"]


def test_unknown_words_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text(
        "so it was, he said, <unk> and so on\n" * 18 + "never, never seen before <unk>\n" * 2
    )
    assert preprocess(["--text", str(text), "--output-path", str(tmp_path / "corpus")]) == 0
    said = capsys.readouterr().out
    assert "test: 12 tokens, 2 lines, 10 words" in said
    assert (
        "16.67 % <unk> in the text, 66.67 % outside the dictionary (much: see --tokenizer" in said
    )
    assert "train: " in said
    assert "try --tokenizer moses" in said


def test_what_is_done_already_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--preset", "tiny", "--epochs", "1", *CPU]
    assert train(["--corpus", str(world.prepared), *quick, "--output-path", str(world.model)]) == 0
    assert (
        "is already done: epochs 1 to 1, of which 1 was best with validation perplexity"
        in " ".join(capsys.readouterr().err.split())
    )
    memory = [
        "--intra-domain",
        str(world.prepared),
        "--checkpoint",
        str(world.model),
        "--max-tokens",
        "20",
        *CPU,
    ]
    for words in ("is read once", "comes from an earlier run"):
        assert evaluate([*memory, "--methods", "mixture", "--training-entries", "700"]) == 0
        assert words in capsys.readouterr().err


def test_much_outside_the_vocabulary_is_warned_of(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "strange.txt"
    text.write_text("Quite Another Language <unk>\n" * 10)
    assert (
        evaluate(["--checkpoint", str(world.model), "--text", str(text), "--methods", "lstm", *CPU])
        == 0
    )
    warned = " ".join(capsys.readouterr().err.split())
    assert "warning: 60.0 % of the tokens of" in warned
    assert "20.0 % are <unk> in the text itself" in warned
