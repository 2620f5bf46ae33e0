"""A language model as the front door gives it: loaded by name or folder, it opens readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awd_lstm import AWDLSTM, load_checkpoint
from awd_lstm.checkpoint import WEIGHTS, file_sha256
from hebblm.models.catalog import checkpoint_folder, trained_on
from hebblm.models.device import pick_device
from hebblm.models.store import prepared_corpus
from hebblm.reader import Reader
from hebblm.reader_state import Owner
from hebblm.text import Dictionary, load_tokenizer
from hebblm.text.growing import GrowingVocabulary, is_cased
from hebblm.text.prepared import DICTIONARY_FILE
from hebblm.text.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A trained model with its dictionary and tokeniser.

    Args:
        name: of the shipped model or folder.
        folder: its checkpoint.
        model: the network, in evaluation mode.
        dictionary: word and row of the softmax layer.
        tokenizer: splits lines into the words of the dictionary.
        lower: whether words that it does not have are lowered, as it tells no capital letters apart.
        sha256: of the weights file.
    """

    name: str
    folder: Path
    model: AWDLSTM
    dictionary: Dictionary
    tokenizer: Tokenizer
    lower: bool
    sha256: str

    def reader(
        self,
        method: str = "mixture+hebb",
        *,
        memory: str | Path | None = None,
        k: int = 200,
        update_every: int = 10,
        settings: Mapping[str, Any] | None = None,
    ) -> Reader:
        """Return a reader with a memory of its own; the arguments are those of :class:`hebblm.Reader`."""
        vocabulary = GrowingVocabulary(self.dictionary, self.tokenizer, lower=self.lower)
        owner = Owner(self.sha256, self.dictionary.hash())
        return Reader(
            self.model,
            vocabulary,
            owner,
            method,
            memory=memory,
            k=k,
            update_every=update_every,
            settings=settings,
        )

    def __repr__(self) -> str:
        """Name the model and its size."""
        return f"LanguageModel({self.name!r}, {len(self.dictionary):,} words)"


def load(name: str | Path, *, device: str = "auto") -> LanguageModel:
    """Return a language model.

    Args:
        name: a model that ships, as ``hebblm-eval --models`` lists them, or the folder of a checkpoint with its
            ``dict.txt``.
        device: auto, cpu or cuda.

    Raises:
        UserError: no such model, or one of its files is missing, truncated or altered.
    """
    folder = checkpoint_folder(Path(name))
    corpus = trained_on(folder)
    dictionary, tokenizer = _words(folder, corpus)
    model = load_checkpoint(folder, dictionary_sha256=dictionary.hash()).to(pick_device(device))
    return LanguageModel(
        str(name),
        folder,
        model,
        dictionary,
        tokenizer,
        corpus.get("normalization") == "lower" or not is_cased(dictionary),
        file_sha256(folder / WEIGHTS),
    )


def _words(folder: Path, corpus: dict[str, Any]) -> tuple[Dictionary, Tokenizer]:
    """Return dictionary and tokeniser of a checkpoint, or of the corpus it was trained on where it has none itself."""
    if not (folder / DICTIONARY_FILE).is_file() and "name" in corpus:
        prepared = prepared_corpus(corpus["name"], corpus.get("normalization"))
        return prepared.dictionary, prepared.tokenizer()
    spec = corpus.get("tokenizer", {"name": "whitespace"})
    return Dictionary.load(folder / DICTIONARY_FILE), load_tokenizer(spec, folder)
