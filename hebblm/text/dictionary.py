"""Dictionary of words and their ids, with fairseq's semantics and its ``symbol count`` file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from hebblm.errors import UserError
from hebblm.io.files import read_bytes, sha256, write_text

UNK = "<unk>"
EOS = "<eos>"
FAIRSEQ_SPECIALS = ("<s>", "<pad>", "</s>", UNK)
OVERWRITE = "#fairseq:overwrite"

MAX_FILE_BYTES = 1 << 28  # bytes of a file
DIGITS = 18  # of a count, so that sums fit 64 bits

Scheme = Literal["words", "fairseq"]


class Dictionary:
    """A one-to-one table of symbols and consecutive ids, with the count of each symbol.

    Two schemes share the class:

    - ``words`` (default): models here are trained on it. Only ``<unk>`` and ``<eos>`` are added, as
      ordinary symbols that are counted, sorted and saved like any word. So a softmax over Penn
      Treebank has exactly 10,000 rows and one over WikiText-2 exactly 33,278.
    - ``fairseq`` has ``<s> <pad> </s> <unk>`` at ids 0 to 3, outside the file, ended by ``</s>``.
    """

    def __init__(self, scheme: Scheme = "words") -> None:
        self.scheme: Scheme = scheme
        self._symbols: list[str] = []
        self._counts: list[int] = []
        self._indices: dict[str, int] = {}
        self.eos_word = EOS
        specials: tuple[str, ...] = (UNK, EOS)
        count = 0
        if scheme == "fairseq":
            self.eos_word = "</s>"
            specials = FAIRSEQ_SPECIALS
            count = 1
        for symbol in specials:
            self.add_symbol(symbol, count)
        # As in fairseq, a later `#fairseq:overwrite` entry moves the word but not the special's own
        # id.
        self._find_specials()

    @classmethod
    def vocabulary(
        cls, counts: Mapping[str, int], *, min_count: int = 1, joined: Iterable[str] = ()
    ) -> Dictionary:
        """Build a model's vocabulary from the word counts of its training text, including
        ``<eos>``.

        Words rarer than ``min_count`` count as ``<unk>``, except those of ``joined``. The most
        frequent come first, ties in alphabetical order.
        """
        kept = dict.fromkeys((UNK, EOS, *joined), 0)
        always = set(kept)
        for word, count in counts.items():
            known = word in always or count >= min_count
            symbol = word if known else UNK
            kept[symbol] = kept.get(symbol, 0) + count
        dictionary = cls._empty()
        for word in sorted(kept, key=lambda word: (-kept[word], word)):
            dictionary.add_symbol(word, kept[word])
        dictionary._find_specials()
        return dictionary

    @classmethod
    def _empty(cls) -> Dictionary:
        """Return a dictionary of scheme ``words`` without its special symbols."""
        dictionary = cls()
        dictionary._symbols = []
        dictionary._counts = []
        dictionary._indices = {}
        return dictionary

    def _find_specials(self) -> None:
        self.unk_index = self._indices[UNK]
        self.eos_index = self._indices[self.eos_word]

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(self._symbols)

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(self._counts)

    def __len__(self) -> int:
        return len(self._symbols)

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._indices

    def __getitem__(self, index: int) -> str:
        """Symbol of an id; an id beyond the table reads ``<unk>``, as in fairseq."""
        return self._symbols[index] if 0 <= index < len(self._symbols) else UNK

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Dictionary)
            and self._indices == other._indices
            and len(self) == len(other)
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def index(self, symbol: str) -> int:
        """Id of a symbol, or that of ``<unk>``."""
        return self._indices.get(symbol, self.unk_index)

    def add_symbol(self, word: str, n: int = 1, *, overwrite: bool = False) -> int:
        """Count a word ``n`` times, giving it an id if it has none, and return the id.

        ``overwrite`` gives a known word a new id (fairseq's ``#fairseq:overwrite``).
        """
        known = self._indices.get(word)
        if known is not None and not overwrite:
            self._counts[known] += n
            return known
        self._indices[word] = len(self._symbols)
        self._symbols.append(word)
        self._counts.append(n)
        return self._indices[word]

    def encode_line(self, words: Iterable[str]) -> list[int]:
        """Ids of a line, ended by the end-of-line id."""
        unk = self.unk_index
        get = self._indices.get
        ids = [get(word, unk) for word in words]
        ids.append(self.eos_index)
        return ids

    def hash(self) -> str:
        """Sha256 of the symbols in the order of their ids; counts do not enter."""
        return hashlib.sha256("\n".join(self._symbols).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write ``symbol count`` lines; fairseq's four specials are left out, as fairseq does."""
        first = len(FAIRSEQ_SPECIALS) if self.scheme == "fairseq" else 0
        specials = self._symbols[:first]
        lines = []
        for symbol, count in zip(self._symbols[first:], self._counts[first:], strict=True):
            if not symbol or " " in symbol or "\n" in symbol:
                raise ValueError(f"the symbol {symbol!r} cannot stand in a dictionary file")
            line = f"{symbol} {count}"
            if symbol in specials:
                line += f" {OVERWRITE}"
            lines.append(f"{line}\n")
        write_text(path, "".join(lines))

    @classmethod
    def load(cls, path: Path, recorded: str | None = None) -> Dictionary:
        """Load a dictionary file, one of ours or one of fairseq's; ``recorded`` is its sha256, if
        known.

        Our files list ``<unk>`` as a plain entry, which fairseq would refuse as a duplicate of its
        own special.
        """
        if recorded is not None and path.is_file() and sha256(path) != recorded:
            raise UserError(
                f"{path} was changed since it was written; restore it, or make it again"
            )
        entries = _read_entries(path)
        ours = any(word == UNK and not overwrite for word, _, overwrite in entries)
        dictionary = cls._empty() if ours else cls("fairseq")
        for word, count, overwrite in entries:
            if word in dictionary and not overwrite:
                raise UserError(
                    f"{path} lists {word!r} twice; remove one of the lines or mark it {OVERWRITE}"
                )
            dictionary.add_symbol(word, count, overwrite=overwrite)
        if ours:
            if EOS not in dictionary:
                raise UserError(
                    f"{path} has {UNK} but no {EOS}; write the dictionary again with "
                    "hebblm-preprocess"
                )
            dictionary._find_specials()
        return dictionary


def _read_entries(path: Path) -> list[tuple[str, int, bool]]:
    """(symbol, count, overwrite) of each line of a dictionary file."""
    try:
        text = read_bytes(path, MAX_FILE_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"the dictionary {path} is not UTF-8 (byte {error.start}); save it as UTF-8"
        ) from error
    entries = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        fields = line.rstrip("\r").split(" ")
        overwrite = fields[-1] == OVERWRITE
        if overwrite:
            fields = fields[:-1]
        # isdecimal alone would let other scripts' digits through.
        number_like = fields[-1].isascii() and fields[-1].isdecimal() and len(fields[-1]) <= DIGITS
        if len(fields) < 2 or not number_like:
            raise UserError(f"{path}, line {number}: {line[:60]!r} is not `symbol count`")
        entries.append((" ".join(fields[:-1]), int(fields[-1]), overwrite))
    return entries
