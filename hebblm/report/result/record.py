"""Records of a JSON file: frozen dataclasses that msgspec reads, with errors that name place, value
and remedy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import msgspec

from hebblm.errors import UserError
from hebblm.report.result.numbers import INFINITY

T = TypeVar("T")
_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "object": "an object",
    "array": "a list",
}

_EXTRA = "extra"  # the optional field of a record that keeps unknown keys


def read(kind: type[T], value: Any, where: str) -> T:
    """Return a record from decoded JSON; unknown keys go to its ``extra``, if it has one."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    given = value
    if isinstance(value, dict) and _EXTRA in names:
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for key, item in value.items():
            keys = known if key in names and key != _EXTRA else extra
            keys[key] = item
        given = {**known, _EXTRA: extra}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`")
    if "required field" in reason:
        lacking = re.sub(r".*`(.*)`", r"'\1'", reason)
        raise UserError(f"{where}{path} lacks {lacking}; the file is incomplete, evaluate again")
    for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        value = value[key or int(index)]
    expected = reason.replace("Expected ", "").replace(">=", "of at least").partition(", got")[0]
    if reason.startswith("Invalid"):
        expected = "one of those that are known"
    expected = re.sub(r"`([^`]*)`", _in_words, expected)
    raise UserError(
        f"{where}{path} must be {expected}, not {value!r:.60}; evaluate again or fix the file"
    )


def _in_words(kinds: re.Match[str]) -> str:
    """Return the names of types, as msgspec writes them, for people."""
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds[1].split(" | "))


def plain(record: Any) -> dict[str, Any]:
    """Return a record as plain data, without values at their defaults; those of ``extra`` come
    last.
    """
    values = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name != _EXTRA and value != field.default:
            values[field.name] = value
    return {**msgspec.to_builtins(values), **getattr(record, _EXTRA, {})}


def encode(value: Any, where: str) -> Any:
    """``value`` as plain JSON data, an infinite number as the string ``"inf"``.

    A zero probability is an infinite loss, which JSON numbers cannot express.
    """
    return _walk(value, where, math.inf, INFINITY)


def decode(value: Any, where: str) -> Any:
    """Undo :func:`encode`: the string ``"inf"`` becomes a float, a nan is refused."""
    return _walk(value, where, INFINITY, math.inf)


def _walk(value: Any, where: str, former: Any, latter: Any) -> Any:
    """Return nested data with one value replaced by another; refuse nan."""
    if isinstance(value, Mapping):
        return {
            str(key): _walk(item, f"{where}.{key}", former, latter) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_walk(item, f"{where}[{at}]", former, latter) for at, item in enumerate(value)]
    if isinstance(value, float) and (math.isnan(value) or value == -math.inf):
        raise UserError(
            f"{where} is {value}, which is not a number a result can have; lower the learning rate"
        )
    return latter if value == former else value
