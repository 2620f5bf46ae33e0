"""Limit of one thread for products so small that a second one is mostly waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

SMALL = 1 << 18  # weights of the largest matrix: a megabyte, which lies in a core's own cache


@contextmanager
def one_thread_if_small(layers: nn.Module) -> Iterator[None]:
    """Run on one thread inside where no matrix of some layers is large.

    Reading one stream multiplies each matrix by one vector after the other. A second thread gains next to nothing on
    these, but must be met after every product, which beside a busy process may mean to wait until it has its turn.

    Args:
        layers: whose matrices are multiplied by single vectors.
    """
    before = torch.get_num_threads()
    if before == 1 or max(weights.numel() for weights in layers.parameters()) > SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
