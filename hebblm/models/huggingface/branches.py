"""Continuations of one text that a model with attention reads in one pass, as the branches of a
tree.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hebblm.models.huggingface.network import Network, tensors_of

MOST = 512  # tokens of a tree; attention needs memory for each of them and the whole text


@dataclass(frozen=True, slots=True)
class Tree:
    """The tokens of some continuations; a beginning that several of them share is there once.

    Args:
        ids: (T,) int64, each after all those before it in its continuation.
        depth: (T,) int64 tokens before each one in its continuation.
        sees: (T, T) bool whether a token (row) comes after another one (column), or is it.
        places: by continuation, the places of its tokens among ``ids``.
    """

    ids: Tensor
    depth: Tensor
    sees: Tensor
    places: list[list[int]]

    @classmethod
    def of(cls, rows: Sequence[Tensor]) -> Tree:
        """Return the tree of continuations (N_b,)."""
        place_of: dict[tuple[int, ...], int] = {}
        ids: list[int] = []
        depth: list[int] = []
        places: list[list[int]] = []
        for row in rows:
            tokens = tuple(row.tolist())
            path: list[int] = []
            for count in range(1, len(tokens) + 1):
                beginning = tokens[:count]
                if beginning not in place_of:
                    place_of[beginning] = len(ids)
                    ids.append(beginning[-1])
                    depth.append(count - 1)
                path.append(place_of[beginning])
            places.append(path)
        device = rows[0].device
        sees = torch.zeros(len(ids), len(ids), dtype=torch.bool)
        for path in places:
            for count, place in enumerate(path, 1):
                sees[place, path[:count]] = True
        return cls(
            torch.tensor(ids, device=device),
            torch.tensor(depth, device=device),
            sees.to(device),
            places,
        )


def may_branch(cache: object) -> bool:
    """Return whether a carried state takes tokens that do not follow one another.

    So does one that only appends keys and values; others count, overwrite or drop them.
    """
    # A model that gave a cache has loaded transformers already.
    from transformers.cache_utils import DynamicCache, DynamicLayer

    if type(cache) is not DynamicCache:
        return False
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def branch_states(
    network: Network, cache: Any, before: int, tree: Tree, learned: Mapping[str, Tensor]
) -> Tensor:
    """Return states (T, D) after the tokens of a tree; the cache stays as it is.

    Args:
        network: reads them in one pass.
        cache: keys and values of the text before them; see :func:`may_branch`.
        before: tokens of that text.
        tree: the tokens.
        learned: weights in place of the model's, by name.
    """
    seen = torch.cat([tree.sees.new_ones(len(tree.ids), before), tree.sees], 1)  # (T, before + T)
    mask = seen[None, None]
    # Other kinds of attention add the mask to their logits.
    if getattr(network.model.config, "_attn_implementation", None) != "sdpa":
        dtype = network.model.get_input_embeddings().weight.dtype
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    # The layers are copied, but share the tensors, which appending leaves as they are.
    shared = {id(tensor): tensor for _, tensor in tensors_of(cache)}
    states, _ = network.states(
        tree.ids[None],
        copy.deepcopy(cache, shared),
        learned,
        options={"attention_mask": mask, "position_ids": (before + tree.depth)[None]},
    )
    return states[0]
