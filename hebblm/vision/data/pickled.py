"""CIFAR-100 in its pickled layout, read without letting the pickle run anything."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch

from hebblm.errors import UserError
from hebblm.vision.data.images import Images, check_labels

FIELDS = (b"data", b"fine_labels", b"coarse_labels")


def _latin1(text: str, encoding: str) -> bytes:
    """Return bytes that a new Python wrote as text in an old protocol."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}, which no picture needs")
    return text.encode("latin1")


_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED = {
    # What an array of bytes and a dictionary need, by the names that old and new versions of NumPy write.
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _Unpickler(pickle.Unpickler):
    """Unpickler that knows the few names of the allow-list and refuses every other one."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no picture needs")
        return _ALLOWED[module, name]


def parse_pickle(data: bytes, source: str, shape: tuple[int, int, int], labels: tuple[int, int]) -> Images:
    """Take the pictures and fine labels out of a pickled dictionary.

    Args:
        data: the bytes of the member ``train`` or ``test``.
        source: what to call it in an error.
        shape: planes, rows and columns of a picture.
        labels: how many classes and how many superclasses there are.

    Returns:
        The pictures (N, C, H, W) with their fine labels.

    Raises:
        UserError: damaged, a name that is not on the allow-list, or no CIFAR-100.
    """
    try:
        found = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{source} is no pickle of CIFAR-100 ({error}); get the file again") from error
    if not isinstance(found, dict) or any(field not in found for field in FIELDS):
        raise UserError(f"{source} has no {', '.join(field.decode() for field in FIELDS)}; get CIFAR-100's own")
    pixels, fine, coarse = (found[field] for field in FIELDS)
    width = shape[0] * shape[1] * shape[2]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (width,):
        raise UserError(f"{source} holds no pictures of {width:,} bytes; get CIFAR-100's own")
    classes = []
    for name, (values, count) in zip(FIELDS[1:], zip((fine, coarse), labels, strict=True), strict=True):
        if not isinstance(values, list) or not all(type(value) is int for value in values):
            raise UserError(f"{source}: {name.decode()} is no list of whole numbers; get CIFAR-100's own")
        if len(values) != len(pixels):
            raise UserError(
                f"{source} has {len(pixels):,} pictures and {len(values):,} {name.decode()}; get the file again"
            )
        classes.append(torch.tensor(values, dtype=torch.int64))
        check_labels(classes[-1], count, source)
    return Images(torch.from_numpy(pixels.copy()).reshape(-1, *shape), classes[0])
