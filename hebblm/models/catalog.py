"""The models that ship, and the records of checkpoints, without loading a model."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from awd_lstm.document import CONFIG, read_config
from hebblm.errors import UserError
from hebblm.io.download import cache_dir
from hebblm.io.files import hash_of, lack, read_json
from hebblm.io.installation import models_path
from hebblm.models.pretrained import PRETRAINED
from hebblm.runtime.spelling import closest, unknown
from hebblm.text.binarize import prepared_corpus, slug
from hebblm.text.dictionary import Dictionary
from hebblm.text.prepared import DICTIONARY_FILE, PreparedCorpus
from hebblm.text.tokenizers import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from hebblm.models.presets import Preset

HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")  # the hub's names of models
ADAPTER_CONFIG = "adapter_config.json"  # of peft
GGUF = ".gguf"  # end of the name of a file of llama.cpp
RECORD = "training.json"  # of a model of transformers: corpus, parameters, scores

CHECKOUT = {
    "llama-wt2-small": "",
    "medium-ptb-raw": "",
    "small-ptb-raw": "hebblm-train --corpus ptb --preset small --output-path small-ptb-raw",
    "small-wt2-lower": "hebblm-train --corpus wt2 --preset small --normalization lower "
    "--output-path small-wt2-lower",
    "small-wt2-raw": "hebblm-train --corpus wt2 --preset small --normalization raw "
    "--output-path small-wt2-raw",
}
"""Models that a checkout of the repository has and a wheel does not, with the command that trains
each, if any.
"""


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A model that comes with hebblm."""

    name: str
    corpus: str
    normalization: str  # raw or lower
    parameters: int  # with the tied softmax counted once
    valid_perplexity: float  # a word of the validation text, as recorded when it was trained


def shipped_models() -> list[ShippedModel]:
    models = []
    for folder in _shipped_folders():
        corpus = trained_on(folder)
        document = read_config(folder)
        if is_causal(folder):
            record = _record(folder)
            size = int(record.get("parameters", 0))
            perplexity = record.get("scores", {}).get("valid", {}).get("word_perplexity", math.nan)
        else:
            size = _parameters(document["config"])
            perplexity = document["training"].get("valid_perplexity", math.nan)
        name, policy = (str(corpus.get(key, "")) for key in ("name", "normalization"))
        models.append(ShippedModel(folder.name, name, policy, size, float(perplexity)))
    return models


def missing_models() -> list[str]:
    """Return the names of the models that only a checkout of the repository has, outside a
    checkout.
    """
    return sorted(CHECKOUT.keys() - {folder.name for folder in _shipped_folders()})


def _shipped_folders() -> list[Path]:
    return sorted(path.parent for path in models_path().glob(f"*/{CONFIG}"))


def model_folder(name: Path) -> Path | None:
    """Return the folder of a model, given by itself or by a shipped model's name; None for a hub id
    or ``PRETRAINED``.

    The path of a GGUF file is returned as it is.
    A name without its last part is enough if it fits only one model: ``small-ptb`` is
    ``small-ptb-raw``.
    """
    if name.is_dir() or is_gguf(name):
        return name
    if str(name) in PRETRAINED:
        return None
    if name.suffix == GGUF:
        raise UserError(f"{name} {lack(name)}; name a GGUF file")
    shipped = [folder.name for folder in _shipped_folders()]
    known = sorted(set(CHECKOUT).union(shipped))
    meant = [other for other in known if other.startswith(f"{name}-")]
    if str(name) in known:
        meant = [str(name)]
    if len(meant) == 1:
        model = meant[0]
        if model in missing_models():
            train = f", or train it: {CHECKOUT[model]}" if CHECKOUT[model] else ""
            raise UserError(
                f"{model} is not installed; run pip install -e . in a checkout of the "
                f"repository{train}"
            )
        return models_path() / model
    if os.path.lexists(name):
        raise UserError(f"{name} is not a folder; name the folder of a model")
    # The hub's id of a model with an owner may be near the name of one that is fetched.
    near = closest(str(name), known)
    if "/" not in str(name):
        near = closest(str(name), [*known, *PRETRAINED])
    if HUB_ID.fullmatch(str(name)) and not near:
        return None
    known += PRETRAINED
    remedy = f"name the folder of a model, a hub id, or a model that ships: {', '.join(known)}"
    raise unknown("model", str(name), known, remedy)


