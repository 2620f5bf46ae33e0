"""The models that ship, and what a checkpoint says of itself, without loading one."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from awd_lstm.document import CONFIG, read_config
from hebblm.download import cache_dir
from hebblm.errors import UserError
from hebblm.files import hash_of, read_json
from hebblm.installation import models_path
from hebblm.suggest import closest, unknown
from hebblm.text.binarize import prepared_corpus, slug
from hebblm.text.dictionary import Dictionary
from hebblm.text.prepared import DICTIONARY_FILE, PreparedCorpus
from hebblm.text.tokenizers import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from hebblm.models.presets import Preset

HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
"""Pattern of the hub's names of models."""

ADAPTER_CONFIG = "adapter_config.json"
"""Configuration of an adapter of ``peft``."""
RECORD = "training.json"
"""Record of a model of ``transformers``'s training: ``corpus``, ``parameters``, ``scores``."""

CHECKOUT = {
    "llama-wt2-small": "",
    "medium-ptb-raw": "",
    "small-ptb-raw": "hebblm-train --corpus ptb --preset small",
    "small-wt2-lower": "hebblm-train --corpus wt2 --preset small --normalization lower",
    "small-wt2-raw": "hebblm-train --corpus wt2 --preset small --normalization raw",
}
"""Models that a checkout of the repository has and a wheel does not, with the command that trains each, if one does."""


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A model that comes with hebblm.

    Args:
        name: as on the command line.
        corpus: that it was trained on.
        normalization: ``raw`` or ``lower``.
        parameters: how many it has, with the tied softmax counted once.
        valid_perplexity: a word of the validation text, as recorded when it was trained.
    """

    name: str
    corpus: str
    normalization: str
    parameters: int
    valid_perplexity: float


def shipped_models() -> list[ShippedModel]:
    """Return the models that ship, by name."""
    found = []
    for folder in _shipped_folders():
        corpus, document = trained_on(folder), read_config(folder)
        if is_causal(folder):
            record = _record(folder)
            size = int(record.get("parameters", 0))
            perplexity = record.get("scores", {}).get("valid", {}).get("word_perplexity", math.nan)
        else:
            size = _parameters(document["config"])
            perplexity = document["training"].get("valid_perplexity", math.nan)
        name, policy = (str(corpus.get(key, "")) for key in ("name", "normalization"))
        found.append(ShippedModel(folder.name, name, policy, size, float(perplexity)))
    return found


def missing_models() -> list[str]:
    """Return the names of the models that only a checkout of the repository has, where this is none."""
    return sorted(CHECKOUT.keys() - {folder.name for folder in _shipped_folders()})


def _shipped_folders() -> list[Path]:
    return sorted(path.parent for path in models_path().glob(f"*/{CONFIG}"))


def model_folder(name: Path) -> Path | None:
    """Return the folder of a model: itself, or that of the shipped model of this name; None for a hub id.

    A name without its last part is enough where it fits one model alone: ``small-ptb`` is ``small-ptb-raw``.

    Raises:
        UserError: something else than a folder, no name that the hub could know, a mistyped one, or a model that is
            not installed.
    """
    if name.is_dir():
        return name
    known = sorted({*CHECKOUT, *(folder.name for folder in _shipped_folders())})
    meant = [other for other in known if other == str(name)] or [
        other for other in known if other.startswith(f"{name}-")
    ]
    if len(meant) == 1:
        return _installed(meant[0])
    if os.path.lexists(name):
        raise UserError(f"{name} is no folder; name the folder of a model")
    if HUB_ID.fullmatch(str(name)) and not closest(str(name), known):
        return None
    remedy = f"name the folder of a checkpoint, a hub id, or a model that ships: {', '.join(known)}"
    raise unknown("checkpoint", str(name), known, remedy)


def _installed(name: str) -> Path:
    """Return the folder of a model that ships.

    Raises:
        UserError: only a checkout of the repository has it.
    """
    if name in missing_models():
        train = f", or train it: {CHECKOUT[name]} --output-path {name}" if CHECKOUT[name] else ""
        raise UserError(f"{name} is not installed; run pip install -e . in a checkout of the repository{train}")
    return models_path() / name


def check_configured(folder: Path) -> None:
    """Refuse a folder that no model was saved to.

    Raises:
        UserError: it has no configuration.
    """
    if not (folder / CONFIG).is_file() and not (folder / ADAPTER_CONFIG).is_file():
        raise UserError(f"{folder} has no {CONFIG}, so it holds no model; name the folder of one")


def is_causal(folder: Path) -> bool:
    """Say whether a folder holds a model of ``transformers``, or an adapter for one, by its configuration."""
    return (folder / ADAPTER_CONFIG).is_file() or "model_type" in read_config(folder)


def trained_on(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint records of its corpus: ``name``, ``normalization`` and more; empty if nothing.

    Beside a model of ``transformers`` it is the ``corpus`` of :data:`RECORD`, a name.
    """
    if is_causal(folder):
        name = _record(folder).get("corpus")
        return {"name": name, "normalization": "raw"} if isinstance(name, str) else {}
    corpus: dict[str, Any] = read_config(folder).get("training", {}).get("corpus", {})
    return corpus


