"""The referee: what a method says of a text can be decoded from its code, and one that cheats is
found.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import hebblm
from hebblm.adapt import contract
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods import METHODS, named
from hebblm.adapt.methods.predictor import Requirements
from hebblm.report.result.methods import name_of
from recipes.referee import Known, Verdict, decode, encode, examine, main, opened

from .conftest import World, one_thread

Call = Callable[..., Any]


@dataclass(eq=False)
class Honest:
    """The base, as a method of one's own; what cheats derives from it."""

    name = "mine"
    requirements = Requirements()

    def log_probs(self, batch: EvalBatch) -> Tensor:
        return batch.log_probs

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        return -self.log_probs(batch).gather(1, targets[:, None]).squeeze(1)


class SumsToMore(Honest):
    """Its probabilities sum to 1.5."""

    def log_probs(self, batch: EvalBatch) -> Tensor:
        return batch.log_probs + math.log(1.5)


class ScoresLess(Honest):
    """Its losses are lower than those of its distribution."""

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        return 0.9 * super().score(batch, targets)


class SeesTheBlock(Honest):
    """It mixes in the answer, where a block has it."""

    def log_probs(self, batch: EvalBatch) -> Tensor:
        if batch.block is None:
            return batch.log_probs
        answer = torch.nn.functional.one_hot(batch.block.labels, batch.log_probs.shape[1])
        return (0.9 * batch.log_probs.exp() + 0.1 * answer).log()


@dataclass(eq=False)
class KnowsTheText(Honest):
    """It mixes in the answers, which it brought along, as long as it has them."""

    text: list[int] = field(default_factory=list)

    def log_probs(self, batch: EvalBatch) -> Tensor:
        if not self.text:
            return batch.log_probs
        answer = torch.nn.functional.one_hot(
            torch.tensor([self.text.pop(0)]), batch.log_probs.shape[1]
        )
        return (0.9 * batch.log_probs.exp() + 0.1 * answer).log()

    def score(self, batch: EvalBatch, targets: Tensor) -> Tensor:
        return -(0.9 * (-batch.base_losses(targets)).exp() + 0.1).log()


def here(function: Call, *arguments: Any) -> Any:
    return function(*arguments)


def verdicts_beside(
    rule: Honest, world: World, elsewhere: Call = here, tokens: int = 150
) -> dict[str, Verdict]:
    """Verdicts over base and a rule of one's own."""
    hebblm.register(hebblm.Method("mine", "Mine", "ours", lambda settings: rule))
    with one_thread():
        scenario, settings, record = opened(str(world.model), str(world.other), tokens, "test")
        [(verdicts, _)] = examine(scenario, settings, ("lstm", "mine"), record, elsewhere)
        return verdicts


def judged(
    folder: Path, model: Path, target: Path, tokens: int, methods: list[str]
) -> dict[str, Any]:
    """What the command finds, in processes of its own."""
    line = (
        f"--checkpoint {model} --target {target} --tokens {tokens} --output {folder / 'found.json'}"
    )
    with one_thread():
        assert main([*line.split(), "--methods", ",".join(methods)]) == 0
    document: dict[str, Any] = json.loads((folder / "found.json").read_text())
    assert list(document["methods"]) == methods
    for found in document["methods"].values():
        assert found["tokens"] == tokens
        assert found["decoded"]
        assert found["holds"]
        assert found["off"] < 1e-5
    return document


