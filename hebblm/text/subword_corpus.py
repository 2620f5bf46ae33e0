"""A corpus as the pieces of a subword tokenizer: its lines as they stand, and the words that reports are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hebblm.errors import UserError
from hebblm.progress import bar
from hebblm.text.corpora import Corpus
from hebblm.text.dictionary import EOS
from hebblm.text.normalize import Normalization, normalize
from hebblm.text.streams import EvaluationStream
from hebblm.text.subwords import Subwords

Ids = npt.NDArray[np.int64]
LINES = 1_000  # encoded at a time


class Pieces(NamedTuple):
    """A text in pieces.

    Args:
        ids: (T,) int64.
        word_of: (T,) int64, which word each piece belongs to, from 0.
        words: U words.
        lines: ends of line.
        bytes: UTF-8 bytes of the text before normalisation, one an end of line.
    """

    ids: Ids
    word_of: Ids
    words: list[str]
    lines: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SubwordCorpus:
    """A corpus read in pieces; each split is encoded once.

    The lines of a corpus that came tokenised begin and end with a blank that no model of words sees. They are left out
    here too, so that both code the same; as bytes they count for both.

    Args:
        corpus: its text.
        subwords: how it is cut.
        normalization: the case policy.
    """

    corpus: Corpus
    subwords: Subwords
    normalization: Normalization
    _ids: dict[str, Ids] = field(default_factory=dict)

    def tokens(self, split: str) -> Ids:
        """Return the ids (T,) of a split.

        Raises:
            UserError: there is no such split, or no text in it.
        """
        if split not in self._ids:
            parts = [encode.ids for encode in self.pieces(split)]
            self._ids[split] = np.concatenate(parts)
        return self._ids[split]

    def pieces(self, split: str, most: int | None = None) -> Iterator[Pieces]:
        """Yield a split some lines at a time, whose line ends are kept.

        Args:
            split: of the corpus.
            most: stop behind so many pieces.

        Raises:
            UserError: there is no such split, or no text in it.
        """
        lines, done = self.corpus.lines(split), 0
        with bar() as progress:
            task = progress.add_task(f"encode {self.corpus.name} {split}", total=None, unit="pieces")
            while batch := list(islice(lines, LINES)):
                text = "\n".join(map(self._line, batch)) + "\n"
                found = self.subwords.encode(text)
                count = len(found.ids) if most is None else min(len(found.ids), most - done)
                if count == 0:
                    continue
                words = [""] * (found.words[count - 1] + 1)
                for piece, word in zip(found.tokens[:count], found.words[:count], strict=True):
                    words[word] += piece
                part = text if count == len(found.ids) else "".join(found.tokens[:count])
                ends = part.count("\n")
                size = sum(len(line.encode()) + 1 for line in batch[:ends])
                size += len(part.rpartition("\n")[2].encode())  # of a line that is read in part
                yield Pieces(
                    np.array(found.ids[:count], dtype=np.int64),
                    np.array(found.words[:count], dtype=np.int64),
                    [word.strip() or EOS for word in words],
                    ends,
                    size,
                )
                done += count
                progress.update(task, completed=done)
                if done == most:
                    return
        if not done:
            raise UserError(f"the {split} split of {self.corpus.name} is empty; put text into it")

    def _line(self, line: str) -> str:
        """Return a line as it is encoded."""
        tokenised = self.corpus.provenance.get("kind") == "files"
        return normalize(line.strip(" ") if tokenised else line, self.normalization)

    def stream(self, split: str) -> EvaluationStream:
        """Return a split as the model reads it that was trained on the corpus."""
        return encode_subwords(self, split, None, None)

    def piece_counts(self, split: str) -> Ids:
        """Return how often each piece occurs in a split (rows,)."""
        return np.bincount(self.tokens(split), minlength=self.subwords.known)

    def word_counts(self, split: str) -> Counter[str]:
        """Return how often each word of a split occurs, ends of line among them."""
        counts: Counter[str] = Counter()
        for line in self.corpus.lines(split):
            counts.update(normalize(line, self.normalization).split())
            counts[EOS] += 1
        return counts

    def describe(self) -> dict[str, Any]:
        """Return what a result records of the tokenizer."""
        return {"name": type(self.subwords.tokenizer).__name__, "pieces": len(self.subwords.tokenizer)}


def encode_subwords(
    read: SubwordCorpus, split: str, most: int | None, counted: SubwordCorpus | None
) -> EvaluationStream:
    """Return a split as a stream of pieces, with the words that they make.

    A word is new if it does not occur in the text that words are counted in; none is where that is not known.

    Args:
        read: the text.
        split: of it.
        most: only so many pieces, None for all.
        counted: the text that words are counted in, its training split.

    Returns:
        The stream; lines, words and bytes are those of the part that is read.
    """
    found = list(read.pieces(split, most))
    offsets = np.cumsum([0, *(len(part.words) for part in found)])
    ids = np.concatenate([part.ids for part in found])
    word_of = np.concatenate([part.word_of + start for part, start in zip(found, offsets, strict=False)])
    occurring = [word for part in found for word in part.words]
    lines, size = sum(part.lines for part in found), sum(part.bytes for part in found)
    count = sum(word != EOS for word in occurring)
    counts = Counter[str]() if counted is None else counted.word_counts("train")
    known = sorted(counts if counted is not None else set(occurring))
    novel = [word for word in dict.fromkeys(occurring) if counted is not None and word not in counts]
    symbols = (*known, *novel)
    index = {word: number for number, word in enumerate(symbols)}
    words = EvaluationStream(
        ids=np.array([index[word] for word in occurring], dtype=np.int64),
        eos=index.get(EOS, 0),
        source_size=len(known),
        vocabulary_size=len(symbols),
        symbols=symbols,
        train_counts=np.array([counts[word] for word in symbols], dtype=np.int64),
        lines=lines,
        words=count,
        bytes=size,
        counted=counted is not None,
    )
    subwords = read.subwords
    return EvaluationStream(
        ids=ids,
        eos=subwords.start,
        source_size=subwords.known,
        vocabulary_size=subwords.known,
        symbols=tuple(subwords[piece] for piece in range(subwords.known)),
        train_counts=np.asarray(subwords.counts, dtype=np.int64),
        lines=lines,
        words=count,
        bytes=size,
        word_of=word_of,
        by_word=words,
    )
