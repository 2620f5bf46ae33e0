"""A binarised corpus in its folder, and its splits in the ids of a model's dictionary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from hebblm.errors import UserError
from hebblm.io.files import Count, lack, read_record, sha256
from hebblm.text.corpora import CORPUS_FILE
from hebblm.text.dictionary import EOS, FAIRSEQ_SPECIALS, Dictionary
from hebblm.text.tokenizers import Normalization, Tokenizer, load_tokenizer
from hebblm.text.words import Words, spelled_bytes

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
    sha256: str
    tokens: Count  # ids, with one ``<eos>`` a line
    lines: Count  # lines, blank ones too
    words: Count  # words before tokenisation, ends of line apart
    bytes: Count  # UTF-8 bytes of the text before normalisation, one an end of line
    unknown: Count  # tokens that are ``<unk>``
    # those of them that are ``<unk>`` in the text itself; None for a corpus of an earlier version
    literal: Count | None = None
    # bytes that the tokens do not give back, at least; None for an earlier version
    lost: Count | None = None


@dataclass(frozen=True, slots=True)
class CorpusMeta:
    """Description of a binarised corpus (``corpus.json``)."""

    name: str
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
            raise UserError(
                f"{self.meta.name} has no split {split!r}; it has {', '.join(self.meta.splits)}"
            )
        return self.meta.splits[split]

    def stream(self, split: str) -> EvaluationStream:
        """Return a split as a model reads it that was trained on the corpus."""
        return encode_target(self.dictionary, self, split)

    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(dict(self.meta.tokenizer), self.folder)

    def describe(self) -> Mapping[str, Any]:
        """Describe the tokeniser for a result."""
        return self.meta.tokenizer


def load_prepared(folder: Path) -> PreparedCorpus:
    """Load the binarised corpus of a folder, and verify its files."""
    path = folder / CORPUS_FILE
    remedy = "write it again with hebblm-preprocess"
    meta = read_record(CorpusMeta, path, remedy, SCHEMA)
    dictionary = Dictionary.load(folder / DICTIONARY_FILE)
    if dictionary.hash() != meta.dictionary_hash or len(dictionary) != meta.vocabulary_size:
        raise UserError(
            f"{folder / DICTIONARY_FILE} is not the dictionary of {path}; preprocess the corpus "
            "again"
        )
    corpus = PreparedCorpus(folder, dictionary, meta)
    for name, split in meta.splits.items():
        if Path(split.file).name != split.file:
            raise UserError(
                f"{path} names {split.file!r}, and there is no such file next to it; {remedy}"
            )
        _verify(folder / split.file, split, np.dtype(meta.dtype).itemsize)
        if meta.tokenizer.get("name") == "whitespace" and split.words != split.tokens - split.lines:
            raise UserError(
                f"{path} counts other words of {name} than {split.file} holds; {remedy}"
            )
        # The hash of a dictionary leaves its counts out, but they are those of the training text.
        counts = np.bincount(corpus.tokens(name), minlength=len(dictionary))
        if len(counts) > len(dictionary):
            raise UserError(f"{folder / split.file} has ids beyond {DICTIONARY_FILE}; {remedy}")
        if name == "train" and not np.array_equal(counts, dictionary.counts):
            raise UserError(
                f"the counts of {folder / DICTIONARY_FILE} are not those of {split.file}; {remedy}"
            )
    return corpus


def _verify(path: Path, split: SplitMeta, itemsize: int) -> None:
    """Refuse a file of ids that is missing, of another length, or changed."""
    if not path.is_file():
        raise UserError(f"{path} {lack(path)}; preprocess the corpus again")
    size = path.stat().st_size
    if size != split.tokens * itemsize or not size:
        raise UserError(
            f"{path} has {size} bytes, not {split.tokens * itemsize}; preprocess the corpus again"
        )
    if sha256(path) != split.sha256:
        raise UserError(f"{path} has changed since it was written; preprocess the corpus again")


VocabularyPolicy = Literal["union", "open"]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationStream:
    """Tokens to score in order, each exactly once, the first after an initial ``<eos>``.

    Ids below ``source_size`` are rows of the model's head; those above are new words.
    """

    ids: Ids  # (T,) int64 the tokens
    eos: int  # id of the end of line
    source_size: int  # V_source, rows of the model's head
    vocabulary_size: int  # V_source plus every novel word of the target's dictionary
    symbols: tuple[str, ...]  # (vocabulary_size,) the words
    # (vocabulary_size,) int64 counts in the model's training text, 0 for novel words
    train_counts: Ids
    lines: int  # lines of the text
    words: int  # its words, ends of line apart
    bytes: int  # its UTF-8 bytes, one an end of line
    # the words of ``by_word`` that each token is a part of; None if tokens are words
    pieces: Words | None = None
    by_word: EvaluationStream | None = None  # the same text as words; None where tokens are words
    counted: bool = True  # whether the counts are known; if not, they are 0
    # (T,) int64, bytes by which a piece without an id is spelled, 0 for the others; None where
    # tokens are words
    unknown: Ids | None = None
    lost: int = 0  # bytes that the tokenizer loses, at least

    @property
    def reported(self) -> EvaluationStream:
        """The text as words."""
        return self if self.by_word is None else self.by_word

    def word_losses(self, nll: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the losses (U,) of the words, each the sum of its tokens' losses (T,); nats."""
        return nll if self.pieces is None else self.pieces.sums(nll).astype(np.float32)

    def bits_per_byte(self, nll: float) -> float:
        """Return bits a byte from the mean loss in nats a token, including the spelling of tokens
        without an id.
        """
        return (nll * len(self) / math.log(2) + 8 * int(self.spelled.sum())) / self.bytes

    @property
    def spelled(self) -> Ids:
        """(T,) bytes that spell tokens without an id, each with an end: a new word once, an unknown
        piece each time.
        """
        if self.unknown is not None:
            return self.unknown
        ids, first = np.unique(self.ids, return_index=True)
        spelled = np.zeros(len(self), dtype=np.int64)
        for index, place in zip(ids.tolist(), first.tolist(), strict=True):
            if index >= self.source_size:
                spelled[place] = spelled_bytes(self.symbols[index])
        return spelled

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def target_counts(self) -> Ids | None:
        """(T,) counts of the tokens in the model's training text, None if they are not known."""
        if not self.counted:
            return None
        return self.train_counts[self.ids]

    @property
    def inputs(self) -> Ids:
        """(T,) the last token read before each one: ``<eos>``, then all tokens except the last."""
        return np.concatenate([np.array([self.eos], dtype=np.int64), self.ids[:-1]])

    @property
    def targets(self) -> Ids:
        """(T,) the tokens to predict."""
        return self.ids

    def occurrences(self, symbol: str) -> int:
        if symbol not in self.symbols:
            return 0
        return int((self.ids == self.symbols.index(symbol)).sum())

    @property
    def new(self) -> npt.NDArray[np.bool_]:
        """(vocabulary_size,) True for words that the training text lacks, even if the head has a
        row for them.
        """
        new: npt.NDArray[np.bool_] = np.arange(self.vocabulary_size) >= self.source_size
        if not self.counted or self.pieces is not None:
            return new
        signs = {*FAIRSEQ_SPECIALS, EOS}
        # An array of the words themselves would be as wide as the longest one, for each of them.
        new |= (self.train_counts == 0) & np.array(
            [symbol not in signs for symbol in self.symbols], dtype=np.bool_
        )
        return new

    @property
    def oov(self) -> npt.NDArray[np.bool_]:
        """(T,) True if the token is a new word."""
        return self.new[self.ids]

    @property
    def oov_types(self) -> int:
        """Number of distinct new words in the stream."""
        return len(np.unique(self.ids[self.oov]))


