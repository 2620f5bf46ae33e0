"""The parts of a stream that gains are told for: all, new and known words, training counts, occurrences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hebblm.report.frequency import bucket_indices, bucket_labels
from hebblm.report.gains import Bootstrap, Gain, Losses, bootstrap_gains
from hebblm.report.occurrences import OCCURRENCES, occurrence_masks

ALL, OOV, KNOWN = "All", "OOV", "Known"
OOV_BY_OCCURRENCE = tuple(f"{OOV} {name}" for name in OCCURRENCES)


def stream_parts(
    train_counts: NDArray[np.integer],
    seen: NDArray[np.integer],
    oov: NDArray[np.bool_],
    edges: Sequence[int],
) -> dict[str, NDArray[np.bool_]]:
    """Return the parts by name, (T,) bool each; those of new words only where there are any.

    Args:
        train_counts: (T,) how often each token's word occurred in training.
        seen: (T,) how often it occurred in the stream so far.
        oov: (T,) bool, outside the source vocabulary.
        edges: bounds of the frequency buckets.
    """
    parts = {ALL: np.ones(oov.size, dtype=np.bool_)}
    if oov.any():
        parts |= {OOV: oov, KNOWN: ~oov}
    indices = bucket_indices(train_counts, edges)  # (T,)
    parts |= {label: indices == at for at, label in enumerate(bucket_labels(edges))}
    if oov.any():
        parts |= dict(zip(OOV_BY_OCCURRENCE, occurrence_masks(seen, oov), strict=True))
    return parts


def part_gains(
    nll: Mapping[str, Losses],
    train_counts: NDArray[np.integer],
    seen: NDArray[np.integer],
    oov: NDArray[np.bool_],
    edges: Sequence[int],
    config: Bootstrap,
) -> dict[str, tuple[Gain, ...]]:
    """Return by method what it gains on every part; see :func:`stream_parts` and :func:`bootstrap_gains`."""
    return bootstrap_gains(nll, stream_parts(train_counts, seen, oov, edges), config)
