"""Memories of any number of texts, in folders: build, inspect and merge them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.evaluation.training_text import Segments, saved_segments
from hebblm.io.files import hash_of
from hebblm.io.locks import file_lock, remove_left
from hebblm.memory import AnyMemory, MemoryConfig, build_memory, load_memory, save_memory
from hebblm.memory.ngram_rows import Ints, contexts_of
from hebblm.memory.ngrams import Array, NGrams
from hebblm.memory.persistence import NAME as MANIFEST
from hebblm.memory.persistence import (
    Manifest,
    check_files,
    check_replaceable,
    read_about,
    read_manifest,
    read_ngrams,
)
from hebblm.memory.store import CHUNK
from hebblm.models.base import TrainedModel, device_of
from hebblm.reader.checkpoint import MEMORY, READER
from hebblm.runtime.progress import bar, log
from hebblm.runtime.ranks import ALONE, Ranks
from hebblm.text.sources import FileLines, TextFile, text_parts
from hebblm.text.vocabulary import Vocabulary, warn_of_new

PART_SIZE = 1 << 18  # characters that are read at once


def build(
    model: TrainedModel,  # gives the keys
    # of the model, without new words; those of the texts are added, and saved with the entries and
    # the splitting
    vocabulary: Vocabulary,
    files: Sequence[TextFile],  # of text; see :func:`hebblm.text.sources.text_files`
    folder: Path,  # created, or replaced if it holds a memory of other texts
    config: MemoryConfig,  # how entries are kept and searched
    ngrams: NGrams,  # empty; those of the texts are counted
    *,
    name: str,  # of the model, for people
    ranks: Ranks = ALONE,  # that read every P-th piece each; the first one saves the memory
) -> AnyMemory:
    """Fill a memory with texts and save it; an interrupted build goes on where it stopped.

    Texts are read in pieces of some 260,000 characters. Each piece begins with an end of line, or
    with the token that every text begins with. Finished pieces stay next to ``folder`` until all
    are there, and so do the segments of the piece that is being read. Keys are the hidden states
    with which a reader predicts the tokens, and the tokens are a reader's: the first text decides
    how all are split. The n-grams of a text are counted in order, across its pieces.
    """
    check_replaceable(folder)
    sources = [_source(file) for file in files]
    owner = (model.sha256, vocabulary.hash())
    _fit(vocabulary, files)
    hashes = [source["sha256"] for source in sources]
    identity = _identity(model, vocabulary, hashes, config, ngrams)
    there = partial(load_memory, folder, model_hash=owner[0], dictionary_hash=owner[1])
    parts = Segments(folder.with_name(f".{folder.name}.{identity[:12]}.parts"))
    if ranks.all_gather_object(read_about(folder).get("identity"))[0] == identity:
        log(f"{folder} already holds this memory")
        if ranks.leads:
            remove_left(folder)
            remove_left(parts.folder)
            # of a build that was killed when all was written
            shutil.rmtree(parts.folder, ignore_errors=True)
        return there()
    work = parts.folder if ranks.leads else None
    memory = build_memory(model.key_width, config, device_of(model), work=work)
    with ExitStack() as stack:
        if ranks.leads:
            stack.enter_context(parts.locked("this memory"))
            stack.enter_context(file_lock(folder, "this memory", wait=False))
        if ranks.all_gather_object(read_about(folder).get("identity"))[0] == identity:
            log(f"{folder} already holds this memory")
            return there()
        if ranks.leads and (folder / MANIFEST).is_file():
            log(
                f"{folder} holds a memory of other texts or settings; it is replaced when this one "
                "is built"
            )
        counts = _read(model, vocabulary, files, parts, memory, ngrams, ranks)
        if not ranks.leads:
            ranks.wait()
            return there()
        _fill(memory, parts, sources, counts)
        if not len(memory):
            raise UserError(
                f"{', '.join(map(str, files))}: no text to remember; name files that are not empty"
            )
        about = {
            "model": name,
            "known": vocabulary.known,
            "words": list(vocabulary.words),
            "tokenizer": vocabulary.splitting,
            "texts": sources,
            "identity": identity,
        }
        if ngrams.tokens == ngrams.capacity:
            log(
                f"the n-grams of the first {ngrams.capacity:,} tokens are counted; see "
                "ngram.capacity"
            )
        save_memory(
            memory,
            folder,
            model_hash=owner[0],
            dictionary_hash=owner[1],
            about=about,
            ngrams=ngrams.state_dict(),
        )
        shutil.rmtree(parts.folder, ignore_errors=True)
        ranks.wait()
    return memory


def _source(file: TextFile) -> dict[str, Any]:
    """Return the record of a text, as JSON."""
    source = {"path": str(file), "bytes": file.path.stat().st_size, "sha256": file.sha256()}
    if file.column is not None:
        source["column"] = file.column
    return source


def _identity(
    model: TrainedModel,
    vocabulary: Vocabulary,
    hashes: Sequence[str],
    config: MemoryConfig,
    ngrams: NGrams,
) -> str:
    """Return a hash of everything that a memory of texts with these hashes depends on."""
    depends_on: list[Any] = [
        model.sha256,
        vocabulary.hash(),
        model.reading(),
        config.identity(),
        hashes,
        [ngrams.order, ngrams.capacity],
    ]
    # What an earlier version built was split as the model's own text, and is still that memory.
    if vocabulary.splitting != "own":
        depends_on.append(vocabulary.splitting)
    return hash_of(depends_on)


def _fill(
    memory: AnyMemory, parts: Segments, sources: list[dict[str, Any]], counts: Sequence[int]
) -> None:
    """Fill a memory with the pieces of all texts, and record the length of each piece."""
    first = 0
    for source, count in zip(sources, counts, strict=True):
        lengths = []
        for index in range(first, first + count):
            part = parts.load(index)
            memory.fill(part["keys"], part["labels"])
            lengths.append(len(part["labels"]))
        source["pieces"] = lengths
        source["tokens"] = sum(lengths)
        first += count


def _fit(vocabulary: Vocabulary, files: Sequence[TextFile]) -> None:
    """Choose how all texts are split, from the first one that has words."""
    for file in files:
        for text in text_parts(file, PART_SIZE):
            vocabulary.fit(text, str(file))
            if vocabulary.splitting is not None:
                return


def _read(
    model: TrainedModel,
    vocabulary: Vocabulary,
    files: Sequence[TextFile],
    parts: Segments,
    memory: AnyMemory,
    ngrams: NGrams,
    ranks: Ranks,
) -> list[int]:
    """Save the entries of all pieces that are not there yet, and count n-grams; return the entries
    of each file.
    """
    done = ranks.all_gather_object(parts.finished())[0]
    index = 0
    counts = []
    with bar() as progress:
        whence = f", going on from piece {done + 1:,}" if done else ""
        task = progress.add_task(
            f"memory{whence}", total=FileLines(tuple(files)).size, unit="bytes"
        )
        for file in files:
            counts.append(-index)
            past: Ints = np.zeros(0, dtype=np.int64)
            for number, text in enumerate(text_parts(file, PART_SIZE)):
                if not number:
                    warn_of_new(vocabulary, text, str(file))
                # Those that are done are encoded again: new words get the ids that they had.
                ids = np.array(
                    [vocabulary.start, *vocabulary.encode(text, include=True).ids], dtype=np.int64
                )
                if ranks.leads:
                    read = np.r_[past, ids[1:]]
                    ngrams.add(contexts_of(read, len(past), ngrams.order), ids[1:])
                    past = read[-ngrams.order :]
                if index >= done and index % ranks.size == ranks.rank:
                    begun = Segments(parts.folder / f"piece-{index:05d}")
                    keys, labels = _entries(model, vocabulary, ids, memory, begun)
                    parts.save(index, {"keys": keys, "labels": labels})
                    shutil.rmtree(begun.folder, ignore_errors=True)
                progress.advance(task, len(text.encode()))
                index += 1
            counts[-1] += index
        ranks.wait()
    return counts


def _entries(
    model: TrainedModel,
    vocabulary: Vocabulary,
    ids: np.ndarray[Any, Any],
    memory: AnyMemory,
    begun: Segments,
) -> tuple[Tensor, Tensor]:
    """Return hidden states (T, D) and labels (T,) of a piece (T + 1,), whose first token is only
    read.

    Each segment is kept in ``begun``; segments that are there already are not read again.
    """
    total = len(ids) - 1
    if not total:
        no_keys = torch.zeros(0, model.key_width, dtype=memory.dtype)
        return no_keys, torch.zeros(0, dtype=torch.int64)
    readable = ids
    if vocabulary.unknown is not None:
        readable = np.where(ids < vocabulary.known, ids, vocabulary.unknown)
    segments = saved_segments(model, readable, begun, memory)
    keys = torch.cat([segment["keys"] for segment in segments])
    return keys, torch.from_numpy(ids[model.label_places(total)])


@dataclass(frozen=True, slots=True)
class SavedMemory:
    """Saved memory and its folder's manifest: a memory alone, or a reader's with its words."""

    folder: Path
    manifest: Manifest
    words: tuple[str, ...]  # new ones, in the order of their ids
    # number of the model's classes, where new words begin; None if the folder does not say
    known: int | None
    about: dict[str, Any]  # the rest of its record

    @classmethod
    def of(cls, folder: Path) -> SavedMemory:
        # its words are in the next folder up
        if folder.name == MEMORY and (folder.parent / READER).is_file():
            raise UserError(
                f"{folder} is the memory of the reader in {folder.parent}; name {folder.parent}"
            )
        is_reader = (folder / READER).is_file()
        memory = folder / MEMORY if is_reader else folder
        manifest = read_manifest(memory)
        check_files(manifest, memory)
        about = read_about(folder, READER) if is_reader else read_about(folder)
        return cls(memory, manifest, tuple(about.get("words", ())), about.get("known"), about)

    def config(self) -> MemoryConfig:
        """Return how its entries are kept and searched."""
        manifest = self.manifest
        index = manifest.index
        if index is None:
            return MemoryConfig("exact", manifest.capacity, manifest.dtype, keys=manifest.keys)
        return MemoryConfig(
            index.factory,
            manifest.capacity,
            manifest.dtype,
            nprobe=index.nprobe,
            rescore=index.rescore,
            store=manifest.store,
            keys=manifest.keys,
        )


def merge(first: Path, second: Path, folder: Path) -> AnyMemory:
    """Merge two memories, or readers' memories, of one model and save them, the first's entries
    before the second's.

    The merged memory is kept and searched like the first.
    """
    check_replaceable(folder)
    with file_lock(folder, "this memory", wait=False):
        return _merge(first, second, folder)


def _merge(first: Path, second: Path, folder: Path) -> AnyMemory:
    both = [SavedMemory.of(first), SavedMemory.of(second)]
    owner = (both[0].manifest.model_hash, both[0].manifest.dictionary_hash)
    for setting in ("dtype", "keys"):
        first, second = (getattr(one.manifest, setting) for one in both)
        if first != second:
            raise UserError(
                f"{both[0].folder} has memory.{setting}={first} and {both[1].folder} "
                f"memory.{setting}={second}; "
                f"build one of them again with memory.{setting} of the other in `settings`"
            )
    words = list(dict.fromkeys(word for one in both for word in one.words))
    place = {word: index for index, word in enumerate(words)}
    memory = build_memory(both[0].manifest.dim, both[0].config())
    for one in both:
        ids = torch.tensor([place[word] for word in one.words], dtype=torch.int64)
        if one.words and one.known is None:
            raise UserError(
                f"{one.folder.parent} does not say where its new words begin; read and save it "
                "again"
            )
        source = load_memory(one.folder, model_hash=owner[0], dictionary_hash=owner[1])
        for part in source.segments():
            for begin in range(0, len(part), CHUNK):
                rows = part.run(begin, begin + CHUNK)
                labels = rows.values
                if one.known is not None and len(ids):
                    new = labels >= one.known
                    labels = labels.clone()
                    labels[new] = one.known + ids[labels[new] - one.known]
                memory.fill(rows.keys, labels, rows.log_normalizers)
                source.release()
    counts = _merged_counts(both, place)  # of one model, as loading showed
    save_memory(
        memory,
        folder,
        model_hash=owner[0],
        dictionary_hash=owner[1],
        about=_about_both(both, words),
        ngrams=counts,
    )
    return memory


def _about_both(both: Sequence[SavedMemory], words: Sequence[str]) -> dict[str, Any]:
    """Return the record of a memory merged from two, which has these new words."""
    first, second = both
    known = first.known
    if known is None:
        known = second.known
    splitting = first.about.get("tokenizer", "own")
    if second.about.get("tokenizer", "own") != splitting:
        splitting = None  # a reader's first text decides
    texts = []
    for one in both:
        texts += one.about.get("texts", [{"path": str(one.folder)}])
    return {
        "model": first.about.get("model"),
        "known": known,
        "words": list(words),
        "tokenizer": splitting,
        "texts": texts,
    }


def _merged_counts(memories: Sequence[SavedMemory], place: Mapping[str, int]) -> dict[str, Array]:
    """Counts of n-grams of memories as those of one with new words at these places, as far as they
    have any.
    """
    counted = [(one, known) for one in memories if (known := read_ngrams(one.folder))]
    if not counted:
        return {}
    merged = NGrams(int(counted[0][1]["tokens"][1]))
    if len(counted) < len(memories):
        log(
            f"only the n-grams of {counted[0][0].folder} are there; build the other memory anew to "
            "have its own too"
        )
    for one, known in counted:
        counts = NGrams()
        counts.load_state_dict(known)
        if counts.order != merged.order:
            raise UserError(
                f"{counted[0][0].folder} counts n-grams with ngram.order={merged.order} and "
                f"{one.folder} with {counts.order}; build {one.folder} again with "
                f"settings={{'ngram.order': {merged.order}}}"
            )
        ids = None
        new = [place[word] for word in one.words]
        if one.known is not None and new != list(range(len(new))):
            ids = np.concatenate([np.arange(one.known), one.known + np.array(new)])
        if lost := merged.merge(counts, ids):
            log(
                f"{lost:,} contexts of {one.folder} are left out: words in them were read, but not "
                "learned"
            )
    return merged.state_dict()
