"""The models that ship, and what a checkpoint says of itself, without loading one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from awd_lstm.document import CONFIG, read_config
from hebblm.installation import models_path
from hebblm.suggest import unknown


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A model that comes with hebblm.

    Args:
        name: as on the command line.
        corpus: that it was trained on.
        normalization: ``raw`` or ``lower``.
        parameters: how many it has, with the tied softmax counted once.
        valid_perplexity: on the validation text, as recorded when it was trained.
    """

    name: str
    corpus: str
    normalization: str
    parameters: int
    valid_perplexity: float


def shipped_models() -> list[ShippedModel]:
    """Return the models that ship, by name."""
    found = []
    for folder in sorted(path.parent for path in models_path().glob(f"*/{CONFIG}")):
        corpus, document = trained_on(folder), read_config(folder)
        found.append(
            ShippedModel(
                folder.name,
                str(corpus.get("name", "")),
                str(corpus.get("normalization", "")),
                _parameters(document["config"]),
                float(document["training"].get("valid_perplexity", math.nan)),
            )
        )
    return found


def checkpoint_folder(name: Path) -> Path:
    """Return the folder of a checkpoint: itself, or that of the shipped model of this name.

    A name without its last part is enough where it fits one model alone: ``small-ptb`` is ``small-ptb-raw``.

    Raises:
        UserError: neither of them.
    """
    if name.is_dir():
        return name
    known = [model.name for model in shipped_models()]
    meant = [other for other in known if other == str(name)] or [
        other for other in known if other.startswith(f"{name}-")
    ]
    if len(meant) == 1:
        return models_path() / meant[0]
    remedy = f"name the folder of a checkpoint, or a model that ships: {', '.join(known)}"
    raise unknown("checkpoint", str(name), known, remedy)


def trained_on(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint records of its corpus: ``name``, ``normalization`` and more; empty if nothing."""
    corpus: dict[str, Any] = read_config(folder).get("training", {}).get("corpus", {})
    return corpus


def _parameters(config: dict[str, Any]) -> int:
    """Return the number of weights of an AWD-LSTM of this shape."""
    size, width, hidden = (config[name] for name in ("vocabulary_size", "embedding_dim", "hidden_dim"))
    widths = [width, *[hidden] * (config["layers"] - 1), width]
    layers = sum(4 * out * (into + out + 2) for into, out in pairwise(widths))
    return int(size * (width + 1) + layers)
