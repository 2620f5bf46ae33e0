"""The text of each token of a text."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from hebblm.reader.session import ReaderSession
from hebblm.text.piece_texts import decoded


def texts_of(session: ReaderSession, ids: Sequence[int]) -> list[str]:
    """Return the text that each token (T,) of a text adds; joined they are the text.

    A character that several pieces write belongs to the last of them.
    """
    pieces, vocabulary = session.pieces, session.vocabulary
    if pieces is None:
        texts, fresh = [], True
        for index in ids:
            line_ends = index == vocabulary.start
            word = "\n" if line_ends else vocabulary[index]
            texts.append(word if fresh or line_ends else f" {word}")
            fresh = line_ends
        return texts
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [decoder.decode(pieces.data[index]) for index in ids]
    if texts:
        texts[-1] += decoder.decode(b"", final=True) if len(texts) == len(ids) else ""
        if pieces.space_first and texts[0].startswith(" "):
            texts[0] = texts[0].removeprefix(" ")
    return texts


def names_of(session: ReaderSession, ids: Sequence[int]) -> list[str]:
    """Return a name for each of some tokens (N,); no two are alike.

    It is the token's text; bytes that are no whole character are written as such.
    """
    pieces, vocabulary = session.pieces, session.vocabulary
    texts: list[str] = []
    for index in ids:
        if pieces is None:
            name = "\n" if index == vocabulary.start else f" {vocabulary[index]}"
        else:
            data = pieces.data[index]
            text = decoded(data)
            if text is None or text.partial:
                name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
            else:
                name = text.text
        texts.append(f"token_id:{index}" if name in texts else name)
    return texts
