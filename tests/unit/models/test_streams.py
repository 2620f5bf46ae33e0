"""A base that reads several streams side by side gives what as many bases give that read one
each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hebblm.errors import UserError
from hebblm.models.awd import AwdBase, AwdModel
from hebblm.models.base import GradientBase
from hebblm.models.huggingface.open import open_causal

from ...support import toy
from .architectures import ARCHITECTURES, OTHERS, random_model

STREAMS = 3


def check(beside: GradientBase, alone: list[GradientBase], words: int) -> None:
    ids = torch.randint(3, words, (STREAMS, 45), generator=torch.Generator().manual_seed(0))
    for begin, end in ((0, 7), (7, 8), (8, 34), (34, 45)):
        found = beside.read(ids[:, begin:end])
        expected = torch.stack(
            [base.read(row[begin:end]) for base, row in zip(alone, ids, strict=True)]
        )
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
        if begin == 7:
            with beside.preserve_state():
                beside.read(ids[:, :20])
            beside.load_stream_state(beside.stream_state())


def test_awd_lstm() -> None:
    model = toy.tiny_model()
    check(AwdBase(model, streams=STREAMS), [AwdBase(model) for _ in range(STREAMS)], toy.SOURCE)


def opened(name: str) -> Any:
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this transformers has no {name}")
    return open_causal(random_model(name), context=16, stride=6)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_transformers(name: str) -> None:
    model = opened(name)
    if name == "Rwkv":  # that of transformers mixes the streams where it reads a single token
        with pytest.raises(
            UserError, match="RwkvForCausalLM computes differently for several streams"
        ):
            model.base(streams=STREAMS)
        return
    check(model.base(streams=STREAMS), [model.base() for _ in range(STREAMS)], 60)


def check_branches(base: GradientBase, words: int, before: int) -> None:
    """Continuations read at once have the states that each has alone, and the stream stays where it
    is.
    """
    ids = torch.randint(3, words, (40,), generator=torch.Generator().manual_seed(1))
    if before:
        base.read(ids[:before])
    rows = [ids[20:27], ids[3:4], ids[21:23]]
    found, expected = base.continuations(rows), GradientBase.continuations(base, rows)
    assert [len(states) for states in found] == [7, 1, 2]
    for own, alone in zip(found, expected, strict=True):
        torch.testing.assert_close(own, alone, atol=2e-5, rtol=1e-4)
    with base.preserve_state():
        torch.testing.assert_close(base.read(rows[0]), expected[0], atol=2e-5, rtol=1e-4)


def test_continuations_by_awd_lstm() -> None:
    check_branches(AwdBase(toy.tiny_model()), toy.SOURCE, 5)


# nothing, a part of a window of 16, and so much that it moves on
@pytest.mark.parametrize("before", [0, 5, 12])
@pytest.mark.parametrize("name", [*ARCHITECTURES, *OTHERS])
def test_continuations_by_transformers(name: str, before: int) -> None:
    check_branches(opened(name).base(), 60, before)


def check_back(base: GradientBase, words: int) -> None:
    """Tokens that are forgotten leave the states of all later ones as they would be without."""
    ids = torch.randint(3, words, (60,), generator=torch.Generator().manual_seed(2))
    at, plain = 3, None
    with base.preserve_state():
        plain = base.read(ids)
    base.read(ids[:at])
    for right, wrong in ((1, 3), (2, 0), (1, 2), (4, 1), (1, 5), (3, 3), (1, 1), (9, 2)):
        wrong = max(0, min(wrong, base.max_rewind - right))
        found = base.read(torch.cat([ids[at : at + right], ids[:wrong]]))[:right]
        torch.testing.assert_close(found, plain[at : at + right], atol=2e-5, rtol=1e-4)
        base.rewind(wrong)
        at += right
    torch.testing.assert_close(base.read(ids[at:]), plain[at:], atol=2e-5, rtol=1e-4)


def test_awd_lstm_goes_back() -> None:
    check_back(AwdBase(toy.tiny_model()), toy.SOURCE)


@pytest.mark.parametrize("name", [*ARCHITECTURES, *OTHERS])
def test_transformers_go_back(name: str) -> None:
    model = opened(name)
    if model.recurrent:
        with pytest.raises(
            UserError,
            match=f"{name}ForCausalLM carries a state that cannot go back; leave draft out",
        ):
            model.base().max_rewind  # noqa: B018
        return
    check_back(model.base(), 60)


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
