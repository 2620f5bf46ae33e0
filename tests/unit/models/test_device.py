"""Devices by name, one thread for small products, and freed memory that is kept where the C library
can be told to.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import hebblm
from hebblm.cli.eval import main
from hebblm.errors import UserError
from hebblm.models.awd import SMALL, one_thread_if_small
from hebblm.models.device import keep_freed_memory, pick_device

from ...support import toy


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("cpu") == pick_device("auto") == torch.device("cpu")
    with pytest.raises(UserError, match="'cuda' was asked for"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("cuda") == pick_device("auto") == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    for name in ("cuda:2", "cpu:1"):
        with pytest.raises(UserError, match=f"{name} is not one of the"):
            pick_device(name)
    for name in ("tpu", "cuda:x", "cuda:", "auto:0"):
        with pytest.raises(UserError, match=f"unknown device '{name}'"):
            pick_device(name)


@pytest.mark.usefixtures("two_threads")
def test_only_one_stream_of_small_layers_gets_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for weights, streams, threads in ((SMALL, 1, 1), (SMALL + 1, 1, 2), (SMALL, 3, 2)):
        with one_thread_if_small(nn.Linear(1, weights), streams):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2
    with pytest.raises(KeyError), one_thread_if_small(nn.Linear(1, 1), 1):
        raise KeyError
    assert torch.get_num_threads() == 2
    base, seen = toy.base_of(toy.tiny_model()), []
    read = base.model.forward
    monkeypatch.setattr(
        base.model, "forward", lambda *a: (seen.append(torch.get_num_threads()), read(*a))[1]
    )
    assert base.read(torch.tensor([1, 2, 3])).shape == (3, toy.DIM)
    assert seen == [1]


def test_only_a_command_asks_for_memory_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("Call frobnitz with two arguments .\n" * 3)
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *values: asked.append(values) is None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    hebblm.evaluate("tiny-pydoc-raw", tmp_path / "a.txt", methods="lstm")
    assert not asked
    assert (
        main(
            [
                "--checkpoint",
                "tiny-pydoc-raw",
                "--text",
                str(tmp_path / "a.txt"),
                "--methods",
                "lstm",
            ]
        )
        == 0
    )
    assert len(asked) == 2
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())  # another C library
    assert not keep_freed_memory()
