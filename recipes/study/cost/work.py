"""Least work of a token: bytes and operations, counted from the shapes alone.

Only what no form can do without is counted, and nothing twice: a result that fits the processor's caches is neither
read nor written. What every function returns is a token's share, float32 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

FLOAT = 4  # bytes
LABEL = 8
BYTES_A_FLOAT = 4  # a vector register compares so many byte-wide codes where it multiplies one float
ACTIVE = 255  # classes followed by the fast form where the records were made; today a query has its own number
CENTRES = 16  # of each part of a key, with four bits a code
GATES = 5  # exponentials of an LSTM unit: three sigmoids and two hyperbolic tangents


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a token.

    Args:
        streamed: bytes read or written in order.
        gathered: bytes read row by row, from places known only when they are asked for.
        operations: additions and multiplications.
        exponentials: of single numbers.
    """

    streamed: float = 0.0
    gathered: float = 0.0
    operations: float = 0.0
    exponentials: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return both together."""
        return Work(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(Work)))

    @property
    def bytes(self) -> float:
        """All bytes, in order or not."""
        return self.streamed + self.gathered


def base_work(*, dim: int, classes: int, batch: int) -> Work:
    """Count the base's distribution: the head read once a mini-batch, its product with the query, V numbers written.

    Args:
        dim: D.
        classes: V.
        batch: queries for which the head is read once.
    """
    head = classes * (dim + 1) * FLOAT / batch
    return Work(streamed=head + classes * FLOAT, operations=2 * classes * (dim + 1), exponentials=float(classes))


def descent_work(*, dim: int, classes: int, k: int, steps: int, active: int, rank: int) -> Work:
    """Count MbPA's fast form once the base's distribution is known: S steps on A classes and a tail.

    K keys, labels, distances and normalisers are read, and A rows of the head gathered. Products: of the keys with the
    query, ``2 K D``, and with those rows, ``2 K D A``; in each step the residuals with alpha, ``2 K A``; between two
    steps M with the residuals: whole after ``2 K^2 D`` for the Gram matrix, ``2 K^2 A`` a step, or through r
    directions after ``2 K D r``, ``4 K A r`` a step, whichever is less. Every step takes ``K (A + 1)`` exponentials.
    The V changed logits are written.

    Args:
        dim: D.
        classes: V.
        k: K.
        steps: S.
        active: |A|.
        rank: r.
    """
    active = min(active, classes)
    between = steps - 1
    whole = 2 * k * k * (dim + between * active)
    thin = 2 * k * rank * (dim + 2 * between * active)
    mixing = min(whole, thin) if between else 0
    return Work(
        streamed=k * (dim * FLOAT + LABEL + 2 * FLOAT) + classes * FLOAT,
        gathered=active * (dim + 1) * FLOAT,
        operations=2 * k * dim * (1 + active) + 2 * k * active * steps + mixing + classes,
        exponentials=float(steps * k * (active + 1)),
    )


def hebbian_work(*, k: int) -> Work:
    """Count what Hebb adds to MbPA: the bump of each of K entries at its label.

    Label, distance and ``h_k . h`` of an entry are read; its label's count and two logits are gathered, and one logit
    is scattered back. To know equal labels takes ``K log2 K`` comparisons, a bump about ten operations, and its weight
    E_i one exponential.

    Args:
        k: K.
    """
    return Work(
        streamed=k * (LABEL + 2 * FLOAT),
        gathered=k * (LABEL + 3 * FLOAT),
        operations=k * (10 + math.log2(max(2, k))),
        exponentials=float(k),
    )


def exact_work(*, entries: int, dim: int, k: int, batch: int, stored: int = FLOAT) -> Work:
    """Count a comparison with every entry: all keys read once a mini-batch and multiplied, K of them copied.

    Args:
        entries: M.
        dim: D.
        k: K.
        batch: queries for which the keys are read once.
        stored: bytes of a number of a key.
    """
    copied = k * (dim * FLOAT + LABEL + 2 * FLOAT)
    return Work(
        streamed=entries * dim * stored / batch + copied, gathered=k * dim * stored, operations=2 * entries * dim
    )


@dataclass(frozen=True, slots=True)
class IndexShape:
    """Extent of a search through product-quantised codes.

    Args:
        lists: inverted lists, 0 for none.
        codes: codes m of an entry.
        code_bytes: bytes of them.
        compared: entries that a query is compared with, on average.
        read: entries that some query of a mini-batch is compared with.
        candidates: entries a query whose exact distances are taken.
    """

    lists: int
    codes: int
    code_bytes: float
    compared: float
    read: float
    candidates: int


def index_work(shape: IndexShape, *, dim: int, k: int, batch: int, stored: int = FLOAT) -> Work:
    """Count a search through product-quantised codes, with exact distances of the candidates.

    The lists' centres are read once a mini-batch and compared with the query; 16 centres of every part of a key make
    its table. The codes that are compared take one look-up and one addition each, as bytes; those that any query of
    the mini-batch compares are read once. The keys of the candidates are gathered, three operations a number for a
    distance, and K of them written.

    Args:
        shape: of the index.
        dim: D.
        k: K.
        batch: queries of a mini-batch.
        stored: bytes of a number of a key.
    """
    passed = shape.lists * dim * FLOAT + shape.read * shape.code_bytes
    compared = 2 * dim * (shape.lists + CENTRES) + 2 * shape.compared * shape.codes / BYTES_A_FLOAT
    return Work(
        streamed=passed / batch + k * (dim * FLOAT + LABEL + 2 * FLOAT),
        gathered=float(shape.candidates * dim * stored),
        operations=compared + 3 * shape.candidates * dim,
    )


def reading_work(layers: Sequence[tuple[int, int]], *, ahead: int) -> Work:
    """Count an LSTM that reads one stream: its recurrent matrices go by once a token, the others once a block.

    Args:
        layers: (input width, output width) of each.
        ahead: tokens of a block.
    """
    recurrent = sum(4 * width * width for _, width in layers)
    others = sum(4 * width * (inputs + 2) for inputs, width in layers)
    return Work(
        streamed=FLOAT * (recurrent + others / ahead),
        operations=2 * (recurrent + others),
        exponentials=float(sum(GATES * width for _, width in layers)),
    )


def cache_work(*, window: int, dim: int, batch: int) -> Work:
    """Count the continuous cache: its window's keys read once a mini-batch, multiplied, one exponential each.

    Args:
        window: W.
        dim: D.
        batch: queries of a mini-batch.
    """
    return Work(streamed=window * dim * FLOAT / batch, operations=2 * window * dim, exponentials=float(window))


def network_work(*, pixels: int, hidden: int, classes: int, k: int, steps: int) -> Work:
    """Count MbPA over a network of one hidden layer in dual form.

    K neighbours are read, as pixels and as what they give the H hidden units; their Gram matrix with the query
    takes ``2 K (K + 1) D``. Every step takes the logits ``2 K H C``, what they send back ``2 K H C``, the output
    layer's change ``2 K H C``, that of the hidden units' inputs ``2 K (K + 1) H``, and ``K C`` exponentials. The query
    has its own copy of the output layer.

    Args:
        pixels: D.
        hidden: H.
        classes: C.
        k: K.
        steps: S.
    """
    return Work(
        streamed=float(FLOAT * ((k + 1) * (pixels + hidden) + classes * hidden)),
        operations=float(2 * k * (k + 1) * pixels + steps * (6 * k * hidden * classes + 2 * k * (k + 1) * hidden)),
        exponentials=float(steps * k * classes),
    )
