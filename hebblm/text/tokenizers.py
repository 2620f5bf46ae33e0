"""Lines to tokens and back: case policy, white space, Moses rules, SentencePiece subwords."""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from hebblm.errors import UserError
from hebblm.io.files import atomic_path, lack, sha256
from hebblm.runtime.spelling import unknown
from hebblm.text.dictionary import EOS, UNK
from hebblm.text.words import lost_bytes

Normalization = Literal["raw", "lower"]


def normalize(line: str, policy: Normalization) -> str:
    """Return a line unchanged (``raw``) or lower-cased (``lower``).

    The symbols ``<unk>`` and ``<eos>`` are lower-case already and stay as they are.
    """
    if policy == "raw":
        return line
    if policy == "lower":
        return line.lower()
    raise UserError(
        f"unknown normalization {policy!r}; choose one of {', '.join(get_args(Normalization))}"
    )


# both take part of a second, which text that is tokenised already need not wait for
if TYPE_CHECKING:
    from sacremoses import MosesDetokenizer
    from sacremoses import MosesTokenizer as SacreMosesTokenizer
    from sentencepiece import SentencePieceProcessor

MODEL_FILE = "tokenizer.model"
_KEPT = re.compile(f"{UNK}|{EOS}|[\\x00-\\x08\\x0e-\\x1b]")
"""Symbols that Moses' rules would split or delete, and control characters except spaces."""
_STAND_IN = "THISISPROTECTED"
NAMES = ("whitespace", "moses", "sentencepiece")


class Tokenizer(ABC):
    """Splitter of lines into tokens; a line never yields tokens with spaces in them."""

    name: ClassVar[str]
    """The name used on the command line."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """All possible tokens, if they are fixed; else empty."""
        return ()

    @abstractmethod
    def tokenize(self, line: str) -> list[str]: ...

    @abstractmethod
    def detokenize(self, tokens: Sequence[str]) -> str:
        """Return the line of some tokens, as nearly as possible."""

    def lost(self, line: str, tokens: Sequence[str]) -> int:
        """Return the least number of a line's bytes, such as spaces and capitals, that its tokens
        do not give back.
        """
        return lost_bytes(line, self.detokenize(tokens))

    def words(self, line: str) -> int:
        """Return the number of words for a perplexity per word, separated by white space, without
        the end of line.
        """
        return len(line.split())

    def spec(self) -> dict[str, Any]:
        """Return the specification for :func:`load_tokenizer`, as JSON."""
        return {"name": self.name}

    def save(self, folder: Path) -> None:  # noqa: B027 - most have nothing to remember
        """Write the files that :func:`load_tokenizer` needs besides the specification, if any."""


@dataclass(frozen=True)
class WhitespaceTokenizer(Tokenizer):
    """White-space tokenizer, for text that is tokenised already."""

    name = "whitespace"

    def tokenize(self, line: str) -> list[str]:
        return line.split()

    def detokenize(self, tokens: Sequence[str]) -> str:
        return " ".join(tokens)


@dataclass(frozen=True)
class MosesTokenizer(Tokenizer):
    """Moses' rules for punctuation (sacremoses), without its HTML escapes."""

    lang: str = "en"  # code of the language, whose abbreviations are known
    name = "moses"

    def __post_init__(self) -> None:
        from sacremoses.corpus import NonbreakingPrefixes

        known = sorted(set(NonbreakingPrefixes().available_langs.values()))
        if self.lang not in known:
            raise UserError(
                f"Moses' rules do not know the language {self.lang!r}; choose {', '.join(known)}"
            )

    @cached_property
    def _tokenizer(self) -> SacreMosesTokenizer:
        from sacremoses import MosesTokenizer as SacreMosesTokenizer

        class Quick(SacreMosesTokenizer):  # type: ignore[misc]
            """The same rules, without building a set of all letters for each token."""

            lower, alpha = map(
                frozenset, (SacreMosesTokenizer.IsLower, SacreMosesTokenizer.IsAlpha)
            )

            def islower(self, text: str) -> bool:
                return self.lower.issuperset(text)

            def isanyalpha(self, text: str) -> bool:
                return not self.alpha.isdisjoint(text)

        return Quick(lang=self.lang)

    @cached_property
    def _detokenizer(self) -> MosesDetokenizer:
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(lang=self.lang)

    def tokenize(self, line: str) -> list[str]:
        """Split words from punctuation; ``<unk>`` and ``<eos>`` stay whole, and control characters
        in their words.
        """
        kept = list(dict.fromkeys(_KEPT.findall(line)))
        if not kept:
            tokens: list[str] = self._tokenizer.tokenize(line, escape=False)
            return tokens
        # Moses' own protection ends at 1,000 of them, and without it control characters are lost.
        word = _STAND_IN
        while word in line:
            word += "X"
        for number, symbol in enumerate(kept):
            line = line.replace(symbol, f"{word}{number:03d}")
        text: str = self._tokenizer.tokenize(line, escape=False, return_str=True)
        for number, symbol in enumerate(kept):
            text = text.replace(f"{word}{number:03d}", symbol)
        return text.split()

    def detokenize(self, tokens: Sequence[str]) -> str:
        line: str = self._detokenizer.detokenize(list(tokens), unescape=False)
        return line

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "lang": self.lang}


