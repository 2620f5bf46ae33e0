"""Where to compute."""

from __future__ import annotations

import torch

from hebblm.errors import UserError


def pick_device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UserError: an unknown name, or CUDA where there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise UserError(f"unknown device {name!r}; choose auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' was asked for, but torch sees no CUDA device; use --device cpu")
    return torch.device(name)
