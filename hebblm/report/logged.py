"""The tables beside a result, token by token: compared with the hash that the result has of them, and typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hebblm.errors import UserError, unreadable
from hebblm.files import lack, sha256
from hebblm.progress import say
from hebblm.report.result import Result

FILES = "files"
"""Key of a result: sha256 by name of each table beside it."""

UNKNOWN = ("train_count",)
"""Columns that are empty where the training text is not known."""

_REMEDY = "evaluate again with --log-samples"
_KINDS: dict[str, Callable[[Any], bool]] = {
    "whole numbers": pa.types.is_integer,
    "numbers": pa.types.is_floating,
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    "true or false": pa.types.is_boolean,
}


def read_table(path: Path, kinds: Mapping[str, str], result: Result | None) -> pa.Table:
    """Read a parquet file.

    Args:
        path: the file.
        kinds: by column, ``whole numbers``, ``numbers``, ``text`` or ``true or false``; a name that ends in ``_``
            stands for the columns that begin so, of which there has to be one.
        result: what was written with it; None where there is none.

    Raises:
        UserError: missing, unreadable, not the file of the result, or a column is missing or of another kind.
    """
    try:
        if not path.is_file():
            raise UserError(f"{path} {lack(path)}; {_REMEDY} to get it")
        if result is not None:
            _compare(path, result)
        with pq.ParquetFile(path) as file:
            _check(path, file.schema_arrow, kinds)
            table = file.read()
            table.validate(full=True)  # offsets, and that text is UTF-8
    except OSError as error:
        raise (
            unreadable(path, error) if error.errno else UserError(f"{path} is not a readable parquet file; {_REMEDY}")
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
    """Return the sha256 that a result has of a file beside it, None where it has none."""
    files = result.extra.get(FILES, {})
    return files.get(path.name) if isinstance(files, Mapping) else None


def _compare(path: Path, result: Result) -> None:
    """Refuse a file that is not the one of the result, and say so where that cannot be told."""
    written = recorded(path, result)
    if written is None:
        say(f"{path} is not verified: the result beside it has no hash of it")
    elif sha256(path) != written:
        raise UserError(f"{path} is not the file that the result beside it was written with; {_REMEDY}")


def _check(path: Path, schema: pa.Schema, kinds: Mapping[str, str]) -> None:
    """Refuse missing columns and columns of another kind."""
    for wanted, kind in kinds.items():
        names = [name for name in schema.names if name == wanted or (wanted[-1] == "_" and name.startswith(wanted))]
        if not names:
            raise UserError(f"{path} lacks the column {wanted!r}; {_REMEDY}")
        for name in names:
            if schema.names.count(name) > 1 or not _KINDS[kind](schema.field(name).type):
                raise UserError(f"{path}: the column {name!r} does not hold {kind}; {_REMEDY}")
