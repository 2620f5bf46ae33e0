"""Groups of tensors, by how their names begin."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a prefix before each name."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a group under their own names; the inverse of :func:`prefixed`."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
