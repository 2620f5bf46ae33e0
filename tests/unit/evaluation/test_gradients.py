"""The gradients of training text are computed once, and what is kept of them is the same to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hebblm.errors import UserError
from hebblm.evaluation.training_text import mean_squares
from hebblm.models.awd import AwdModel

from ...support import toy

IDS = toy.tokens(1, 900, toy.SOURCE)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    return tmp_path / "gradients"


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    computed, compute = [], AwdModel.mean_squares

    def counted(model: AwdModel, *arguments: object) -> list[torch.Tensor]:
        computed.append(1)
        return compute(model, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(AwdModel, "mean_squares", counted)
    return computed


def model(sha256: str = "0") -> AwdModel:
    return AwdModel(toy.tiny_model(), Path("none"), "checkpoint", sha256)


def test_they_are_computed_once_and_told_of_first(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, computed = model().mean_squares(IDS, 10), counting(monkeypatch)
    for _ in range(2):
        found = mean_squares(model(), IDS, 10)
        assert len(found) == len(plain)
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    assert len(computed) == 1
    told = capsys.readouterr().err
    assert told.count("needs the gradients of the training text: about ") == 1
    assert "once for this model; the other methods do without (--methods)" in " ".join(told.split())
    assert told.count("are there from an earlier run") == 1
    assert len(list(cache.iterdir())) == 1, "neither lock nor half a file is left"


def test_another_model_text_or_segment_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = counting(monkeypatch)
    for asked in ((model(), IDS, 10), (model("1"), IDS, 10), (model(), IDS[:-1], 10), (model(), IDS, 11)):
        mean_squares(*asked)
    assert len(computed) == 4


def test_a_changed_file_is_refused(cache: Path) -> None:
    mean_squares(model(), IDS, 10)
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=f"{path.name} was changed .*; delete it"):
        mean_squares(model(), IDS, 10)