def check_configured(folder: Path) -> None:
    """Refuse a folder without a saved model."""
    if (
        not is_gguf(folder)
        and not (folder / CONFIG).is_file()
        and not (folder / ADAPTER_CONFIG).is_file()
    ):
        if files := sorted(folder.glob(f"*{GGUF}")):
            raise UserError(f"{folder} has no {CONFIG}; name one of its files, such as {files[0]}")
        raise UserError(
            f"{folder} has no {CONFIG}, so it holds no model; name the folder of a model"
        )


def is_gguf(path: Path) -> bool:
    """Return whether a name is that of a llama.cpp file."""
    return path.suffix == GGUF and path.is_file()


def is_causal(folder: Path) -> bool:
    """Return whether a folder's configuration is of a ``transformers`` model or adapter; a GGUF
    file counts as one.
    """
    return (
        is_gguf(folder)
        or (folder / ADAPTER_CONFIG).is_file()
        or "model_type" in read_config(folder)
    )


def trained_on(folder: Path) -> dict[str, Any]:
    """Return a checkpoint's record of its corpus: ``name``, ``normalization`` and more; empty
    without a record.
    """
    if is_causal(folder):
        name = _record(folder).get("corpus")
        if not isinstance(name, str):
            return {}
        return {"name": name, "normalization": "raw"}
    corpus: dict[str, Any] = read_config(folder).get("training", {}).get("corpus", {})
    return corpus


def checkpoint_words(folder: Path) -> tuple[Dictionary, Tokenizer]:
    """Return dictionary and tokeniser of a checkpoint, or those of its training corpus if it has
    none.
    """
    corpus = trained_on(folder)
    if (folder / DICTIONARY_FILE).is_file():
        return checkpoint_dictionary(folder), load_tokenizer(
            corpus.get("tokenizer", {"name": "whitespace"}), folder
        )
    if "name" not in corpus:
        raise UserError(
            f"{folder} has no {DICTIONARY_FILE}; name the corpus of its training with source=CORPUS"
        )
    prepared = prepared_corpus(corpus["name"], corpus.get("normalization"))
    return prepared.dictionary, prepared.tokenizer()


def training_corpus(folder: Path | None, dictionary_hash: str) -> PreparedCorpus:
    """Return the text that a model of words was trained on, from its checkpoint; refuse it if its
    words changed.
    """
    corpus = {} if folder is None else trained_on(folder)
    if "name" not in corpus:
        raise UserError("its checkpoint does not name one")
    prepared = prepared_corpus(corpus["name"], corpus.get("normalization", "raw"))
    if prepared.dictionary.hash() != dictionary_hash:
        raise UserError(f"{corpus['name']} has other words here than the model")
    return prepared


def checkpoint_dictionary(folder: Path) -> Dictionary:
    """Return the dictionary in a model's folder; refuse it if its counts have changed since the
    training.
    """
    corpus = trained_on(folder)
    path = folder / DICTIONARY_FILE
    dictionary = Dictionary.load(path, corpus.get("dictionary_file_sha256"))
    counted = sum(dictionary.counts)
    tokens = corpus.get("train_tokens")
    if tokens not in (None, counted):  # an earlier version wrote no more than this of the counts
        raise UserError(
            f"{path} counts {counted:,} tokens, {folder / CONFIG} says {tokens:,}; restore it"
        )
    return dictionary


def cached_folder(prepared: PreparedCorpus, preset: Preset) -> Path:
    """Return the cache folder of the model of a preset and corpus: one for each recipe, dictionary
    and text.
    """
    # the latter decides which epoch is kept
    texts = [prepared.split(split).sha256 for split in ("train", "valid")]
    digest = hash_of(
        [preset.model.to_dict(), preset.training.to_dict(), prepared.meta.dictionary_hash, *texts]
    )
    return (
        cache_dir()
        / "models"
        / f"{slug(prepared.meta.name)}-{prepared.meta.normalization}-{digest}"
    )


def shipped_folder(prepared: PreparedCorpus, preset: str) -> Path | None:
    folder = models_path() / f"{preset}-{prepared.meta.name}-{prepared.meta.normalization}"
    if not folder.is_dir():
        return None
    return folder


def _record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    document = read_json(path) if path.is_file() else {}
    if not isinstance(document, dict):
        return {}
    return document


def _parameters(config: dict[str, Any]) -> int:
    """Return the number of weights of an AWD-LSTM of this shape, without loading torch."""
    size, width, hidden = (
        config[name] for name in ("vocabulary_size", "embedding_dim", "hidden_dim")
    )
    widths = [width, *[hidden] * (config["layers"] - 1), width]
    layers = sum(4 * out * (into + out + 2) for into, out in pairwise(widths))
    return int(size * (width + 1) + layers)
