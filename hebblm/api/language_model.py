"""A language model for Python: load it by name or folder, and open readers with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hebblm.errors import UserError
from hebblm.evaluation.scenario_config import as_strings, whole_number
from hebblm.models.base import Ids, TrainedModel, device_of
from hebblm.models.catalog import (
    check_configured,
    checkpoint_words,
    is_causal,
    model_folder,
    trained_on,
    training_corpus,
)
from hebblm.models.device import pick_device
from hebblm.models.huggingface.model import HuggingFaceModel
from hebblm.models.huggingface.open import load_and_open, open_causal
from hebblm.models.training import open_model
from hebblm.models.update import TRANSFORMERS
from hebblm.reader.reader import Reader
from hebblm.runtime.spelling import did_you_mean
from hebblm.text import resolve
from hebblm.text.fitting import Splitting
from hebblm.text.subword_corpus import SubwordCorpus
from hebblm.text.subwords import Subwords, token_before
from hebblm.text.vocabulary import GrowingVocabulary, Vocabulary, is_cased


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A trained model and its words.

    Args:
        name: name of the shipped model, a folder or a hub id.
        model: gives hidden states and the softmax layer.
        vocabulary: turns text into ids and back.
        folder: its checkpoint, or its GGUF file; None for a model of the hub, or one that the
            caller holds.
        pieces: the vocabulary of a model of ``transformers``; None if tokens are words.
    """

    name: str
    model: TrainedModel
    vocabulary: Vocabulary
    folder: Path | None
    pieces: Subwords | None = None

    def reader(
        self,
        method: str | None = None,
        *,
        memory: str | Path | None = None,
        k: int | None = None,
        update_every: int | None = None,
        settings: Mapping[str, Any] | None = None,
        tokenizer: Splitting = "auto",
    ) -> Reader:
        """Open a reader with its own memory; the other arguments are those of
        :class:`hebblm.Reader`.

        Args:
            tokenizer: how a model of words splits texts: auto, whitespace or moses. Auto splits
                like the model's own text, and at punctuation as well if that text was tokenised and
                the first text read is not. A saved reader goes on as it began.
        """
        return Reader(
            self.model,
            self.vocabulary.fresh(tokenizer),
            method,
            memory=memory,
            k=k,
            update_every=update_every,
            settings=settings,
            defaults=self.defaults,
            name=self.name,
            training=self.training_ids,
        )

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Hyper-parameters by dotted name that this kind of model has in place of the usual
        ones.
        """
        return {} if self.pieces is None else TRANSFORMERS

    def training_ids(self) -> Ids:
        """Return the ids (T,) of the text that the model was trained on.

        Raises:
            UserError: the model does not name that text, or the text is not available.
        """
        try:
            if self.pieces is None:
                return training_corpus(self.folder, self.vocabulary.hash()).tokens("train")
            corpus = {} if self.folder is None else trained_on(self.folder)
            if "name" not in corpus:
                raise UserError("its checkpoint names none")
            return SubwordCorpus(
                resolve(corpus["name"]), self.pieces, corpus["normalization"]
            ).tokens("train")
        except UserError as error:
            raise UserError(
                f"the training text of {self.name} is needed, but {error}; dynamic.rule=stream "
                "does without it"
            ) from error

    def __repr__(self) -> str:
        unit = "words" if self.pieces is None else "pieces"
        return f"LanguageModel({self.name!r}, {self.vocabulary.known:,} {unit})"


@torch.inference_mode(False)
def load(
    name: str | Path | tuple[Any, Any],
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    context: int | None = None,
    stride: int | None = None,
    learns: str | Sequence[str] | None = None,
    key: str | int = "last",
    **options: Any,
) -> LanguageModel:
    """Load a language model.

    Args:
        name: a model from the list of ``hebblm-eval --models``; the folder of a checkpoint with its
            ``dict.txt``; a causal language model of ``transformers``, by folder, hub id or GGUF
            file; the folder or hub id of a ``peft`` adapter, which is merged into its model; or a
            pair (model, tokenizer) of ``transformers``. hebblm does not change such a pair and
            reads it in evaluation mode; load it again if you change its weights.
        device: auto, cpu, cuda, or one of several GPUs, such as cuda:1.
        dtype: type of the weights of a model of ``transformers``: auto, float32, bfloat16 or
            float16.
        context: tokens of the window that such a model reads in; None for the window of its
            training, at most 4,096.
        stride: tokens by which the window moves on; None for half of it.
        learns: parts of the names of the weights that learn in dynamic evaluation. None for all
            weights; above 100 million parameters, for the last matrix of each layer in the last
            quarter.
        key: states that its memories keep: last (those that enter the output layer), ffn-input
            (those that enter the last feed-forward layer), or the number of a layer; methods that
            adapt the output layer need last.
        options: passed to ``AutoModelForCausalLM.from_pretrained``, e.g. ``device_map``, or
            ``gguf_file`` of a folder.

    Raises:
        UserError: no such model, a file that is missing, truncated or altered, a model that cannot
            be adapted, or an option that has no effect on this model.
    """
    chosen, dtype = pick_device(str(device)), str(dtype).removeprefix("torch.")
    learns = None if learns is None else as_strings("learns", learns)
    context, stride = (
        None if value is None else whole_number(option, value)
        for option, value in (("context", context), ("stride", stride))
    )
    reading: dict[str, Any] = {"context": context, "stride": stride, "learns": learns, "key": key}
    asked = {**options, "dtype": None if dtype == "auto" else dtype}
    if not isinstance(name, str | Path):
        if not isinstance(name, tuple | list) or len(name) != 2:
            raise UserError(
                f"a {type(name).__name__} cannot be loaded; name a model that ships, a folder or a "
                "hub id, or give "
                "(model, tokenizer)"
            )
        _refuse(asked, "has no effect on a model that is open already", reading)
        opened_model, tokenizer = name
        if not hasattr(tokenizer, "bos_token_id"):
            within = (
                "give its .tokenizer"
                if hasattr(tokenizer, "tokenizer")
                else "give (model, tokenizer)"
            )
            raise UserError(
                f"{type(tokenizer).__name__} is not a tokenizer of transformers; {within}"
            )
        opened = open_causal(opened_model, **reading, begin=token_before(tokenizer))
        held_on = device_of(opened)
        if device != "auto" and (
            chosen.type != held_on.type or chosen.index not in (None, held_on.index or 0)
        ):
            raise UserError(
                f"device = {device} is not {held_on}, where the model is; move it there, or leave "
                "device out"
            )
        return _of_pieces(type(opened.model).__name__, opened, tokenizer, None)
    if "gguf_file" in options and Path(name).is_dir():
        name = Path(name, options.pop("subfolder", ""), options.pop("gguf_file"))
    folder = model_folder(Path(name))
    if folder is not None:
        check_configured(folder)
        if folder == Path(name):  # it stays the same if the working folder changes
            name = folder = folder.absolute()
    if folder is None or is_causal(folder):
        loaded = load_and_open(folder or name, reading, device=chosen, dtype=dtype, **options)
        return _of_pieces(str(name), *loaded, folder)
    asked |= {**reading, "key": None if key == "last" else key}
    _refuse(asked, f"is for models of transformers, which {name} is not")
    corpus = trained_on(folder)
    dictionary, words = checkpoint_words(folder)
    trained = open_model(folder, dictionary.hash(), chosen)
    lower = corpus.get("normalization") == "lower" or not is_cased(dictionary)
    return LanguageModel(
        str(name), trained, GrowingVocabulary(dictionary, words, lower=lower), folder
    )


def _refuse(asked: Mapping[str, Any], why: str, known: Iterable[str] = ()) -> None:
    """Refuse every option that is not None; the error may suggest one of the ``known`` options."""
    for option, value in asked.items():
        if value is not None:
            raise UserError(
                f"{option} = {value!r} {why};{did_you_mean(option, known)} leave it out"
            )


def _of_pieces(
    name: str, model: HuggingFaceModel, tokenizer: Any, folder: Path | None
) -> LanguageModel:
    pieces = Subwords(tokenizer, len(model.head.weight))
    return LanguageModel(name, model, pieces, folder, pieces)
