"""A corpus as the pieces of a subword tokenizer: its unchanged lines, and the words for reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hebblm.errors import UserError
from hebblm.runtime.progress import bar, log
from hebblm.text.corpora import Corpus
from hebblm.text.dictionary import EOS
from hebblm.text.fitting import tell_loss, warn_of_unknown
from hebblm.text.prepared import EvaluationStream
from hebblm.text.subwords import Subwords
from hebblm.text.tokenizers import Normalization, normalize
from hebblm.text.words import Words, counted_as, lost_bytes, spelled_bytes

Ids = npt.NDArray[np.int64]
LINES = 1_000  # encoded at a time


class Pieces(NamedTuple):
    """A text in pieces."""

    ids: Ids  # (T,) int64
    words: Words  # of the text, and where its pieces lie in them
    unknown: set[int]  # words with a piece that has no id
    lines: int  # ends of line
    bytes: int  # UTF-8 bytes of the text before normalisation, one an end of line
    # (T,) int64, bytes by which a piece without an id is spelled, an end included; 0 for the others
    spelled: Ids
    lost: int  # bytes that the tokenizer loses, at least


@dataclass(frozen=True, slots=True)
class SubwordCorpus:
    """A corpus read in pieces; each split is encoded once.

    The lines of a tokenised corpus begin and end with a space that no model of words sees. They are
    left out here too, so that both kinds of models code the same text; their bytes count for both.
    """

    corpus: Corpus  # its text
    subwords: Subwords  # how it is cut
    normalization: Normalization
    _ids: dict[str, Ids] = field(default_factory=dict)

    def tokens(self, split: str) -> Ids:
        if split not in self._ids:
            parts = [
                np.array(self.subwords.ids(text), dtype=np.int64)
                for _, text in self._batches(split)
            ]
            self._ids[split] = np.concatenate(parts)
        return self._ids[split]

    def pieces(self, split: str, most: int | None = None) -> Iterator[Pieces]:
        """Yield a split, some lines at a time, with its line ends; ``most`` limits the number of
        pieces.
        """
        done = 0
        for batch, text in self._batches(split):
            encoded = self.subwords.encode(text)
            count = len(encoded.ids)
            if most is not None:
                count = min(count, most - done)
            if count == 0:
                continue
            whole = count == len(encoded.ids)
            now, _ = encoded.cut(count)
            assert now.words is not None, "pieces lie in words"
            part = text if whole else "".join(now.tokens)
            ends = part.count("\n")
            size = sum(len(line.encode()) + 1 for line in batch[:ends])
            lost = encoded.lost
            if not whole:  # the last line is read in part
                size += min(len(part.rpartition("\n")[2].encode()), len(batch[ends].encode()))
                lost = lost_bytes(part, self.subwords.join(now.ids))
            for line in batch[:ends]:
                lost += lost_bytes(line, normalize(line, self.normalization))
            spelled = np.zeros(count, dtype=np.int64)
            unknown: set[int] = set()
            for place in now.unknown:
                spelled[place] = spelled_bytes(now.tokens[place])
                unknown.update(range(now.words.first[place], now.words.last[place] + 1))
            yield Pieces(
                ids=np.array(now.ids, dtype=np.int64),
                words=now.words,
                unknown=unknown,
                lines=ends,
                bytes=size,
                spelled=spelled,
                lost=lost,
            )
            done += count
            if done == most:
                return

    def _batches(self, split: str) -> Iterator[tuple[list[str], str]]:
        """Yield some lines of a split at a time, and the text to encode of them."""
        lines = self.corpus.lines(split)
        done = 0
        with bar(passing=True) as progress:
            task = progress.add_task(f"encode {self.corpus.name} {split}", total=None, unit="lines")
            while batch := list(islice(lines, LINES)):
                yield batch, "\n".join(map(self._line, batch)) + "\n"
                done += len(batch)
                progress.update(task, completed=done)
        if not done:
            raise UserError(f"the {split} split of {self.corpus.name} is empty; put text into it")

    def _line(self, line: str) -> str:
        return normalize(line.strip(" ") if self.corpus.tokenised else line, self.normalization)

    def stream(self, split: str) -> EvaluationStream:
        """Return a split as a model reads it that was trained on the corpus."""
        return encode_subwords(self, split, None, None)

    def piece_counts(self, split: str) -> Ids:
        """Return how often each piece occurs in a split (rows,)."""
        return np.bincount(self.tokens(split), minlength=self.subwords.known)

    def word_counts(self, split: str) -> Counter[str]:
        """Return how often each word of a split occurs, including ends of line."""
        counts: Counter[str] = Counter()
        for line in self.corpus.lines(split):
            counts.update(normalize(line, self.normalization).split())
            counts[EOS] += 1
        return counts

    def describe(self) -> dict[str, Any]:
        """Describe the tokenizer for a result."""
        return {
            "name": type(self.subwords.tokenizer).__name__,
            "pieces": len(self.subwords.tokenizer),
        }


def encode_subwords(
    read: SubwordCorpus, split: str, most: int | None, counted: SubwordCorpus | None
) -> EvaluationStream:
    """Return a split as a stream of at most so many pieces, with the words that they make.

    A word is new if one of its pieces has no id, or if it does not occur in the training split of
    ``counted``, the text that words are counted in. If punctuation is separate in that text, a word
    is counted without it. Lines, words and bytes are those of the part that is read.
    """
    parts = list(read.pieces(split, most))
    ids = np.concatenate([part.ids for part in parts])
    pieces = Words.joined([part.words for part in parts])
    lines = sum(part.lines for part in parts)
    size = sum(part.bytes for part in parts)
    # 1) The word that each one counts as: itself, or without punctuation at its ends.
    counts = Counter[str]()
    if counted is not None:
        counts = counted.word_counts("train")
    types = {}
    for word in pieces.texts:
        if word not in types:
            types[word] = word if counted is None else counted_as(word, counts)
    types["\n"] = EOS
    # 2) The words of the text, those that are new last.
    unknown = set()
    for part in parts:
        unknown |= {types[part.words.texts[place]] for place in part.unknown}
    occurring = [types[word] for word in pieces.texts]
    count = sum(word != EOS for word in occurring)
    novel = []
    for word in dict.fromkeys(occurring):  # in the order of the text
        if word in unknown or (counted is not None and word not in counts):
            novel.append(word)
    words_known = set(occurring) if counted is None else set(counts)
    known = sorted(words_known - set(novel))
    symbols = tuple(known + novel)
    index = {word: number for number, word in enumerate(symbols)}
    words = EvaluationStream(
        ids=np.array([index[word] for word in occurring], dtype=np.int64),
        eos=index.get(EOS, 0),
        source_size=len(known),
        vocabulary_size=len(symbols),
        symbols=symbols,
        train_counts=np.array([counts[word] for word in known] + [0] * len(novel), dtype=np.int64),
        lines=lines,
        words=count,
        bytes=size,
        counted=counted is not None,
    )
    subwords = read.subwords
    stream = EvaluationStream(
        ids=ids,
        eos=subwords.start,
        source_size=subwords.known,
        vocabulary_size=subwords.known,
        symbols=tuple(subwords[piece] for piece in range(subwords.known)),
        train_counts=np.asarray(subwords.counts, dtype=np.int64),
        lines=lines,
        words=count,
        bytes=size,
        pieces=pieces,
        by_word=words,
        unknown=np.concatenate([part.spelled for part in parts]),
        lost=sum(part.lost for part in parts),
    )
    _tell_fit(read, stream, sum(word not in ("\n", types[word]) for word in pieces.texts), counted)
    return stream


def _tell_fit(
    read: SubwordCorpus, stream: EvaluationStream, apart: int, counted: SubwordCorpus | None
) -> None:
    """Print what the tokenizer loses of a text, and how its words differ from the text that words
    are counted in.

    ``apart`` of its words are counted without the punctuation at their ends.
    """
    name = read.corpus.name.removeprefix("text:")
    subwords = read.subwords
    tell_loss(name, stream.lost, stream.bytes)
    if unknown := int((stream.spelled > 0).sum()):
        log(
            f"{unknown:,} of {len(stream):,} pieces of {name} have no id: they count as new words, "
            "and their spelling "
            "costs 8 bits a byte"
        )
    if counted is None:
        return
    if apart:
        if subwords.splitting == "moses":
            remedy = ""
        else:
            remedy = "; use tokenizer=moses if the model reads it apart as well"
        log(
            f"{100 * apart / stream.words:.3g} % of the words of {name} are counted without the "
            "punctuation at their "
            f"ends, which is separate in {counted.corpus.name}{remedy}"
        )
    words = stream.reported
    beyond = Counter(words.symbols[index] for index in words.ids[words.oov].tolist())
    warn_of_unknown(
        name,
        beyond,
        len(words),
        0,
        "`tokenizer` or `normalization`",
        f"the words of {counted.corpus.name}",
    )
