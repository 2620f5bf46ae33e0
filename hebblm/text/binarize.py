"""Binarisation of text: a dictionary and ids, as a stream, whole or not at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hebblm.errors import UserError
from hebblm.io.download import cache_dir
from hebblm.io.files import atomic_path, hash_of, sha256, write_json
from hebblm.io.locks import file_lock, remove_left
from hebblm.runtime.progress import bar
from hebblm.text.corpora import CORPUS_FILE, Corpus, resolve
from hebblm.text.dictionary import EOS, UNK, Dictionary
from hebblm.text.prepared import (
    DICTIONARY_FILE,
    CorpusMeta,
    PreparedCorpus,
    SplitMeta,
    load_prepared,
    smallest_dtype,
)
from hebblm.text.sources import SPLITS, LineSource
from hebblm.text.tokenizers import MODEL_FILE, Normalization, Tokenizer, normalize

BATCH_LINES = 2_000


def prepare(
    corpus: Corpus,
    *,
    normalization: Normalization,
    destdir: Path,  # the folder to write; made whole or left as it was
    min_count: int
    | None = None,  # rarer training words become ``<unk>``; the corpus' own choice unless said
    joined: Dictionary
    | None = None,  # whose words are in the dictionary too, however rare in training
) -> PreparedCorpus:
    """Count the training split, or all splits without one, build a dictionary, and write every
    split as ids.

    A folder with the same corpus, prepared in the same way, is used as it is. Each line, even a
    blank one, gets one ``<eos>``.
    """
    if corpus.prepared is not None:
        return _already_prepared(corpus.prepared, normalization)
    normalize("", normalization)
    minimum = corpus.min_count if min_count is None else min_count
    if minimum < 1:
        raise UserError(f"min_count {minimum} must be at least 1")
    words: frozenset[str] = frozenset()
    if joined is not None:
        words = frozenset(normalize(word, normalization) for word in joined.symbols)
        provenance = {**corpus.provenance, "joined_dictionary": hash_of(sorted(words))}
        corpus = replace(corpus, provenance=provenance)
    asked = (corpus, normalization, minimum)
    if (existing := _from_before(destdir, *asked)) is not None:
        remove_left(destdir)
        return existing
    with file_lock(destdir, f"the ids of {corpus.name}") as waited:
        if waited and (existing := _from_before(destdir, *asked)) is not None:
            return existing
        return _write(destdir, *asked, words)


def prepared_corpus(
    name: str,  # as on the command line
    normalization: Normalization | None,  # None for raw, or for what a prepared folder has
    column: str
    | None = None,  # of records that holds the text; see :func:`hebblm.text.records.text_column`
    *,
    # whether its training split is needed, too; it is not where a corpus is only read
    train: bool = True,
    remedy: str
    # what to do where several columns could be meant; by default to preprocess the text
    | None = None,
) -> PreparedCorpus:
    """Return the corpus as ids, and prepare it in the cache if necessary."""
    corpus = resolve(name, column, remedy=remedy)
    if train and "train" not in corpus.splits:
        raise UserError(
            f"{name} has no train split, only {', '.join(corpus.splits)}; it can only be read, as "
            "`target`"
        )
    if corpus.prepared is not None:
        existing = load_prepared(corpus.prepared)
        return prepare(
            corpus,
            normalization=normalization or existing.meta.normalization,
            destdir=corpus.prepared,
        )
    policy = normalization or "raw"
    return prepare(
        corpus, normalization=policy, destdir=cache_dir() / "corpora" / f"{slug(name)}-{policy}"
    )


def slug(name: str) -> str:
    """Corpus' name as a file name; a hash keeps names apart that differ in other characters."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    return plain if plain == name else f"{plain[:40]}-{hash_of(name)[:8]}"


def _from_before(
    destdir: Path, corpus: Corpus, normalization: Normalization, min_count: int
) -> PreparedCorpus | None:
    """Return the corpus in a folder, if it is the requested one."""
    if (destdir / CORPUS_FILE).is_file():
        existing = load_prepared(destdir)
        meta = existing.meta
        spec = corpus.tokenizer.spec()
        recorded = (meta.provenance, meta.tokenizer, meta.normalization, meta.min_count)
        # not by an earlier version
        counted = all(split.lost is not None for split in meta.splits.values())
        if counted and recorded == (corpus.provenance, spec, normalization, min_count):
            return existing
    refuse_foreign(destdir)
    return None