def checkpoint_words(folder: Path) -> tuple[Dictionary, Tokenizer]:
    """Return dictionary and tokeniser of a checkpoint, or of the corpus it was trained on where it has none itself.

    Raises:
        UserError: there are none, the dictionary was changed since the model was trained, or the corpus cannot be had.
    """
    corpus = trained_on(folder)
    if (folder / DICTIONARY_FILE).is_file():
        return checkpoint_dictionary(folder), load_tokenizer(corpus.get("tokenizer", {"name": "whitespace"}), folder)
    if "name" not in corpus:
        raise UserError(f"{folder} has no {DICTIONARY_FILE}; name the corpus it was trained on with --source")
    prepared = prepared_corpus(corpus["name"], corpus.get("normalization"))
    return prepared.dictionary, prepared.tokenizer()


def training_corpus(folder: Path | None, dictionary_hash: str) -> PreparedCorpus:
    """Return the text that a model of words was trained on, the corpus that its checkpoint names.

    Args:
        folder: of the checkpoint, None for none.
        dictionary_hash: of the model's dictionary, which must be the corpus' own.

    Raises:
        UserError: the checkpoint names no corpus, or it cannot be had, or it has other words by now.
    """
    corpus = {} if folder is None else trained_on(folder)
    if "name" not in corpus:
        raise UserError("its checkpoint names none")
    prepared = prepared_corpus(corpus["name"], corpus.get("normalization", "raw"))
    if prepared.dictionary.hash() != dictionary_hash:
        raise UserError(f"{corpus['name']} has other words here than the model")
    return prepared


def checkpoint_dictionary(folder: Path) -> Dictionary:
    """Return the dictionary beside a model, whose counts are those of the text that the model was trained on.

    Raises:
        UserError: missing, malformed, or changed since the model was trained.
    """
    corpus, path = trained_on(folder), folder / DICTIONARY_FILE
    dictionary = Dictionary.load(path, corpus.get("dictionary_file_sha256"))
    counted, tokens = sum(dictionary.counts), corpus.get("train_tokens")
    if tokens not in (None, counted):  # an earlier version wrote no more than this of the counts
        raise UserError(f"{path} counts {counted:,} tokens, {folder / CONFIG} says {tokens:,}; restore it")
    return dictionary


def cached_folder(prepared: PreparedCorpus, preset: Preset) -> Path:
    """Return the cache folder of the model that a preset gives on a corpus: one a recipe, dictionary and text."""
    texts = [prepared.split(split).sha256 for split in ("train", "valid")]  # the latter decides which epoch is kept
    digest = hash_of([preset.model.to_dict(), preset.training.to_dict(), prepared.meta.dictionary_hash, *texts])
    return cache_dir() / "models" / f"{slug(prepared.meta.name)}-{prepared.meta.normalization}-{digest}"


def shipped_folder(prepared: PreparedCorpus, preset: str) -> Path | None:
    """Return the folder of the shipped model for a corpus and preset, None if there is none."""
    folder = models_path() / f"{preset}-{prepared.meta.name}-{prepared.meta.normalization}"
    return folder if folder.is_dir() else None


def _record(folder: Path) -> dict[str, Any]:
    """Return what lies in a folder of a model of ``transformers`` about its training; empty if nothing."""
    path = folder / RECORD
    document = read_json(path) if path.is_file() else {}
    return document if isinstance(document, dict) else {}


def _parameters(config: dict[str, Any]) -> int:
    """Return the number of weights of an AWD-LSTM of this shape."""
    size, width, hidden = (config[name] for name in ("vocabulary_size", "embedding_dim", "hidden_dim"))
    widths = [width, *[hidden] * (config["layers"] - 1), width]
    layers = sum(4 * out * (into + out + 2) for into, out in pairwise(widths))
    return int(size * (width + 1) + layers)
