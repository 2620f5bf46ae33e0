"""Lines held in memory, as a source of text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MemoryLines:
    """Lines held in memory."""

    content: Sequence[str] = field(repr=False)  # the lines, none of which holds a line break

    @property
    def size(self) -> int | None:
        """Bytes of UTF-8 text with one byte an end of line."""
        return sum(len(line.encode()) + 1 for line in self.content)

    def lines(self) -> Iterator[str]:
        return iter(self.content)

    def sha256(self) -> str:
        """Hash the lines, each ended by a line feed."""
        digest = hashlib.sha256()
        for line in self.content:
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()