def _write(
    destdir: Path,
    corpus: Corpus,
    normalization: Normalization,
    min_count: int,
    joined: frozenset[str],
) -> PreparedCorpus:
    with atomic_path(destdir, directory=True) as folder:
        counts = _count(corpus, normalization)
        # A fixed set of subwords keeps its rows even where the training text happens not to use
        # one.
        symbols = corpus.tokenizer.symbols
        dictionary = Dictionary.vocabulary(
            counts, min_count=0 if symbols else min_count, joined=(*symbols, *joined)
        )
        dictionary.save(folder / DICTIONARY_FILE)
        dtype = smallest_dtype(len(dictionary))
        splits = {
            split: _encode(corpus, split, normalization, dictionary, folder / f"{split}.bin", dtype)
            for split in corpus.sources
        }
        _check_expected(corpus, normalization, splits, len(counts))
        corpus.tokenizer.save(folder)
        meta = CorpusMeta(
            name=corpus.name,
            normalization=normalization,
            tokenizer=corpus.tokenizer.spec(),
            dtype=dtype,
            vocabulary_size=len(dictionary),
            dictionary_hash=dictionary.hash(),
            min_count=min_count,
            provenance=dict(corpus.provenance),
            splits=splits,
        )
        write_json(folder / CORPUS_FILE, meta.to_json(), seal=True)
    return PreparedCorpus(destdir, dictionary, meta)


def _already_prepared(folder: Path, normalization: Normalization) -> PreparedCorpus:
    """Return the corpus in a folder of ``hebblm-preprocess``, whose case policy is fixed."""
    existing = load_prepared(folder)
    if existing.meta.normalization != normalization:
        raise UserError(
            f"{folder} was written with normalization {existing.meta.normalization}, not "
            f"{normalization}; run hebblm-preprocess --normalization {normalization} on its text"
        )
    return existing


def refuse_foreign(destdir: Path) -> None:
    """Refuse to replace a folder that holds anything except an earlier corpus."""
    if destdir.exists() and not destdir.is_dir():
        raise UserError(f"{destdir} is a file; name a new or empty folder")
    if not destdir.exists():
        return
    ours = {CORPUS_FILE, DICTIONARY_FILE, MODEL_FILE}
    ours.update(f"{split}.bin" for split in SPLITS)
    foreign = sorted(path.name for path in destdir.iterdir() if path.name not in ours)
    if foreign:
        raise UserError(
            f"{destdir} holds other files ({', '.join(foreign[:3])}); name a new or empty folder"
        )


