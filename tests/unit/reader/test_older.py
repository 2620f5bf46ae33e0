"""Saved readers of earlier versions, in the case that the committed files do not have."""

from __future__ import annotations

import numpy as np
import torch

from hebblm.reader.older import session_state

PLACE = {
    "observed": torch.tensor([3, 0]),
    "recent.keys": torch.ones(1, 2),
    "recent.labels": torch.tensor([0]),
    "state.cache.0": torch.ones(2),
    "weight.head.weight": torch.zeros(2, 2),
}


def test_weights_of_a_text_that_is_not_learned_stand_beside_those_before_it() -> None:
    shares = {"weight of mbpa/1": (0.5,), "weight of mbpa/1, here": (0.75,)}
    state = session_state(PLACE, shares, {"history": np.array([4, 5])})
    assert state["context 0: 0 weights: weight of mbpa/1"].tolist() == [0.75]
    assert state["context 0: 0 learned weights: weight of mbpa/1"].tolist() == [0.5]
    assert state["context 0: 0 history"].tolist() == [4, 5]
    assert state["base: state cache 0"].tolist() == [1, 1]
    assert state["base: weight head.weight"].shape == (2, 2)


def test_weights_of_a_text_that_is_learned_are_the_only_ones() -> None:
    state = session_state(PLACE, {"weight of mbpa/1": (0.5,)}, {})
    assert state["context 0: 0 weights: weight of mbpa/1"].tolist() == [0.5]
    assert not [name for name in state if "learned weights" in name]
