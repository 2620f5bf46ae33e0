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
    kind, colon, number = name.partition(":")
    if kind not in DEVICES or (colon and (kind == "auto" or not number.isdecimal())):
        raise unknown("device", name, DEVICES, "choose auto, cpu, cuda, or one of several as cuda:1")


def pick_device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu`` or ``cuda``, the latter two also with a number, as ``cuda:1``.

    Raises:
        UserError: an unknown name, CUDA where there is none, or a number that none of its kind has.
    """
    import torch  # takes seconds, which a mistyped name need not wait for

    check_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {name!r} was asked for, but torch sees no CUDA device; use --device cpu")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if number and int(number) >= count:
        raise UserError(f"device = {name} is none of the {count} of its kind here; leave the number out")
    return torch.device(kind, int(number)) if number else torch.device(kind)
