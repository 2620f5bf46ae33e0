"""Tokenizer of a plain text, chosen to fit a dictionary made from another text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, get_args

from hebblm.runtime.progress import log
from hebblm.runtime.spelling import unknown
from hebblm.text.dictionary import UNK
from hebblm.text.tokenizers import MosesTokenizer, Tokenizer, WhitespaceTokenizer

Splitting = Literal["auto", "whitespace", "moses"]
Chosen = Literal["own", "whitespace", "moses"]
"""The splitter in use: the tokeniser of the dictionary's text, or another one."""
SAMPLE = 2_000  # lines that are split both ways
MAX_LINE_CHARACTERS = 1 << 16  # characters of a line that are
# of the words outside the dictionary; a text that is tokenised already keeps 0.9 of them or more
CLEAR = 0.75
MUCH_UNKNOWN = 0.1


def check_splitting(asked: str) -> None:
    if asked not in get_args(Splitting):
        raise unknown(
            "tokenizer", asked, get_args(Splitting), f"choose {', '.join(get_args(Splitting))}"
        )


def fitting(
    lines: Iterable[str],  # the text's first ones, at most :data:`SAMPLE`, normalised
    default: Tokenizer,  # tokeniser of the dictionary's text
    known: Callable[[str], bool],  # says whether the dictionary has a word
    asked: Splitting = "auto",  # what the user chose
    *,
    name: str,  # of the text, for people
) -> Tokenizer:
    """Choose the tokeniser for a text, and print a line if it is not the dictionary's own.

    A dictionary whose text came with spaces between words and punctuation does not have
    ``reason,``. If Moses' rules leave less than three quarters of the unknown words, they are used.
    """
    if asked != "auto":
        return MosesTokenizer() if asked == "moses" else WhitespaceTokenizer()
    if default.name != "whitespace":
        return default
    lines = [line[:MAX_LINE_CHARACTERS] for line in lines]
    plain = _unknown(lines, default, known)
    if not plain:
        return default
    split = _unknown(lines, MosesTokenizer(), known)
    if split >= CLEAR * plain:
        return default
    log(
        f"{name} is split at punctuation as well: {100 * split:.1f} % of its tokens are unknown to "
        "the model, "
        f"{100 * plain:.1f} % if it is split at spaces alone (tokenizer=whitespace)"
    )
    return MosesTokenizer()


def warn_of_unknown(
    name: str,
    beyond: Counter[str],
    tokens: int,
    unknown: int,
    remedy: str,
    of: str = "the model's vocabulary",
) -> None:
    """Warn if much of a text is outside the model's vocabulary, with the most frequent such words.

    ``beyond`` counts the words that the model has no row for, ``unknown`` of the ``tokens`` are
    ``<unk>``; ``remedy`` names options for a better fit.
    """
    share = beyond.total() / max(1, tokens)
    if share <= MUCH_UNKNOWN:
        return
    words = ", ".join(f"'{_shown(word)}'" for word, _ in beyond.most_common(5))
    also = f"; {100 * unknown / tokens:.1f} % are <unk> in the text itself" if unknown else ""
    log(
        f"warning: {100 * share:.1f} % of the tokens of {name} are outside {of}, most often {words}"
        f"{also}; if these words are common, try another {remedy}"
    )


def tell_loss(name: str, lost: int, size: int) -> None:
    """Print what the tokenizer loses of a text of so many bytes, if it loses any."""
    if lost:
        log(
            f"the tokenizer loses at least {100 * lost / size:.3g} % of the bytes of {name}: "
            "do not compare its bits a byte with another model's"
        )


def _shown(word: str) -> str:
    """Return the beginning of a word in characters that a terminal can show."""
    visible = ""
    for char in word[:30]:
        visible += char if char.isprintable() else ascii(char)[1:-1]
    return visible if len(word) <= 30 else f"{visible}..."


def _unknown(lines: list[str], tokenizer: Tokenizer, known: Callable[[str], bool]) -> float:
    """Share of tokens that the dictionary does not have."""
    tokens = [token for line in lines for token in tokenizer.tokenize(line)]
    return sum(token != UNK and not known(token) for token in tokens) / max(1, len(tokens))
