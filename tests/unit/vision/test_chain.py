from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from hebblm.errors import UserError
from hebblm.vision import permuted as chain_module
from hebblm.vision.mlp import MLP
from hebblm.vision.permuted import MISSING, TRAINED, Chain, TaskStream, train_task
from hebblm.vision.state import Step, load_state

from .samples import TINY, after, patterns

STREAM = TaskStream(patterns(), TINY, 1, torch.device("cpu"))


@dataclass
class Learnt:
    model: MLP
    predictions: torch.Tensor
    numbers: dict[str, dict[str, float]]


def measure(model: MLP, task: int) -> Step:
    tested = (STREAM.test(at, TINY.tested(task))[0] for at in range(task + 1))
    made = torch.stack([model.logits(pixels).argmax(1) for pixels in tested])
    return {"net": made.to(torch.uint8)}, {"net": {"rose": 2}}


def run(path: Path, *, strength: float | None, name: str = "a") -> Learnt:
    chain = Chain(STREAM, strength)
    predictions, numbers = chain.run(measure, "learn", tasks=TINY.tasks, path=path, run=name)
    return Learnt(chain.model, predictions["net"], numbers)


def same(one: Learnt, other: Learnt) -> bool:
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs) and torch.equal(one.predictions, other.predictions)


@pytest.mark.parametrize("strength", [None, 100.0])
@pytest.mark.parametrize("finished", [0, 1, 2])
def test_goes_on_bit_for_bit(
    strength: float | None, finished: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "whole", strength=strength)
    with monkeypatch.context() as patch:
        patch.setattr(chain_module, "train_task", after(finished, chain_module.train_task))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parted", strength=strength)
    trained: list[int] = []

    def counted(*args: Any, **options: Any) -> MLP:
        trained.append(1)
        return train_task(*args, **options)

    monkeypatch.setattr(chain_module, "train_task", counted)
    parted = run(tmp_path / "parted", strength=strength)
    assert len(trained) == TINY.tasks - finished
    assert same(whole, parted)
    assert parted.numbers["net"] == {"rose": 6}
    assert parted.numbers[TRAINED]["seconds"] > 0


def test_a_network_is_placed_as_torch_places_its_own(tmp_path: Path) -> None:
    run(tmp_path / "state", strength=100.0)
    found = load_state(tmp_path / "state", "a")
    assert found is not None
    chain = Chain(STREAM, 100.0)
    chain.restore(found[0])
    assert {value.data_ptr() % 64 for value in chain.tensors().values()} == {0}


def test_predictions_stand_below_the_diagonal(tmp_path: Path) -> None:
    made = run(tmp_path / "state", strength=None).predictions
    assert made.shape == (3, 3, 20)
    for task, tested in enumerate((8, 8, 20)):
        assert (made[task, : task + 1, :tested] < 3).all()
        assert (made[task, : task + 1, tested:] == MISSING).all()
        assert (made[task, task + 1 :] == MISSING).all()


def test_a_penalty_matters(tmp_path: Path) -> None:
    assert not same(run(tmp_path / "a", strength=None), run(tmp_path / "b", strength=1000.0))


def test_refuses_the_state_of_another_run(tmp_path: Path) -> None:
    run(tmp_path / "state", strength=None)
    with pytest.raises(UserError, match=r"belongs to a run with other settings.*delete"):
        run(tmp_path / "state", strength=None, name="b")


@pytest.mark.parametrize("kept", [0, 4, 500])
def test_refuses_a_truncated_state(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "state"
    run(path, strength=None)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match="truncated or unreadable"):
        run(path, strength=None)