@pytest.mark.parametrize(
    ("tokens", "methods"),
    [
        (64, ["best", "dynamic+ngram"]),
        pytest.param(80, [*named("all"), "cache+ngram"], marks=pytest.mark.slow),
    ],
)
def test_a_text_is_decoded_in_another_process(
    tokens: int,
    methods: list[str],
    world: World,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = judged(tmp_path, world.model, world.other, tokens, methods)
    assert document["text"]["spelled_bytes"] > 0
    for name, found in document["methods"].items():
        if name != "mbpa-absolute":  # far beyond 24 bits a token over this model
            assert found["code_bits_per_byte"] == pytest.approx(
                found["evaluated_bits_per_byte"], rel=0.05
            )
    printed = capsys.readouterr().out
    assert all(f"| {name_of(name)} |" in printed for name in methods)
    assert printed.endswith("all hold\n")


@pytest.mark.parametrize(
    ("tokens", "methods"),
    [
        (40, ["best"]),
        pytest.param(
            80,
            [name for name in named("all") if not METHODS[name].uses_dynamic_base],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_pieces_of_words_are_decoded_too(
    tokens: int, methods: list[str], llama: Path, tmp_path: Path
) -> None:
    document = judged(tmp_path, llama / "model", llama / "text.txt", tokens, methods)
    assert document["text"]["bytes"] > 0


def test_an_honest_method_of_ones_own_holds(world: World) -> None:
    found = verdicts_beside(Honest(), world)
    assert all(verdict.holds for verdict in found.values())
    assert found["mine"].code_bytes == found["lstm"].code_bytes


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a method cheat that would be stopped at its first batch: the referee has to find it by
    itself.
    """
    monkeypatch.setattr(contract, "BATCHES", 0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("cheat", [SumsToMore, ScoresLess, SeesTheBlock])
def test_losses_that_no_code_can_have_are_found(cheat: type[Honest], world: World) -> None:
    found = verdicts_beside(cheat(), world)
    assert [name for name, verdict in found.items() if not verdict.holds] == ["mine"]
    assert found["mine"].difference > 0.06
    assert (found["mine"].off > 0.4) == (cheat is SumsToMore)


@pytest.mark.usefixtures("unchecked")
def test_a_method_that_brings_the_text_along_is_not_decoded(world: World) -> None:
    rule = KnowsTheText()

    def without_text(function: Call, *arguments: Any) -> Any:
        rule.text = []
        return function(*arguments)

    with one_thread():
        rule.text = opened(str(world.model), str(world.other), 250, "test")[0].stream.ids.tolist()
    found = verdicts_beside(rule, world, without_text, 250)
    assert [name for name, verdict in found.items() if not verdict.holds] == ["mine"]
    assert abs(found["mine"].difference) < 0.06  # its length is as it says
    assert not found["mine"].decoded


def test_what_the_decoder_knows_does_not_depend_on_the_text(world: World) -> None:
    with one_thread():
        scenario, settings, _ = opened(str(world.model), str(world.other), 60, "test")
        known = Known.of(scenario, settings, moving=False)
        assert not known.scenario.stream.ids.any()
        assert known.scenario.train is None
        ids = scenario.stream.ids[::-1].copy()  # another text of this length
        codes = encode(known, ["lstm", "knn"], ids).codes
        assert decode(known, ["lstm", "knn"], codes) == dict.fromkeys(["lstm", "knn"], ids.tolist())


def test_a_damaged_code_harms_no_other_method(world: World) -> None:
    with one_thread():
        scenario, settings, _ = opened(str(world.model), str(world.other), 60, "test")
        known, ids = Known.of(scenario, settings, moving=False), scenario.stream.ids
        codes = encode(known, ["lstm", "cache", "knn"], ids).codes
        codes["lstm"] = codes["lstm"] ^ codes["lstm"].dtype.type(1 << 20)
        decoded = decode(known, ["lstm", "cache", "knn"], codes)
    assert decoded["cache"] == decoded["knn"] == ids.tolist()
    assert decoded["lstm"] != ids.tolist()


def test_mistakes_are_told_in_one_line(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--output", str(tmp_path / "found.json")]
    assert main(["--checkpoint", str(world.model), "--methods", "gpt", *output]) == 2
    assert "unknown method 'gpt'" in capsys.readouterr().err.splitlines()[-1]
    assert main(["--checkpoint", "someone/model", "--methods", "base", *output]) == 2
    assert (
        "someone/model does not say what it was trained on; name a text with --target"
        in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())
