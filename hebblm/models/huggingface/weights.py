"""What tells a model's weights from others, and that they are still those that were opened."""

from __future__ import annotations

import hashlib
from typing import Any

from hebblm.errors import UserError
from hebblm.models.huggingface.key import LAST
from hebblm.models.huggingface.turns import turn

SAMPLE = 512  # numbers of a parameter that tell it from another


class Weights:
    """The weights of a model as they were when it was opened.

    A single number is seen by torch's count of changes, which each copy of a tensor begins anew; what ``.data`` or a
    fused optimizer changes is not counted, but moves most numbers, and with them the hash.

    Args:
        model: of ``transformers``.
        key: whose states memories keep.
    """

    def __init__(self, model: Any, key: str) -> None:
        self._model, self._key = model, key
        with turn(model):  # those of a base that moves may stand in their places meanwhile
            self._sha256, self._counts = fingerprint(model, key), _counts(model)

    def sha256(self) -> str:
        """Return what tells them from others.

        Raises:
            UserError: they are no longer what they were.
        """
        with turn(self._model):
            if self._counts == _counts(self._model) and self._sha256 == fingerprint(self._model, self._key):
                return self._sha256
        raise UserError("the weights changed since hebblm.load; load the model anew")

    def __reduce__(self) -> tuple[type[Weights], tuple[Any, str]]:
        """Copy the model, and take its weights anew."""
        return Weights, (self._model, self._key)


def fingerprint(model: Any, key: str) -> str:
    """Return what tells a model's weights, and their type, from others: a hash of shapes and of some of the numbers.

    Of layers with adapters it is also which of these are active, and their scale.

    Args:
        model: of ``transformers``.
        key: whose states memories keep.
    """
    digest = hashlib.sha256(b"" if key == LAST else key.encode())
    for name, weight in model.named_parameters():
        flat = weight.detach().flatten()
        some = flat[:: max(1, len(flat) // SAMPLE)][:SAMPLE]
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(
            some.double().cpu().numpy().tobytes() if some.is_floating_point() else some.cpu().numpy().tobytes()
        )
    for name, module in model.named_modules():  # of an adapter more than its weights says what it does
        if isinstance(getattr(module, "disable_adapters", None), bool):
            state = (module.active_adapters, module.disable_adapters, getattr(module, "scaling", None))
            digest.update(f"{name} {state}".encode())
    return digest.hexdigest()


def _counts(model: Any) -> list[tuple[int, int]]:
    """Return of each weight where it is and how often it was changed; those of inference mode are not counted."""
    return [(each.data_ptr(), 0 if each.is_inference() else each._version) for each in model.parameters()]