def encode_target(
    source: Dictionary, target: PreparedCorpus, split: str, policy: VocabularyPolicy = "union"
) -> EvaluationStream:
    """Return a binarised split in the ids of a source dictionary, the model's, extended by new
    words.

    Ends of line and unknown words of the target become those of the source, whatever their names;
    if source and target are equal, the ids are the target's own. ``union`` numbers the new words in
    the order of the target's dictionary; ``open`` in the order of their first occurrence in the
    stream, with those that do not occur last.
    """
    if policy not in get_args(VocabularyPolicy):
        raise UserError(
            f"unknown vocabulary policy {policy!r}; choose one of "
            f"{', '.join(get_args(VocabularyPolicy))}"
        )
    ids: npt.NDArray[Any] = target.tokens(split)
    meta = target.split(split)
    theirs = target.dictionary
    # (V_target,) source ids, -1 for novel words
    table = np.full(len(theirs.symbols), -1, dtype=np.int64)
    for index, symbol in enumerate(theirs.symbols):
        if symbol in source:
            table[index] = source.index(symbol)
    table[theirs.eos_index] = source.eos_index
    table[theirs.unk_index] = source.unk_index
    novel = np.flatnonzero(table < 0)
    if policy == "open":
        novel = _by_first_appearance(ids, novel)
    table[novel] = len(source) + np.arange(len(novel))
    counts = np.zeros(len(source) + len(novel), dtype=np.int64)
    counts[: len(source)] = source.counts
    return EvaluationStream(
        ids=table[np.asarray(ids)],
        eos=source.eos_index,
        source_size=len(source),
        vocabulary_size=len(source) + len(novel),
        symbols=(*source.symbols, *(theirs[int(index)] for index in novel)),
        train_counts=counts,
        lines=meta.lines,
        words=meta.words,
        bytes=meta.bytes,
        lost=meta.lost or 0,
    )


def _by_first_appearance(
    ids: npt.NDArray[Any], novel: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """Return new target ids in the order of their first occurrence in the stream; the others follow
    in their order.
    """
    present, first = np.unique(ids, return_index=True)
    place = np.full(int(max(novel.max(initial=0), present.max(initial=0))) + 1, len(ids))
    place[present] = first
    return novel[np.argsort(place[novel], kind="stable")]
