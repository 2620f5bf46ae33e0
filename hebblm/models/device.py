"""Choice of the device to compute on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hebblm.errors import UserError
from hebblm.suggest import unknown

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")


def check_device(name: str) -> None:
    """Refuse an unknown name.

    Raises:
        UserError: naming those there are.
    """
    if name not in DEVICES:
        raise unknown("device", name, DEVICES, "choose auto, cpu or cuda")


def pick_device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UserError: an unknown name, or CUDA where there is none.
    """
    import torch  # takes seconds, which a mistyped name need not wait for

    check_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' was asked for, but torch sees no CUDA device; use --device cpu")
    return torch.device(name)
