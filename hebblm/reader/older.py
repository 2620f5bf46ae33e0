"""Places of readers that an earlier version saved, under the names of a session's state."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hebblm.adapt.context import LEARNED, WEIGHTS
from hebblm.io.groups import prefixed, under
from hebblm.memory.ngrams import Array
from hebblm.models.base import State

OLDER_SCHEMA = "hebblm-reader/1"
HERE = ", here"  # after the name of weights that a text made, which is not learned


def session_state(
    place: Mapping[str, Tensor],
    shares: Mapping[str, tuple[float, ...]],
    ngrams: Mapping[str, Array],
) -> State:
    """Return the state of a session from a reader of :data:`OLDER_SCHEMA`.

    Args:
        place: tensors of its file of the place.
        shares: mixture weights by name, from its record.
        ngrams: its counts, with the last tokens as ``history``.
    """
    learned: State = {}
    of_open_text: State = {}  # as a text that is not learned made them
    for name, numbers in shares.items():
        tensor = torch.tensor(numbers, dtype=torch.float64)
        if name.endswith(HERE):
            of_open_text[name.removesuffix(HERE)] = tensor
        else:
            learned[name] = tensor
    stream: State = {
        "begin": torch.tensor(0),
        "keys": place["recent.keys"],
        "labels": place["recent.labels"],
        "history": torch.from_numpy(ngrams["history"]) if "history" in ngrams else torch.zeros(0),
        **prefixed(WEIGHTS, {**learned, **of_open_text}),
    }
    if of_open_text:
        stream |= prefixed(LEARNED, learned)
    states = {name.replace(".", " "): tensor for name, tensor in under("state.", place).items()}
    return {
        **prefixed("base: state ", states),
        **prefixed("base: weight ", under("weight.", place)),
        "context 0: observed": place["observed"],
        **prefixed("context 0: 0 ", stream),
    }
