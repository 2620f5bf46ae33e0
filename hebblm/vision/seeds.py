"""Seeds: a stream of random numbers for each purpose, which seeds a run may name, and who runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from hebblm.errors import UserError
from hebblm.ranks import current

if TYPE_CHECKING:
    import torch

R = TypeVar("R")


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return a stream of random numbers of its own for each purpose of a seed."""
    import torch

    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise UserError for a seed twice or below 0, or none at all."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(f"seeds {list(seeds)} must be at least one, each once and none below 0")


def divided(runs: Sequence[Callable[[], R]]) -> list[R]:
    """Return what runs give, in their order: several ranks divide them, and read the others' from what these kept.

    Args:
        runs: each keeps what it has on disk and, called again, gives the same from there.
    """
    ranks = current()
    own = {index: runs[index]() for index in ranks.tasks(len(runs))}
    ranks.wait()
    found = [own[index] if index in own else run() for index, run in enumerate(runs)]
    ranks.wait()  # until all have read what the first may remove
    return found
