"""The numbers that the paper prints on images, read from ``paper.json`` in this folder.

Its key ``images`` holds Tables "cifar-incre" (by epoch; its caption says 5, its header 10),
"cifar-online", "pretrain" and "ablation" in per cent, and "time" in seconds.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

_PRINTED: dict[str, Any] = json.loads(
    files("hebblm.vision").joinpath("paper.json").read_text("utf-8")
)
SOURCE: str = _PRINTED["source"]


def image(*keys: str | None) -> Any:
    """Return the paper's number under nested keys, such as ``online``, ``ResnetV1``, ``new``,
    ``hebb``.
    """
    value: Any = _PRINTED["images"]
    for key in keys:
        if key not in value:
            return None
        value = value[key]
    return value
