"""Loss on out-of-vocabulary words by how often each occurred in the stream so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hebblm.report.frequency import bucket_means
from hebblm.report.result import FrequencyBucket

OCCURRENCES = ("1st", "2nd", "3rd", "4th-7th", "8th+")
_EDGES = (1, 2, 3, 7)  # earlier occurrences from which on the next name holds


def occurrences_so_far(tokens: NDArray[Any]) -> NDArray[np.int64]:
    """Return how often each token of a stream occurred before its own place.

    Args:
        tokens: (T,) ids or words, in the order of the stream.

    Returns:
        (T,) int64, 0 for a first occurrence; it depends on earlier tokens alone.
    """
    order = np.argsort(
        tokens, kind="stable"
    )  # (T,) equal tokens side by side, each in the order of the stream
    together = tokens[order]
    starts = np.flatnonzero(np.append(True, together[1:] != together[:-1]))
    lengths = np.diff(np.append(starts, tokens.size))
    seen = np.empty(tokens.size, dtype=np.int64)
    seen[order] = np.arange(tokens.size) - np.repeat(starts, lengths)
    return seen


def occurrence_masks(seen: NDArray[np.integer], oov: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Return for each of :data:`OCCURRENCES`, (T,) bool, which tokens are that occurrence of an OOV word.

    Args:
        seen: (T,) integer, occurrences so far.
        oov: (T,) bool, outside the source vocabulary.
    """
    index = np.searchsorted(_EDGES, seen, side="right")  # (T,)
    return [oov & (index == at) for at in range(len(OCCURRENCES))]


def occurrence_report(
    nll: NDArray[np.floating], seen: NDArray[np.integer], oov: NDArray[np.bool_]
) -> list[FrequencyBucket]:
    """Average the loss of out-of-vocabulary tokens over which occurrence of their word they are.

    Args:
        nll: (T,) losses in nats.
        seen: (T,) integer, occurrences so far.
        oov: (T,) bool, outside the source vocabulary.

    Returns:
        One bucket a name of :data:`OCCURRENCES`, in nats per token, which recombine to the loss over all
        out-of-vocabulary tokens; none without such tokens.
    """
    if not oov.any():
        return []
    return bucket_means(nll[oov], np.searchsorted(_EDGES, seen[oov], side="right"), OCCURRENCES)
