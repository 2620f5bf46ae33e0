"""Tokenizer of a plain text, chosen to fit a dictionary made from another text."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Literal

from hebblm.progress import say
from hebblm.text.dictionary import UNK, Dictionary
from hebblm.text.normalize import Normalization, normalize
from hebblm.text.sources import FileLines
from hebblm.text.tokenizers import MosesTokenizer, Tokenizer, WhitespaceTokenizer

Splitting = Literal["auto", "whitespace", "moses"]
SAMPLE = 2_000  # lines that are split both ways
CLEAR = 0.5  # of the words outside the dictionary; a text that is tokenised already hardly changes


def fitting(
    path: Path, own: Tokenizer, dictionary: Dictionary, policy: Normalization, asked: Splitting = "auto"
) -> Tokenizer:
    """Return the tokeniser with which a text is to be read, and say so where it is another than the dictionary's own.

    A dictionary whose text came with blanks between words and punctuation does not have ``reason,``. Where Moses' rules
    halve what lies outside of it, they are taken.

    Args:
        path: the text, UTF-8.
        own: tokeniser of the dictionary's text.
        dictionary: the words that are known.
        policy: the case policy.
        asked: what the user chose.
    """
    if asked != "auto":
        return MosesTokenizer() if asked == "moses" else WhitespaceTokenizer()
    if own.name != "whitespace":
        return own
    lines = [normalize(line, policy) for line in islice(FileLines((path,)).lines(), SAMPLE)]
    plain, split = _unknown(lines, own, dictionary), _unknown(lines, MosesTokenizer(), dictionary)
    if split >= CLEAR * plain:
        return own
    say(
        f"{path} is split at punctuation as well: {100 * split:.1f} % of its tokens are unknown to the model, "
        f"{100 * plain:.1f} % if it is split at blanks alone (--tokenizer whitespace)"
    )
    return MosesTokenizer()


def _unknown(lines: list[str], tokenizer: Tokenizer, dictionary: Dictionary) -> float:
    """Return the share of tokens that the dictionary does not have."""
    tokens = [token for line in lines for token in tokenizer.tokenize(line)]
    return sum(token not in dictionary and token != UNK for token in tokens) / max(1, len(tokens))
