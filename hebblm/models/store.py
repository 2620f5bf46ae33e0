"""Places of prepared corpora and models: shipped with the project, or in the user's cache."""

from __future__ import annotations

import re
from pathlib import Path

from hebblm.download import cache_dir
from hebblm.errors import UserError
from hebblm.files import hash_of
from hebblm.installation import models_path
from hebblm.models.presets import Preset
from hebblm.text import Normalization, PreparedCorpus, load_prepared, prepare, resolve


def prepared_corpus(name: str, normalization: Normalization | None, *, train: bool = True) -> PreparedCorpus:
    """Return a corpus as ids, prepared in the cache if it was not before.

    Args:
        name: as on the command line.
        normalization: None for raw, or for what a prepared folder has.
        train: whether its training split is needed, too; it is not where a corpus is only read.

    Raises:
        UserError: unknown, missing, empty or altered corpus, or one that lacks the training split.
    """
    corpus = resolve(name)
    if train and "train" not in corpus.splits:
        raise UserError(f"{name} has no train split, only {', '.join(corpus.splits)}; it can only be read, as --target")
    if corpus.prepared is not None:
        found = load_prepared(corpus.prepared)
        return prepare(corpus, normalization=normalization or found.meta.normalization, destdir=corpus.prepared)
    policy = normalization or "raw"
    return prepare(corpus, normalization=policy, destdir=cache_dir() / "corpora" / f"{_slug(name)}-{policy}")


def cached_folder(prepared: PreparedCorpus, preset: Preset) -> Path:
    """Return the cache folder of the model that a preset gives on a corpus, one for each recipe and dictionary."""
    text = prepared.split("train").sha256
    digest = hash_of([preset.model.to_dict(), preset.training.to_dict(), prepared.meta.dictionary_hash, text])
    return cache_dir() / "models" / f"{_slug(prepared.meta.name)}-{prepared.meta.normalization}-{digest}"


def shipped_folder(prepared: PreparedCorpus, preset: str) -> Path | None:
    """Return the folder of the shipped model for a corpus and preset, None if there is none."""
    folder = models_path() / f"{preset}-{prepared.meta.name}-{prepared.meta.normalization}"
    return folder if folder.is_dir() else None


def _slug(name: str) -> str:
    """Turn a corpus' name into a file name; a hash keeps names apart that differ in other characters."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    return plain if plain == name else f"{plain[:40]}-{hash_of(name)[:8]}"
