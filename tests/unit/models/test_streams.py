"""A base that reads several streams side by side gives what as many bases give that read one each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hebblm.errors import UserError
from hebblm.models.awd import AwdBase, AwdModel
from hebblm.models.base import GradientBase
from hebblm.models.huggingface.open import open_causal

from ...support import toy
from .architectures import ARCHITECTURES, random_model

STREAMS = 3


def check(beside: GradientBase, alone: list[GradientBase], words: int) -> None:
    ids = torch.randint(3, words, (STREAMS, 45), generator=torch.Generator().manual_seed(0))
    for begin, end in ((0, 7), (7, 8), (8, 34), (34, 45)):
        found = beside.read(ids[:, begin:end])
        expected = torch.stack([base.read(row[begin:end]) for base, row in zip(alone, ids, strict=True)])
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
        if begin == 7:
            with beside.aside():
                beside.read(ids[:, :20])
            beside.load_stream_state(beside.stream_state())


def test_awd_lstm() -> None:
    model = toy.tiny_model()
    check(AwdBase(model, streams=STREAMS), [AwdBase(model) for _ in range(STREAMS)], toy.SOURCE)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this transformers has no {name}")
    model = open_causal(random_model(name), context=16, stride=6)
    if name == "Rwkv":  # that of transformers mixes the streams where it reads a single token
        with pytest.raises(UserError, match="RwkvForCausalLM gets other states for several streams"):
            model.base(streams=STREAMS)
        return
    check(model.base(streams=STREAMS), [model.base() for _ in range(STREAMS)], 60)


@pytest.mark.parametrize("ranks", [3, 7])
def test_processes_read_a_training_text_in_shares(ranks: int) -> None:
    model = AwdModel(toy.tiny_model(), Path("none"), "checkpoint", "0")
    ids = toy.tokens(5, 4_400, toy.SOURCE)  # four parts side by side
    for done, state in ((0, None), (2, list(model.segments(ids))[1].state)):
        whole = list(model.segments(ids, done, state))
        shares = [list(model.segments(ids, done, state, rank, ranks)) for rank in range(ranks)]
        assert len(whole) > 1
        for index, segment in enumerate(whole):
            parts = [share[index] for share in shares]
            assert torch.equal(torch.cat([part.labels for part in parts]), segment.labels)
            torch.testing.assert_close(torch.cat([part.keys for part in parts]), segment.keys)
            for name, tensor in segment.state.items():
                torch.testing.assert_close(torch.cat([part.state[name] for part in parts]), tensor)
