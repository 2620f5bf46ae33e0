"""Seeds: a stream of random numbers for each purpose, and which seeds a run may name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hebblm.errors import UserError

if TYPE_CHECKING:
    import torch


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return a stream of random numbers of its own for each purpose of a seed."""
    import torch

    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def check_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Return the seeds.

    Raises:
        UserError: a seed twice, or none at all.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds {list(seeds)} must be at least one, each once")
    return tuple(seeds)
