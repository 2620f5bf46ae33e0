"""Lines held in memory, as a source of text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hebblm.text.corpora import Corpus
from hebblm.text.tokenizers import WhitespaceTokenizer


@dataclass(frozen=True, slots=True)
class MemoryLines:
    """Lines held in memory."""

    content: Sequence[str] = field(repr=False)  # without line breaks

    @property
    def size(self) -> int | None:
        return sum(len(line.encode()) + 1 for line in self.content)

    def lines(self) -> Iterator[str]:
        return iter(self.content)

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for line in self.content:
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()


def corpus_of(
    train: list[str], valid: list[str] | None = None, test: list[str] | None = None, **more: Any
) -> Corpus:
    """Corpus of lines in memory, split at spaces; a split that is not given is one word."""
    lines = {
        "train": train,
        "valid": ["a"] if valid is None else valid,
        "test": ["a"] if test is None else test,
    }
    sources = {split: MemoryLines(content) for split, content in lines.items()}
    hashes = {split: source.sha256() for split, source in sources.items()}
    return Corpus("toy", sources, WhitespaceTokenizer(), {"sha256": hashes}, **more)
