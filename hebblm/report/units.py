"""The unit of a page: pieces of words for a model that reads them, else tokens.

Training counts, new words and gains by part are kept by word, also for a model of pieces. A page
shows them by piece where the result says how many pieces each part has; an older result does not,
and shows them by word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hebblm.report.buckets import ALL, PIECES, FrequencyBucket
from hebblm.report.gains import Gain
from hebblm.report.numbers import perplexity
from hebblm.report.stored import MethodResult, StoredResult

PIECES_OF_PARTS = "pieces_of_parts"
"""Key of a result: the pieces of each part of the text, where tokens are pieces."""


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
    return loss if loss is None or not units else loss * (words / units)


def gain_by_unit(result: StoredResult, gain: Gain) -> Gain:
    """Return a gain on a part of the text by its unit, given that by word."""
    if gain.part == PIECES:
        return gain
    gains = (
        by_unit(result, gain.part, gain.tokens, value) for value in (gain.gain, gain.low, gain.high)
    )
    return Gain(gain.part, size(result, gain.part, gain.tokens), *gains)


def buckets_by_unit(
    result: StoredResult, buckets: Iterable[FrequencyBucket], prefix: str = ""
) -> list[FrequencyBucket]:
    """Return losses by bucket, each by its unit; ``prefix`` makes the name of a bucket that of its
    part.
    """
    found = []
    for bucket in buckets:
        part = f"{prefix}{bucket.bucket}"
        nll = by_unit(result, part, bucket.tokens, bucket.nll)
        exp = bucket.perplexity if nll == bucket.nll or nll is None else perplexity(nll)
        found.append(
            replace(bucket, tokens=size(result, part, bucket.tokens), nll=nll, perplexity=exp)
        )
    return found


def perplexity_of_parts(result: StoredResult, item: MethodResult) -> float | None:
    """Return a method's perplexity on the whole text, by the unit of its parts."""
    return item.piece_perplexity if unit_of_parts(result) == "piece" else item.perplexity


def gains_by_unit(result: StoredResult, method: str, of: str) -> dict[str, Gain]:
    """Return a method's gains over the base by part, nats a word or by the unit of the page."""
    gains = {gain.part: gain for gain in result.methods[method].gains}
    if of == "word":
        return gains
    whole = gains.get(PIECES) if result.of_pieces else None
    found = {part: gain_by_unit(result, gain) for part, gain in gains.items()}
    return found if whole is None else {**found, ALL: replace(whole, part=ALL)}
