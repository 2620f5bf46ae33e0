from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
import torch

from awd_lstm.model import NewRows, grow_vocabulary
from hebblm.errors import UserError
from hebblm.evaluation import training_memory as module
from hebblm.evaluation.training_memory import STREAMS, WARM_UP, training_memory, training_states
from hebblm.memory import MemoryConfig
from hebblm.types import OutputHead

from ...support import toy

CPU = torch.device("cpu")


def forgetful():  # type: ignore[no-untyped-def]
    """Return a model that remembers fewer tokens than the parts are warmed up with."""
    model = toy.tiny_model()
    with torch.no_grad():
        for layer in model.layers:
            layer.weight_hh.mul_(0.3)
    return model


@pytest.mark.parametrize("count", [2, 300, 1500, 3 * 4 * WARM_UP + 58, (STREAMS + 1) * 4 * WARM_UP + 3])
def test_equals_reading_the_text_as_one_stream(count: int) -> None:
    model, ids = forgetful(), toy.tokens(0, count, toy.SOURCE)
    parts = list(training_states(model, ids, CPU))
    keys, labels = torch.cat([k for k, _ in parts]), torch.cat([v for _, v in parts])
    stream = torch.from_numpy(ids)
    with torch.no_grad():
        expected = model(stream[None, :-1], model.initial_state(1)).hidden[0]
    assert keys.shape == expected.shape == (count - 1, toy.DIM)
    assert torch.equal(labels.sort().values, stream[1:].sort().values)
    # As a multiset: sorting by a projection pairs the same entries, whatever the order they came in.
    axis = toy.randn(1, toy.DIM, dtype=torch.float64)
    mine, theirs = (
        torch.cat([k.double(), v[:, None] * 10.0], 1) @ torch.cat([axis, axis[:1]])
        for k, v in ((keys, labels), (expected, stream[1:]))
    )
    assert torch.allclose(mine.sort().values, theirs.sort().values, atol=2e-4)
    if count < 8 * WARM_UP:
        assert torch.allclose(keys, expected, atol=1e-4), "one part keeps the order"
        assert torch.equal(labels, stream[1:])


def ask(model, ids, owner: str, head: OutputHead | None = None, **config: object):  # type: ignore[no-untyped-def]
    memory = MemoryConfig(**{"index": "exact", **config})  # type: ignore[arg-type]
    return training_memory(
        model, ids, memory, model_hash=owner, dictionary_hash="d" * 64, device=CPU, head=head
    )


def grown(model, init: NewRows) -> OutputHead:  # type: ignore[no-untyped-def]
    """Return the model's head with a few further rows."""
    copied = copy.deepcopy(model)
    grow_vocabulary(copied, toy.NOVEL, init, torch.Generator().manual_seed(3))
    return OutputHead(copied.embedding.detach(), copied.bias.detach())


@pytest.mark.parametrize("init", ["zero", "mean", "uniform"])
@pytest.mark.parametrize("config", [{}, {"dtype": "float16"}, {"capacity": 50}, {"index": "auto"}])
def test_normalizers_are_those_of_the_stored_keys_under_the_whole_head(
    init: NewRows, config: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    model, ids = forgetful(), toy.tokens(1, 200, toy.SOURCE)
    head = grown(model, init)
    memory = ask(model, ids, "a" * 64, head, **config)
    memory.add(toy.randn(0, 3, toy.DIM), torch.tensor([1, 2, 3]), torch.zeros(3))
    memory.reset()
    near = memory.search(toy.randn(3, 4, toy.DIM), 9)
    assert near.log_normalizers is not None
    expected = head.logits(near.keys).double().logsumexp(2).float()
    torch.testing.assert_close(near.log_normalizers, expected, rtol=1e-6, atol=2e-6)


def test_a_memory_with_normalizers_serves_a_head_that_moves_but_not_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    model, ids = forgetful(), toy.tokens(1, 200, toy.SOURCE)
    probe, head = toy.randn(3, 4, toy.DIM), OutputHead(model.embedding.detach(), model.bias.detach())
    assert ask(model, ids, "a" * 64).search(probe, 9).log_normalizers is None
    assert ask(model, ids, "a" * 64, head).search(probe, 9).log_normalizers is not None
    assert len(list((tmp_path / "memory").iterdir())) == 2
    ask(model, ids, "b" * 64, head)
    monkeypatch.setattr(module, "training_states", lambda *args: pytest.fail("it is in the cache"))
    ask(model, ids, "b" * 64)


def test_is_built_once_and_refused_for_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))
    model, ids = forgetful(), toy.tokens(1, 200, toy.SOURCE)
    built = ask(model, ids, "a" * 64)
    built.add(toy.randn(0, 3, toy.DIM), torch.tensor([1, 2, 3]))
    built.reset()
    assert len(built) == 199, "what is observed later must not stay"
    [first] = (tmp_path / "memory").iterdir()
    ask(model, ids, "b" * 64)
    [second] = set((tmp_path / "memory").iterdir()) - {first}
    assert len(ask(model, ids, "a" * 64, capacity=50)) == 50

    monkeypatch.setattr(module, "training_states", lambda *args: pytest.fail("it is in the cache"))
    again = ask(model, ids, "a" * 64)
    probe = toy.randn(3, 4, toy.DIM)
    assert torch.equal(again.search(probe, 9).keys, built.search(probe, 9).keys)
    assert torch.equal(again.search(probe, 9).values, built.search(probe, 9).values)
    shutil.rmtree(second)
    shutil.copytree(first, second)
    with pytest.raises(UserError, match="model"):
        ask(model, ids, "b" * 64)
