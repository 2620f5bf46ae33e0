"""The unit of a page: pieces of words for a model that reads them, else tokens.

Training counts, new words and gains by part are kept by word, also for a model of pieces. A page
shows them by piece where the result says how many pieces each part has; an older result does not,
and shows them by word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hebblm.report.result.numbers import perplexity
from hebblm.report.result.parts import ALL, PIECES, FrequencyBucket, Gain
from hebblm.report.result.schema import PIECES_OF_PARTS, MethodResult, StoredResult


def unit(result: StoredResult) -> str:
    """Return the unit of losses: a piece, or a token."""
    return "piece" if result.of_pieces else "token"


def unit_of_parts(result: StoredResult) -> str:
    """Return the unit of losses on parts of a text."""
    if not result.of_pieces:
        return "token"
    return "piece" if PIECES_OF_PARTS in result.extra else "word"


def size(result: StoredResult, part: str, words: int) -> int:
    """Return the units of a part of the text that has so many words."""
    if part == ALL and result.of_pieces:
        return int(result.scenario.extra.get("pieces", words))
    return int(result.extra.get(PIECES_OF_PARTS, {}).get(part, words))


def by_unit(result: StoredResult, part: str, words: int, loss: float | None) -> float | None:
    """Return the loss of a part by its unit, given that by word, nats."""
    units = size(result, part, words)
    if loss is None or not units:
        return loss
    return loss * (words / units)


def gain_by_unit(result: StoredResult, gain: Gain) -> Gain:
    """Return a gain on a part of the text by its unit, given that by word."""
    if gain.part == PIECES:
        return gain
    part = gain.part
    words = gain.tokens
    return Gain(
        part,
        size(result, part, words),
        by_unit(result, part, words, gain.gain),
        by_unit(result, part, words, gain.low),
        by_unit(result, part, words, gain.high),
    )


def buckets_by_unit(
    result: StoredResult, buckets: Iterable[FrequencyBucket], prefix: str = ""
) -> list[FrequencyBucket]:
    """Return losses by bucket, each by its unit; ``prefix`` makes the name of a bucket that of its
    part.
    """
    converted = []
    for bucket in buckets:
        part = f"{prefix}{bucket.bucket}"
        nll = by_unit(result, part, bucket.tokens, bucket.nll)
        units = size(result, part, bucket.tokens)
        if nll is None or nll == bucket.nll:
            converted.append(replace(bucket, tokens=units))
        else:
            converted.append(FrequencyBucket(bucket.bucket, units, nll, perplexity(nll)))
    return converted


def perplexity_of_parts(result: StoredResult, item: MethodResult) -> float | None:
    """Return a method's perplexity on the whole text, by the unit of its parts."""
    if unit_of_parts(result) == "piece":
        return item.piece_perplexity
    return item.perplexity


def gains_by_unit(result: StoredResult, method: str, of: str) -> dict[str, Gain]:
    """Return a method's gains over the base by part, nats a word or by the unit of the page."""
    gains = {gain.part: gain for gain in result.methods[method].gains}
    if of == "word":
        return gains
    converted = {part: gain_by_unit(result, gain) for part, gain in gains.items()}
    if result.of_pieces and PIECES in gains:
        converted[ALL] = replace(gains[PIECES], part=ALL)
    return converted
