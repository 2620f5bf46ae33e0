"""The device to compute on, and memory that stays allocated for the next step."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from hebblm.errors import UserError
from hebblm.runtime.spelling import unknown

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")
# Of glibc's malloc.h. The threshold is the largest that glibc accepts on 64-bit machines.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_THRESHOLD = 32 << 20  # bytes
NEVER = (1 << 31) - 1  # bytes


def check_device(name: str) -> None:
    kind, colon, number = name.partition(":")
    if kind not in DEVICES or (colon and (kind == "auto" or not number.isdecimal())):
        raise unknown(
            "device", name, DEVICES, "choose auto, cpu, cuda, or one of several, such as cuda:1"
        )


def pick_device(name: str) -> torch.device:
    """Return the device named ``auto``, ``cpu`` or ``cuda``, the latter two also with a number,
    such as ``cuda:1``.
    """
    import torch  # takes seconds, which a mistyped name need not wait for

    check_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"device {name!r} was asked for, but torch finds no CUDA device; use --device cpu"
        )
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if number and int(number) >= count:
        raise UserError(
            f"device = {name} is not one of the {count} devices of its kind here; leave the number "
            "out"
        )
    return torch.device(kind, int(number)) if number else torch.device(kind)


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory; return whether there is a glibc.

    A step of training or of evaluation frees tens of megabytes, and the next one needs as many;
    pages that were given back have to be mapped and cleared again. The process grows to its largest
    step and stays there.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    accepted = [mallopt(M_MMAP_THRESHOLD, LARGEST_THRESHOLD), mallopt(M_TRIM_THRESHOLD, NEVER)]
    return all(accepted)
