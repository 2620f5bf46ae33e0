"""A method of the user's own that breaks a promise is named in one line before it is ranked."""

from __future__ import annotations

from pathlib import Path

import pytest

import hebblm
from hebblm.adapt import contract, methods
from hebblm.errors import UserError

from .conftest import World, refused, run

PLUGIN = """
import torch
import hebblm
from hebblm.adapt.methods.predictor import Requirements

class Own:
    name = "own"
    requirements = Requirements({requirements})

    def log_probs(self, batch):
        base = batch.log_probs
        {log_probs}

    def score(self, batch, targets):
        {score}

hebblm.register(hebblm.Method("own", "Own", "ours", lambda settings: Own()))
"""
GATHERED = "return -self.log_probs(batch).gather(1, targets[:, None]).squeeze(1)"
LABELS = (
    "labels = batch.block.labels % base.shape[1]; known = torch.nn.functional.one_hot(labels, "
    "base.shape[1])"
)
FAULTS = {  # what log_probs returns, score, the message
    "sum": ("return base + 0.14", GATHERED, "own: its probabilities sum to 1.15, not to 1; divide "
        "them by their sum"),
    "sum of what was seen": (
        "seen = batch.window(9).seen.any(1, keepdim=True); return base + 0.14 * seen",
        GATHERED,
        "own: its probabilities sum to 1.15, not to 1",
    ),
    "probabilities": ("return base.exp()", GATHERED, "own: its probabilities sum to"),
    "one row": ("return base[0]", "return torch.zeros(len(targets))",
    "own: log_probs gives a tensor of shape ("),
    "no tensor": ("return base.tolist()", GATHERED, "own: log_probs gives a list, not (N, V) = ("),
    "nan": ("return base * float('nan')", GATHERED, "own: log_probs has nan or inf"),
    "inf": ("return base - float('-inf')", GATHERED, "own: log_probs has nan or inf"),
    "one loss": ("return base", "return torch.zeros(1)", "own: score gives a tensor of shape (1,) "
        "for"),
    "less loss": ("return base", f"{GATHERED} / 2", "own: score gives"),
    "own label": (f"{LABELS}; return (base.exp() / 2 + known / 2).log()", GATHERED,
    "own: a later label or state"),
    "later label": (
        f"{LABELS}; return (base.exp() / 2 + known.roll(-1, 0) / 2).log()", GATHERED,
        "own: a later label or state",
    ),
    "later state": (
        "return base.exp().mean(0, keepdim=True).expand_as(base).log()", GATHERED,
        "own: a later label or state",
    ),
    "later label in the loss": (
        "return base", "return batch.base_losses(targets) * (1 + 0.1 * (batch.block.labels[-1] % "
            "2))", "own: ",
    ),
}  # fmt: skip


def written(path: Path, log_probs: str, score: str) -> Path:
    requirements = "window=9" if "window" in log_probs else ""
    path.write_text(PLUGIN.format(requirements=requirements, log_probs=log_probs, score=score))
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    log_probs, score, message = FAULTS[fault]
    plugin = written(tmp_path / "own.py", log_probs, score)
    out = tmp_path / "out"
    line = (
        f"eval --checkpoint {world.model} --target {world.other_prepared} --max-tokens 300 "
        "--device cpu"
    )
    refused(
        capsys,
        f"{line} --plugin {plugin} --methods lstm,own --output-path {out}",
        message,
        work_before=True,
    )
    assert not (out / "result.json").exists()
    with pytest.raises(UserError) as error:
        hebblm.load(world.model).reader("own", update_every=20).read(world.other.read_text()[:2000])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_method_that_keeps_its_promises_passes_and_is_asked_no_more_than_twice(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods.load_plugin(written(tmp_path / "own.py", "return (base / 2).log_softmax(1)", GATHERED))
    checked: list[str] = []
    check = contract.check_predictor
    monkeypatch.setattr(
        contract,
        "check_predictor",
        lambda method, *rest: (checked.append(method), check(method, *rest)),
    )
    line = (
        f"eval --checkpoint {world.model} --target {world.other_prepared} --max-tokens 900 "
        "--device cpu"
    )
    for policy in ("union", "open"):
        checked.clear()
        options = (
            f"--methods lstm,own,cache,own+ngram --vocabulary {policy} --output-path "
            f"{tmp_path / policy}"
        )
        assert run(f"{line} {options}") == 0
        assert 2 <= len(checked) <= 4
        assert set(checked) == {"own", "own+ngram"}, "those of the package are tested with it"
    checked.clear()
    reader = hebblm.load(world.model).reader("own", update_every=20)
    reader.read(world.other.read_text()[:2000])
    reader.read(world.other.read_text()[:2000])
    assert checked == ["own"] * contract.BATCHES


@pytest.mark.parametrize(
    ("method", "documents"),
    [
        *((method, 1) for method in ("knn", "hebb", "mixture+mbpa", "best")),
        *((method, 3) for method in ("cache", "mbpa", "ngram", "best")),
    ],
)
def test_the_methods_of_the_package_keep_them_too(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str, documents: int
) -> None:
    """So a check refuses nobody by rounding."""
    monkeypatch.setattr(methods, "_OWN", frozenset(methods.METHODS) - {method})
    monkeypatch.setattr(contract, "BATCHES", 4)
    text = world.other.read_text()
    reader = hebblm.load(world.model).reader(method, update_every=20)
    reader.read([text[start : start + 900] for start in range(0, 900 * documents, 900)])
    assert reader.session.online.checks._left == {method: 0}
