"""The state of a run: one file, read back bit for bit or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim import ASGD, SGD, AdamW, Optimizer

from awd_lstm import CheckpointError
from awd_lstm.checkpoint import load_state, pack_optimizer, save_state, unpack_optimizer


def optimizer(kind: str, parameters: list[nn.Parameter]) -> Optimizer:
    if kind == "adamw":
        return AdamW(parameters, lr=1e-2, weight_decay=0.1, fused=True)
    if kind == "asgd":
        return ASGD(parameters, lr=0.5, t0=0, lambd=0.0)
    return SGD(parameters, lr=0.5)


def descend(parameters: list[nn.Parameter], descent: Optimizer, steps: range) -> None:
    for step in steps:
        descent.zero_grad()
        torch.stack([((p - step) ** 2).sum() for p in parameters]).sum().backward()
        descent.param_groups[0]["lr"] = 0.01 * (1 + step % 3)
        descent.step()


def parameters() -> list[nn.Parameter]:
    g = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(3, 2, generator=g)), nn.Parameter(torch.randn(4, generator=g))]


@pytest.mark.parametrize("kind", ["sgd", "asgd", "adamw"])
def test_an_optimizer_goes_on_where_it_stopped(tmp_path: Path, kind: str) -> None:
    straight = parameters()
    first = optimizer(kind, straight)
    descend(straight, first, range(9))

    before = parameters()
    stopped = optimizer(kind, before)
    descend(before, stopped, range(5))
    save_state(tmp_path / "s", pack_optimizer(stopped), {})
    after = [nn.Parameter(p.detach().clone()) for p in before]
    resumed = optimizer(kind, after)
    unpack_optimizer(resumed, load_state(tmp_path / "s")[0])
    descend(after, resumed, range(5, 9))

    for mine, true in zip(after, straight, strict=True):
        assert torch.equal(mine, true)
    if kind == "asgd":
        for mine, true in zip(after, straight, strict=True):
            assert torch.equal(resumed.state[mine]["ax"], first.state[true]["ax"])


def test_tensors_and_record_come_back_exactly(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 4).t(),
        "b": torch.get_rng_state(),
        "c": torch.tensor(2.0, dtype=torch.float64),
    }
    record = {"loss": 0.1 + 0.2, "curve": [[0, 100, 5.123456789012345]], "averaging": True}
    save_state(tmp_path / "run" / "state", tensors, record)
    loaded, stored = load_state(tmp_path / "run" / "state")
    assert stored == record
    assert loaded.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(loaded[name], value)
        assert loaded[name].dtype == value.dtype


def test_tensors_are_placed_as_torch_places_its_own(tmp_path: Path) -> None:
    save_state(tmp_path / "state", {name: torch.ones(3) for name in "abc"}, {})
    assert {value.data_ptr() % 64 for value in load_state(tmp_path / "state")[0].values()} == {0}


def test_a_nan_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    save_state(tmp_path / "state", {"a": torch.ones(2)}, {"loss": 1.0})
    with pytest.raises(ValueError, match="JSON"):
        save_state(tmp_path / "state", {"a": torch.ones(2)}, {"loss": float("nan")})
    assert load_state(tmp_path / "state")[1] == {"loss": 1.0}


def test_a_truncated_state_is_refused(tmp_path: Path) -> None:
    save_state(tmp_path / "state", {"a": torch.ones(100)}, {})
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(content[:-50])
    with pytest.raises(
        CheckpointError,
        match="truncated or was changed since it was written; delete it to start anew",
    ):
        load_state(tmp_path / "state")


def test_another_file_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "state", {"format": "awd-lstm/1"})
    with pytest.raises(CheckpointError, match="is not the state of a training run"):
        load_state(tmp_path / "state")
