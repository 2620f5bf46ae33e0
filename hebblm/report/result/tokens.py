"""What a run logged token by token: losses, nearest neighbours, the parts of mixtures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hebblm.errors import UserError, unreadable
from hebblm.io.files import lack, sha256
from hebblm.report.result.methods import BASE, ordered, without_base
from hebblm.report.result.parts import (
    PIECES,
    bootstrap_gains,
    frequency_report,
    occurrences_so_far,
    stream_parts,
    validate_edges,
)
from hebblm.report.result.schema import PIECES_OF_PARTS, StoredResult
from hebblm.runtime.progress import log
from hebblm.runtime.spelling import unknown

FILE_NAME = "tokens.parquet"
NEIGHBORS_FILE = "neighbors.parquet"
COMPONENTS_FILE = "components.parquet"
_PREFIX = "nll_"
_PIECES = "pieces"
_TEXT = "text"
_COLUMNS = {
    "token": "text",
    "train_count": "whole numbers",
    "is_oov": "true or false",
    _PREFIX: "numbers",
}
_OPTIONAL = {_PIECES: "numbers", _TEXT: "text"}  # older files lack them
_POINTS = 400
EOS = "<eos>"
_TOLERANCE = 1e-5  # losses may be stored in single precision


R = TypeVar("R", bound=StoredResult)
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
_COMPONENT_KINDS = {
    "position": "whole numbers",
    "method": "text",
    "component": "text",
    "share": "numbers",
}
_NEIGHBOR_KINDS = {
    "position": "whole numbers",
    "rank": "whole numbers",
    "place": "whole numbers",
    "from_stream": "true or false",
    "label": "text",
    "context": "text",
    "distance": "numbers",
    "closeness": "numbers",
}


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
    # (T,) str, the tokens as they stand in the text, each with the spaces before it; None where
    # that is not known
    written: NDArray[np.object_] | None = None

    @classmethod
    def load(cls, path: Path, result: StoredResult | None = None) -> TokenLosses:
        """Read the file that ``hebblm-eval --log-samples`` wrote."""
        table = read_table(path, _COLUMNS, result)
        nll = {}
        for name in table.column_names:
            if not name.startswith(_PREFIX):
                continue
            method = name.removeprefix(_PREFIX)
            nll[method] = table.column(name).to_numpy().astype(np.float64)
            if np.isnan(nll[method]).any():
                raise UserError(
                    f"{path} holds a nan or an empty loss for {method!r}; evaluate again"
                )
        train_counts = pieces = written = None
        counts = table.column("train_count")
        if not counts.null_count:
            train_counts = counts.to_numpy().astype(np.int64)
        if _PIECES in table.column_names:
            pieces = table.column(_PIECES).to_numpy().astype(np.float64)
            if not np.isfinite(pieces).all():
                raise UserError(
                    f"{path} holds a nan or an infinity among the pieces of words; evaluate again"
                )
        if _TEXT in table.column_names:
            written = table.column(_TEXT).to_numpy()
        return cls(
            words=table.column("token").to_numpy(),
            train_counts=train_counts,
            oov=table.column("is_oov").to_numpy().astype(np.bool_),
            nll=nll,
            pieces=pieces,
            written=written,
        )


def with_edges(result: R, tokens: TokenLosses, edges: Sequence[int]) -> R:
    """Return the result with a new frequency report over other ranges of training count."""
    check_same_run(result, tokens)
    edges = validate_edges(edges)
    counts = tokens.train_counts  # (T,)
    if counts is None:
        raise UserError(
            "this run does not know how often words occurred in training; evaluate with "
            "source=CORPUS"
        )
    parts = stream_parts(counts, occurrences_so_far(tokens.words), tokens.oov, edges)
    losses = {name: tokens.nll[name] for name in result.methods}
    gains = bootstrap_gains(losses, parts, result.bootstrap)
    methods = {}
    for name, item in result.methods.items():
        # a gain by piece does not depend on the ranges
        kept = tuple(gain for gain in item.gains if gain.part == PIECES)
        methods[name] = replace(
            item,
            frequency=tuple(frequency_report(tokens.nll[name], counts, edges)),
            gains=gains.get(name, ()) + kept,
        )
    extra = {key: value for key, value in result.extra.items() if key != PIECES_OF_PARTS}
    if tokens.pieces is not None:
        pieces = tokens.pieces  # (T,)
        extra[PIECES_OF_PARTS] = {
            name: round(float(pieces[mask].sum())) for name, mask in parts.items()
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


def check_same_run(result: StoredResult, tokens: TokenLosses) -> None:
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


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A memory entry that a token retrieved."""

    from_stream: bool  # whether it was read in the stream, or else in the training text
    place: int  # of its label in that text, tokens from 0
    label: str  # the word that followed its state
    distance: float  # squared L2 to the query
    kernel_weight: float  # c_k of MbPA, 1 / (eps + distance), scaled as the run scaled it
    context: str  # the words before the label