@dataclass(frozen=True)
class SentencePieceTokenizer(Tokenizer):
    """Subwords of a SentencePiece model."""

    model: Path  # path of the model file
    name = "sentencepiece"

    def __post_init__(self) -> None:
        self._processor  # noqa: B018

    @cached_property
    def _processor(self) -> SentencePieceProcessor:
        from sentencepiece import SentencePieceProcessor

        if not self.model.is_file():
            raise UserError(f"the SentencePiece model {self.model} {lack(self.model)}")
        try:
            return SentencePieceProcessor(model_file=str(self.model))
        except RuntimeError as error:
            raise UserError(f"{self.model} is not a SentencePiece model; train it again") from error

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """All pieces but control symbols and the unknown one."""
        processor = self._processor
        ids = range(processor.get_piece_size())
        return tuple(
            processor.id_to_piece(i)
            for i in ids
            if not (processor.is_control(i) or processor.is_unknown(i))
        )

    @classmethod
    def train(
        cls, lines: Iterable[str], model: Path, *, vocab_size: int, seed: int = 0
    ) -> SentencePieceTokenizer:
        """Unigram model, trained from a stream of normalised lines in bounded memory and written to
        ``model``.

        SentencePiece draws at most a million lines; the same lines and seed give the same model.
        """
        import sentencepiece

        sentencepiece.set_random_generator_seed(seed)
        with atomic_path(model) as temporary, temporary.open("wb") as stream:
            try:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=(line for line in lines if line.strip()),
                    model_writer=stream,
                    vocab_size=vocab_size,
                    model_type="unigram",
                    input_sentence_size=1_000_000,
                    shuffle_input_sentence=True,
                    max_sentence_length=1 << 16,
                    num_threads=1,
                    bos_id=-1,
                    eos_id=-1,
                    minloglevel=2,
                )
            except UserError:
                raise  # the lines themselves cannot be read
            except (RuntimeError, ValueError) as error:
                reason = str(error).rsplit("] ", 1)[-1]
                raise UserError(
                    f"SentencePiece cannot learn {vocab_size} pieces from this text: {reason}"
                ) from error
        return cls(model)

    def tokenize(self, line: str) -> list[str]:
        """Return pieces; a character that no piece covers is a token by itself."""
        pieces: list[str] = self._processor.encode(line, out_type=str)
        return pieces

    def detokenize(self, tokens: Sequence[str]) -> str:
        line: str = self._processor.decode(list(tokens))
        return line

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "model": MODEL_FILE, "sha256": sha256(self.model)}

    def save(self, folder: Path) -> None:
        shutil.copyfile(self.model, folder / MODEL_FILE)


def load_tokenizer(spec: dict[str, Any], folder: Path) -> Tokenizer:
    """Load the tokeniser of a specification, from the folder of :meth:`Tokenizer.save`."""
    name = spec.get("name")
    if name == "whitespace":
        return WhitespaceTokenizer()
    if name == "moses":
        return MosesTokenizer(str(spec.get("lang", "en")))
    if name == "sentencepiece":
        tokenizer = SentencePieceTokenizer(folder / str(spec.get("model", MODEL_FILE)))
        if tokenizer.spec()["sha256"] != spec.get("sha256"):
            raise UserError(
                f"{tokenizer.model} is not the model the corpus was written with; preprocess it "
                "again"
            )
        return tokenizer
    raise unknown("tokenizer", str(name), NAMES, f"choose one of {', '.join(NAMES)}")
