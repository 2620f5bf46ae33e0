"""Losses token by token (``tokens.parquet``): other frequency ranges, running curves, changed
words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hebblm.errors import UserError, unreadable
from hebblm.io.files import lack, sha256
from hebblm.report.buckets import (
    PIECES,
    frequency_report,
    occurrences_so_far,
    stream_parts,
    validate_edges,
)
from hebblm.report.gains import bootstrap_gains
from hebblm.report.methods import BASE, name_of, ordered
from hebblm.report.result import Result
from hebblm.report.stored import counted_in
from hebblm.report.table import Column, Table
from hebblm.report.units import PIECES_OF_PARTS
from hebblm.runtime.progress import log

FILE_NAME = "tokens.parquet"
_PREFIX = "nll_"
_PIECES, _TEXT = "pieces", "text"
_COLUMNS = {
    "token": "text",
    "train_count": "whole numbers",
    "is_oov": "true or false",
    _PREFIX: "numbers",
}
_OPTIONAL = {_PIECES: "numbers", _TEXT: "text"}  # older files lack them
_POINTS = 400
EOS, BREAK = "<eos>", "⏎ (line break)"
_TOLERANCE = 1e-5  # losses may be stored in single precision


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """The loss of every token of a stream under every method."""

    # (T,) str, as objects: text of a fixed width would be as wide as the longest word, for each of
    # them
    words: NDArray[np.object_]
    # (T,) int64, how often each word occurred in training, None where that is not known
    train_counts: NDArray[np.int64] | None
    oov: NDArray[np.bool_]  # (T,) bool, outside the source vocabulary
    nll: Mapping[str, NDArray[np.float64]]  # by method, (T,) float64 in nats
    # (T,) pieces of each word, None where tokens are no pieces
    pieces: NDArray[np.float64] | None = None
    # (T,) str, the tokens as they stand in the text, each with the blanks before it; None where
    # that is not known
    written: NDArray[np.object_] | None = None

    @classmethod
    def load(cls, path: Path, result: Result | None = None) -> TokenLosses:
        """Read the file that ``hebblm-eval --log-samples`` wrote."""
        table = read_table(path, _COLUMNS, result)
        methods = [
            name.removeprefix(_PREFIX) for name in table.column_names if name.startswith(_PREFIX)
        ]
        nll = {
            method: table.column(_PREFIX + method).to_numpy().astype(np.float64)
            for method in methods
        }
        undefined = [method for method, losses in nll.items() if np.isnan(losses).any()]
        if undefined:
            raise UserError(
                f"{path} holds a nan or an empty loss for {undefined[0]!r}; evaluate again"
            )
        counts = table.column("train_count")
        pieces = (
            table.column(_PIECES).to_numpy().astype(np.float64)
            if _PIECES in table.column_names
            else None
        )
        if pieces is not None and not np.isfinite(pieces).all():
            raise UserError(
                f"{path} holds a nan or an infinity among the pieces of words; evaluate again"
            )
        return cls(
            words=table.column("token").to_numpy(),
            train_counts=None if counts.null_count else counts.to_numpy().astype(np.int64),
            oov=table.column("is_oov").to_numpy().astype(np.bool_),
            nll=nll,
            pieces=pieces,
            written=table.column(_TEXT).to_numpy() if _TEXT in table.column_names else None,
        )


def with_edges(result: Result, tokens: TokenLosses, edges: Sequence[int]) -> Result:
    """Return the result with a new frequency report over other ranges of training count."""
    check_same_run(result, tokens)
    edges, counts = validate_edges(edges), tokens.train_counts
    if counts is None:
        raise UserError(
            "this run does not know how often words occurred in training; evaluate with "
            "source=CORPUS"
        )
    parts = stream_parts(counts, occurrences_so_far(tokens.words), tokens.oov, edges)
    gains = bootstrap_gains(
        {name: tokens.nll[name] for name in result.methods}, parts, result.bootstrap
    )
    methods = {
        name: replace(
            item,
            frequency=tuple(frequency_report(tokens.nll[name], counts, edges)),
            gains=(*gains.get(name, ()), *(gain for gain in item.gains if gain.part == PIECES)),
        )
        for name, item in result.methods.items()
    }
    extra = {key: value for key, value in result.extra.items() if key != PIECES_OF_PARTS}
    if tokens.pieces is not None:
        extra[PIECES_OF_PARTS] = {
            name: round(float(tokens.pieces[mask].sum())) for name, mask in parts.items()
        }
    return replace(result, methods=methods, extra=extra)


def running_curve(
    nll: NDArray[np.floating], points: int = _POINTS
) -> tuple[tuple[int, float], ...]:
    """At most ``points`` evenly spaced pairs (tokens so far, mean loss so far in nats)."""
    if nll.size == 0:
        return ()
    # (P,)
    positions = np.unique(np.linspace(0, nll.size, min(points, nll.size) + 1).astype(np.int64)[1:])
    means = np.cumsum(nll, dtype=np.float64)[positions - 1] / positions  # (P,)
    return tuple(zip(positions.tolist(), means.tolist(), strict=True))


def word_table(result: Result, tokens: TokenLosses, top: int = 15) -> Table | None:
    """Words on which the best method gains and loses most against the unadapted model.

    The gain of a word is summed over its occurrences, in nats. Words with an infinite loss are left
    out.
    """
    others = [method for method in ordered(result.methods) if method != BASE]
    if BASE not in result.methods or not others:
        return None
    best = min(others, key=lambda method: result.methods[method].nll)
    finite = np.isfinite(tokens.nll[BASE]) & np.isfinite(tokens.nll[best])
    # (T,)
    gains = np.where(finite, tokens.nll[BASE], 0.0) - np.where(finite, tokens.nll[best], 0.0)
    words, first, where, times = np.unique(
        tokens.words, return_index=True, return_inverse=True, return_counts=True
    )
    totals = np.bincount(where, weights=gains, minlength=words.size)  # (types,)
    order = np.argsort(-totals, kind="stable")
    gaining = [index for index in order[:top] if totals[index] > 0]
    losing = [index for index in order[::-1][:top] if totals[index] < 0]
    counts = tokens.train_counts
    rows = tuple(
        (
            BREAK if words[index] == EOS else str(words[index]),
            int(times[index]),
            *(
                ()
                if counts is None
                else (int(counts[first[index]]), "yes" if tokens.oov[first[index]] else "no")
            ),
            float(totals[index]),
            float(totals[index] / times[index]),
        )
        for index in [*gaining, *reversed(losing)]
    )
    known = (
        () if counts is None else (Column(f"In {counted_in(result)}", "count"), Column("New word"))
    )
    columns = (
        Column("Word"),
        Column("Occurrences", "count"),
        *known,
        Column("Gain (nats)", "signed", decimals=1),
        Column("Per occurrence", "signed", decimals=2),
    )
    title = f"Words that changed most under {name_of(best)} on {result.scenario.label}"
    return Table(
        "words", title, columns, rows, ("Gain over the base, summed over all occurrences.",)
    )


def check_same_run(result: Result, tokens: TokenLosses) -> None:
    """Refuse losses that cannot belong to the result."""
    remedy = f"{FILE_NAME} and the result must be of one run"
    if tokens.words.size != result.scenario.tokens:
        raise UserError(
            f"{tokens.words.size} tokens, the result has {result.scenario.tokens}; {remedy}"
        )
    for method, item in result.methods.items():
        if method not in tokens.nll:
            raise UserError(f"no losses of {method!r}; {remedy}")
        mean = float(tokens.nll[method].mean())
        if not math.isclose(mean, item.nll, rel_tol=_TOLERANCE):
            raise UserError(
                f"{method!r} averages {mean:.6f} nats, the result says {item.nll:.6f}; {remedy}"
            )


FILES = "files"
"""Key of a result: sha256 by name of each table in its folder."""

UNKNOWN = ("train_count",)
"""Columns that are empty if the training text is not known."""

_REMEDY = "evaluate again with log_samples=True"
_KINDS: dict[str, Callable[[Any], bool]] = {
    "whole numbers": pa.types.is_integer,
    "numbers": pa.types.is_floating,
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    "true or false": pa.types.is_boolean,
}


def read_table(path: Path, kinds: Mapping[str, str], result: Result | None) -> pa.Table:
    """Read a parquet file."""
    try:
        if not path.is_file():
            raise UserError(f"{path} {lack(path)}; {_REMEDY} to get it")
        if result is not None:
            written = recorded(path, result)
            if written is None:
                log(f"{path} is not verified: the result next to it has no hash of it")
            elif sha256(path) != written:
                raise UserError(
                    f"{path} is not the file that the result next to it was written with; {_REMEDY}"
                )
        with pq.ParquetFile(path) as file:
            there = {
                name: kind for name, kind in _OPTIONAL.items() if name in file.schema_arrow.names
            }
            _check(path, file.schema_arrow, {**kinds, **there})
            table = file.read()
            table.validate(full=True)  # offsets, and that text is UTF-8
    except OSError as error:
        raise (
            unreadable(path, error)
            if error.errno
            else UserError(f"{path} is not a readable parquet file; {_REMEDY}")
        ) from error
    except (pa.ArrowException, ValueError, TypeError, MemoryError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not a readable parquet file; {_REMEDY}") from error
    for name in table.column_names:
        if table.column(name).null_count and name not in UNKNOWN:
            raise UserError(f"{path} lacks values in the column {name!r}; {_REMEDY}")
    return table


def recorded(path: Path, result: Result) -> str | None:
    """Return the sha256 that a result has of a file in its folder, None without one."""
    files = result.extra.get(FILES, {})
    return files.get(path.name) if isinstance(files, Mapping) else None


def _check(path: Path, schema: pa.Schema, kinds: Mapping[str, str]) -> None:
    for wanted, kind in kinds.items():
        names = [
            name
            for name in schema.names
            if name == wanted or (wanted[-1] == "_" and name.startswith(wanted))
        ]
        if not names:
            raise UserError(f"{path} lacks the column {wanted!r}; {_REMEDY}")
        for name in names:
            if schema.names.count(name) > 1 or not _KINDS[kind](schema.field(name).type):
                raise UserError(f"{path}: the column {name!r} does not hold {kind}; {_REMEDY}")