@dataclass(frozen=True, slots=True)
class Inspection:
    """A run that was logged token by token: its numbers, losses and neighbours."""

    result: StoredResult
    losses: TokenLosses  # of every token under every method
    # by position in the stream, nearest first; empty where they were not logged
    neighbors: dict[int, tuple[Neighbor, ...]]
    # by method and component its share in the probability of each token, from the first one on; of
    # mixtures alone
    components: dict[str, dict[str, list[float]]]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the folder of a run."""
        result = StoredResult.load(folder)
        losses = TokenLosses.load(folder / FILE_NAME, result)
        check_same_run(result, losses)
        total = losses.words.size
        return cls(
            result,
            losses,
            load_neighbors(folder / NEIGHBORS_FILE, total, result),
            load_components(folder / COMPONENTS_FILE, total, result),
        )

    def methods(self) -> list[str]:
        """Methods that can be compared with the base."""
        others = without_base(ordered(self.result.methods))
        if BASE not in self.result.methods or not others:
            evaluated = ",".join(self.result.methods)
            raise UserError(
                f"the run has {evaluated}; evaluate {BASE} and a method to compare with it"
            )
        return others

    def choose(self, method: str | None) -> str:
        """The method asked for, or the best."""
        others = self.methods()
        if method is None:
            return min(others, key=lambda name: self.result.methods[name].nll)
        if method not in others:
            raise unknown(
                "method",
                method,
                others,
                f"choose from those that were evaluated: {', '.join(others)}",
            )
        return method

    def gain(self, method: str) -> NDArray[np.float64]:
        """By how many nats (T,) a method lies below the base; 0 where both losses are infinite."""
        base = self.losses.nll[BASE]
        other = self.losses.nll[method]
        both = np.isinf(base) & np.isinf(other)
        return np.where(both, 0.0, np.where(both, 0.0, base) - np.where(both, 0.0, other))


def load_neighbors(
    path: Path, total: int, result: StoredResult | None = None
) -> dict[int, tuple[Neighbor, ...]]:
    """Read the file that ``hebblm-eval --log-neighbors`` wrote; without the file there are no
    neighbours.
    """
    if not _logged(path, result):
        return {}
    table = read_table(path, _NEIGHBOR_KINDS, result)
    neighbors: dict[int, list[Neighbor]] = {}
    order = table.sort_by([("position", "ascending"), ("rank", "ascending")])
    for row in order.select([name for name in _NEIGHBOR_KINDS if name != "rank"]).to_pylist():
        position = row.pop("position")
        weight = row.pop("closeness")  # the column's name in the files of every release
        neighbors.setdefault(position, []).append(Neighbor(kernel_weight=weight, **row))
    if neighbors and not 0 <= min(neighbors) <= max(neighbors) < total:
        raise UserError(
            f"{path} has position {max(neighbors)}, but the run has {total} tokens; evaluate again "
            "with log_neighbors"
        )
    return {position: tuple(near) for position, near in neighbors.items()}


def load_components(
    path: Path, total: int, result: StoredResult | None = None
) -> dict[str, dict[str, list[float]]]:
    """Read what parts of methods gave to tokens, as ``hebblm-eval --log-neighbors`` wrote it;
    without it nothing.
    """
    if not _logged(path, result):
        return {}
    table = read_table(path, _COMPONENT_KINDS, result).sort_by("position")
    by_method: dict[str, dict[str, list[float]]] = {}
    for row in table.select(list(_COMPONENT_KINDS)).to_pylist():
        shares = by_method.setdefault(row["method"], {}).setdefault(row["component"], [])
        if row["position"] != len(shares) or row["position"] >= total:
            raise UserError(
                f"{path} has position {row['position']} out of place; evaluate again with "
                "log_neighbors"
            )
        shares.append(row["share"])
    return {method: parts for method, parts in by_method.items() if len(parts) > 1}


def read_table(path: Path, kinds: Mapping[str, str], result: StoredResult | None) -> pa.Table:
    """Read a parquet file."""
    try:
        if not path.is_file():
            raise UserError(f"{path} {lack(path)}; {_REMEDY} to get it")
        if result is not None:
            _verify(path, result)
        with pq.ParquetFile(path) as file:
            _check(path, file.schema_arrow, kinds)
            table = file.read()
            table.validate(full=True)  # offsets, and that text is UTF-8
    except OSError as error:
        if error.errno:
            raise unreadable(path, error) from error
        raise UserError(f"{path} is not a readable parquet file; {_REMEDY}") from error
    except (pa.ArrowException, ValueError, TypeError, MemoryError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not a readable parquet file; {_REMEDY}") from error
    for name in table.column_names:
        if table.column(name).null_count and name not in UNKNOWN:
            raise UserError(f"{path} lacks values in the column {name!r}; {_REMEDY}")
    return table


def recorded(path: Path, result: StoredResult) -> str | None:
    """Return the sha256 that a result has of a file in its folder, None without one."""
    files = result.extra.get(FILES, {})
    if not isinstance(files, Mapping):
        return None
    return files.get(path.name)


def _verify(path: Path, result: StoredResult) -> None:
    """Refuse a file that is not the one that a result was written with."""
    written = recorded(path, result)
    if written is None:
        log(f"{path} is not verified: the result next to it has no hash of it")
    elif sha256(path) != written:
        raise UserError(
            f"{path} is not the file that the result next to it was written with; {_REMEDY}"
        )


def _check(path: Path, schema: pa.Schema, kinds: Mapping[str, str]) -> None:
    expected = dict(kinds)
    for name, kind in _OPTIONAL.items():
        if name in schema.names:
            expected[name] = kind
    for wanted, kind in expected.items():
        names = []
        for name in schema.names:
            if name == wanted or (wanted.endswith("_") and name.startswith(wanted)):
                names.append(name)
        if not names:
            raise UserError(f"{path} lacks the column {wanted!r}; {_REMEDY}")
        for name in names:
            if schema.names.count(name) > 1 or not _KINDS[kind](schema.field(name).type):
                raise UserError(f"{path}: the column {name!r} does not hold {kind}; {_REMEDY}")


def _logged(path: Path, result: StoredResult | None) -> bool:
    """Whether a file is there, or should be by what the result says."""
    if path.exists() or path.is_symlink():
        return True
    return result is not None and recorded(path, result) is not None
