"""The folder of a binarised corpus: what it says of itself, and its ids as memory maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from hebblm.errors import UserError
from hebblm.files import Count, lack, read_record, sha256
from hebblm.text.corpora import CORPUS_FILE
from hebblm.text.dictionary import Dictionary
from hebblm.text.normalize import Normalization
from hebblm.text.streams import EvaluationStream, encode_target
from hebblm.text.tokenizers import Tokenizer, load_tokenizer

SCHEMA = "hebblm-corpus/1"
DICTIONARY_FILE = "dict.txt"
Dtype = Literal["uint8", "uint16", "int32"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)


def smallest_dtype(vocabulary_size: int) -> Dtype:
    for name in DTYPES:
        if vocabulary_size - 1 <= np.iinfo(name).max:
            return name
    raise ValueError(f"{vocabulary_size} ids do not fit {DTYPES[-1]}")


@dataclass(frozen=True, slots=True)
class SplitMeta:
    """Description of a split."""

    file: str  # of its ids, in the folder
    sha256: str  # of that file
    tokens: Count  # ids, with one ``<eos>`` a line
    lines: Count  # lines, blank ones too
    words: Count  # words before tokenisation, ends of line apart
    bytes: Count  # UTF-8 bytes of the text before normalisation, one an end of line
    unknown: Count  # tokens that are ``<unk>``
    # those of them that are ``<unk>`` in the text itself; None for a corpus of an earlier version
    literal: Count | None = None


@dataclass(frozen=True, slots=True)
class CorpusMeta:
    """Description of a binarised corpus (``corpus.json``)."""

    name: str  # of the corpus
    normalization: Normalization  # ``raw`` or ``lower``
    tokenizer: Mapping[str, Any]  # specification for :func:`hebblm.text.tokenizers.load_tokenizer`
    dtype: Dtype  # of the ids, little-endian
    vocabulary_size: Count  # symbols of the dictionary
    dictionary_hash: str  # sha256 of its symbols
    min_count: int  # rarer training words became ``<unk>``
    provenance: Mapping[str, Any]  # where the text came from
    splits: Mapping[str, SplitMeta]  # by name

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """A binarised corpus on disk."""

    folder: Path  # where it stands
    dictionary: Dictionary  # its symbols and their training counts
    meta: CorpusMeta  # what it says of itself

    def tokens(self, split: str) -> npt.NDArray[Any]:
        """Ids (T,) of a split as a read-only memory map of the stored type."""
        meta = self.split(split)
        dtype = np.dtype(self.meta.dtype).newbyteorder("<")
        return np.memmap(self.folder / meta.file, dtype=dtype, mode="r", shape=(meta.tokens,))

    def split(self, split: str) -> SplitMeta:
        if split not in self.meta.splits:
            raise UserError(f"{self.meta.name} has no split {split!r}; it has {', '.join(self.meta.splits)}")
        return self.meta.splits[split]

    def stream(self, split: str) -> EvaluationStream:
        """Split as the model reads it that was trained on the corpus."""
        return encode_target(self.dictionary, self, split)

    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(dict(self.meta.tokenizer), self.folder)

    def describe(self) -> Mapping[str, Any]:
        """What a result records of the tokeniser."""
        return self.meta.tokenizer


def load_prepared(folder: Path) -> PreparedCorpus:
    """Binarised corpus of a folder, whose files were verified."""
    path, remedy = folder / CORPUS_FILE, "write it again with hebblm-preprocess"
    meta = read_record(CorpusMeta, path, remedy, SCHEMA)
    dictionary = Dictionary.load(folder / DICTIONARY_FILE)
    if dictionary.hash() != meta.dictionary_hash or len(dictionary) != meta.vocabulary_size:
        raise UserError(f"{folder / DICTIONARY_FILE} is not the dictionary of {path}; preprocess the corpus again")
    found = PreparedCorpus(folder, dictionary, meta)
    for name, split in meta.splits.items():
        if Path(split.file).name != split.file:
            raise UserError(f"{path} names {split.file!r}, which is no file beside it; {remedy}")
        _verify(folder / split.file, split, np.dtype(meta.dtype).itemsize)
        if meta.tokenizer.get("name") == "whitespace" and split.words != split.tokens - split.lines:
            raise UserError(f"{path} counts other words of {name} than {split.file} holds; {remedy}")
        # The hash of a dictionary leaves its counts out, but they are those of the training text.
        counts = np.bincount(found.tokens(name), minlength=len(dictionary))
        if len(counts) > len(dictionary):
            raise UserError(f"{folder / split.file} has ids beyond {DICTIONARY_FILE}; {remedy}")
        if name == "train" and not np.array_equal(counts, dictionary.counts):
            raise UserError(f"the counts of {folder / DICTIONARY_FILE} are not those of {split.file}; {remedy}")
    return found


def _verify(path: Path, split: SplitMeta, itemsize: int) -> None:
    """Refuse a file of ids that is missing, of another length, or changed."""
    if not path.is_file():
        raise UserError(f"{path} {lack(path)}; preprocess the corpus again")
    size = path.stat().st_size
    if size != split.tokens * itemsize or not size:
        raise UserError(f"{path} has {size} bytes, not {split.tokens * itemsize}; preprocess the corpus again")
    if sha256(path) != split.sha256:
        raise UserError(f"{path} has changed since it was written; preprocess the corpus again")
