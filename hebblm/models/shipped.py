"""Getting a base model: the one that ships, one trained before, or a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from awd_lstm import load_checkpoint, read_config
from awd_lstm.checkpoint import STATE, WEIGHTS
from hebblm.files import sha256
from hebblm.models.awd import AwdModel
from hebblm.models.catalog import cached_folder, missing_models, shipped_folder
from hebblm.models.presets import get_preset
from hebblm.models.training import train_model
from hebblm.progress import say
from hebblm.text import PreparedCorpus


def open_model(folder: Path, dictionary_sha256: str, device: torch.device, origin: str = "checkpoint") -> AwdModel:
    """Load a checkpoint that must have been trained with the given dictionary."""
    model = load_checkpoint(folder, dictionary_sha256=dictionary_sha256).to(device)
    if (folder / STATE).is_file():
        say(
            f"warning: the training of {folder} has not ended; these are its best weights so far, and hebblm-train, "
            "asked as before, goes on"
        )
    return AwdModel(model, folder, origin, sha256(folder / WEIGHTS))


def obtain_model(
    prepared: PreparedCorpus, preset: str, *, seed: int, device: torch.device, provenance: dict[str, Any]
) -> AwdModel:
    """Return the shipped model of a preset and corpus, else the one in the cache, else train it there.

    Args:
        prepared: the corpus the model is (to be) trained on.
        preset: ``tiny``, ``small``, ``medium`` or ``paper``.
        seed: of a training run; a shipped model has its own.
        device: where to compute.
        provenance: written into a newly trained checkpoint.
    """
    recipe = get_preset(preset, prepared.meta.name, len(prepared.dictionary), seed)
    dictionary = prepared.meta.dictionary_hash
    shipped = shipped_folder(prepared, preset)
    if shipped is not None and read_config(shipped).get("dictionary_sha256") == dictionary:
        return open_model(shipped, dictionary, device, "shipped")
    folder = cached_folder(prepared, recipe)
    if not (folder / WEIGHTS).exists():
        name = f"{preset}-{prepared.meta.name}-{prepared.meta.normalization}"
        other = "; a checkout of the repository has one" if name in missing_models() else ""
        say(
            f"no {preset} model of {prepared.meta.name} ({prepared.meta.normalization}) yet: "
            f"training one, kept in {folder}{other}"
        )
    train_model(prepared, recipe, folder, device=device, provenance=provenance)
    return open_model(folder, dictionary, device, "trained")