def _batches(source: LineSource, description: str) -> Iterator[list[str]]:
    """Lists of lines, while a bar shows how many kilobytes are done."""
    size = source.size
    with bar(passing=True) as progress:
        task = progress.add_task(
            description, total=None if size is None else size // 1000, unit="kB"
        )
        lines = source.lines()
        done = 0
        while batch := list(islice(lines, BATCH_LINES)):
            yield batch
            done += sum(len(line.encode()) + 1 for line in batch)
            progress.update(task, completed=done // 1000)
        # The size of a part of a text is estimated from its share of the lines.
        progress.update(task, completed=progress.tasks[task].total)


def _count(corpus: Corpus, normalization: Normalization) -> Counter[str]:
    """Return the training count of each token, including ``<eos>``; for a corpus that is only read,
    its own count.
    """
    counts: Counter[str] = Counter()
    tokenize = corpus.tokenizer.tokenize
    for split in ("train",) if "train" in corpus.sources else corpus.sources:
        for batch in _batches(corpus.sources[split], f"count {corpus.name}"):
            for line in batch:
                counts.update(tokenize(normalize(line, normalization)))
            counts[EOS] += len(batch)
    if set(counts) <= {EOS}:
        raise UserError(
            f"{corpus.name.removeprefix('text:')} has no words to count; put text into it"
        )
    return counts


def _encode(
    corpus: Corpus,
    split: str,
    normalization: Normalization,
    dictionary: Dictionary,
    path: Path,
    dtype: str,
) -> SplitMeta:
    """Write the ids of a split, and return its record."""
    tokenizer: Tokenizer = corpus.tokenizer
    stored = np.dtype(dtype).newbyteorder("<")
    tokens = lines = words = size = unknown = literal = lost = 0
    with path.open("wb") as stream:
        for batch in _batches(corpus.sources[split], f"encode {corpus.name} {split}"):
            ids: list[int] = []
            for line in batch:
                pieces = tokenizer.tokenize(normalize(line, normalization))
                ids += dictionary.encode_line(pieces)
                literal += pieces.count(UNK)
                lost += _lost(corpus, line, pieces)
                words += tokenizer.words(line)
                size += len(line.encode()) + 1
            stream.write(np.asarray(ids, dtype=stored).tobytes())
            tokens += len(ids)
            lines += len(batch)
            unknown += ids.count(dictionary.unk_index)
    if words == 0:
        raise UserError(f"the {split} split of {corpus.name} has no words; put text into it")
    return SplitMeta(path.name, sha256(path), tokens, lines, words, size, unknown, literal, lost)


def _lost(corpus: Corpus, line: str, tokens: list[str]) -> int:
    """Return the least number of a line's bytes that its tokens do not give back."""
    return corpus.tokenizer.lost(line.strip(" ") if corpus.tokenised else line, tokens)


def _check_expected(
    corpus: Corpus, normalization: Normalization, splits: dict[str, SplitMeta], types: int
) -> None:
    for split, expected in corpus.expected_tokens.items():
        if splits[split].tokens != expected:
            raise UserError(
                f"{corpus.name} {split} has {splits[split].tokens} tokens, not {expected}; restore "
                "the file"
            )
    if normalization == "raw" and corpus.expected_types not in (None, types):
        raise UserError(
            f"{corpus.name} has {types} types, not {corpus.expected_types}; restore the train file"
        )


class Beginning(NamedTuple):
    """The text of the first tokens of a split."""

    lines: int  # ends of line among them
    words: int  # words before tokenisation, ends of line apart
    bytes: int  # UTF-8 bytes before normalisation, one an end of line
    # those of words that the model has no row for: it tells which of the text's new words one is,
    # or only that it is unknown, and never spells it, so that its bits for these bytes are too few
    unspelled: int
    # those of them that would have to be spelled: of a new word that can be told from others its
    # first occurrence, of an unknown one each
    spelling: int
    lost: int  # those that the tokens do not give back, such as spaces and capitals, at least


def measure_beginning(
    corpus: Corpus,
    split: str,
    tokens: int,  # that are read, an end of line each line
    normalization: Normalization,
    known: Container[str],  # words that the model has a row for
    told_apart: Container[str],  # words that the stream has an id for
) -> Beginning:
    """Return the lines, words and bytes of the first tokens of a split.

    If a line is read in part, its words and bytes count by the share of its tokens.
    """
    lines = words = size = unspelled = spelling = lost = 0
    left = tokens
    seen = set[str]()
    for line in corpus.lines(split):
        tokens_of_line = corpus.tokenizer.tokenize(normalize(line, normalization))
        pieces = [*tokens_of_line, EOS]
        read = pieces[:left]
        share = len(read) / len(pieces)
        left -= len(read)
        lines += len(read) == len(pieces)
        words += ceil(share * corpus.tokenizer.words(line))
        size += round(share * (len(line.encode()) + 1))
        lost += int(share * _lost(corpus, line, tokens_of_line))
        for word in read:
            if word in known or word in (EOS, UNK):
                continue
            unspelled += len(word.encode())
            if word not in seen:
                spelling += len(word.encode())
            if word in told_apart:
                seen.add(word)
        if not left:
            return Beginning(lines, words, size, unspelled, spelling, lost)
    raise UserError(
        f"{corpus.name} has {tokens - left} tokens in its {split} split, not {tokens}; prepare it "
        "again"
    )
