"""Size of the text of a split's first tokens: what bits per byte are divided by where a part of it is read."""

from __future__ import annotations

from collections.abc import Container
from math import ceil
from typing import NamedTuple

from hebblm.errors import UserError
from hebblm.text.corpora import Corpus
from hebblm.text.dictionary import EOS, UNK
from hebblm.text.normalize import Normalization, normalize


class Beginning(NamedTuple):
    """The text of the first tokens of a split."""

    lines: int  # ends of line among them
    words: int  # words before tokenisation, ends of line apart
    bytes: int  # UTF-8 bytes before normalisation, one an end of line
    # those of words that the model has no row for: it tells which of the text's new words one is, or only that it is
    # unknown, and never spells it, so that its bits for these bytes are too few
    unspelled: int
    # those of them that would have to be spelled: of a new word that can be told from others its first occurrence, of
    # an unknown one each
    spelling: int


def measure_beginning(
    corpus: Corpus,  # with its lines
    split: str,  # of it
    tokens: int,  # that are read, an end of line each line
    normalization: Normalization,  # the case policy
    known: Container[str],  # words that the model has a row for
    told_apart: Container[str],  # words that the stream has an id for
) -> Beginning:
    """How much text the first tokens of a split are.

    Of a line that is read in part, words and bytes count by the share of its tokens.
    """
    lines = words = size = unspelled = spelling = 0
    left, seen = tokens, set[str]()
    for line in corpus.lines(split):
        found = [*corpus.tokenizer.tokenize(normalize(line, normalization)), EOS]
        read = found[:left]
        share, left = len(read) / len(found), left - len(read)
        lines += len(read) == len(found)
        words += ceil(share * corpus.tokenizer.words(line))
        size += round(share * (len(line.encode()) + 1))
        for word in read:
            if word in known or word in (EOS, UNK):
                continue
            unspelled += len(word.encode())
            if word not in seen:
                spelling += len(word.encode())
            if word in told_apart:
                seen.add(word)
        if not left:
            return Beginning(lines, words, size, unspelled, spelling)
    raise UserError(f"{corpus.name} has {tokens - left} tokens in its {split} split, not {tokens}; prepare it again")
