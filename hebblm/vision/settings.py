"""Settings changed by name: frozen dataclasses, nested ones by dotted names, values as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from hebblm.adapt import checks
from hebblm.errors import UserError
from hebblm.suggest import unknown

S = TypeVar("S")
Scale = Literal["smoke", "small", "paper"]
Anchor = Literal["latest", "separate"]
FisherKind = Literal["labels", "predictions"]
Rate = Literal["relative", "absolute"]
"""Whether a learning rate is in units of 1 / the query's own curvature, or the paper's lambda as it stands."""
TRUTH = {"true": True, "false": False}


def changed(settings: S, values: Mapping[str, str]) -> S:
    """Return a copy of a frozen dataclass with some values replaced.

    Args:
        settings: the dataclass; one of its fields may be a dataclass as well.
        values: text by name, ``section.field`` for a field of a nested one; several values are separated by commas.

    Raises:
        UserError: an unknown name, or a value of the wrong type or out of range.
    """
    known = dict(_names(settings))
    for name in values:
        if name not in known:
            raise unknown("setting", name, known, f"known are {', '.join(known)}")
    new = {name: _convert(name, text, known[name]) for name, text in values.items()}
    replaced: S = _replace(settings, new)
    return replaced


def _names(settings: Any) -> Iterator[tuple[str, Any]]:
    """Yield every name with its type."""
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if dataclasses.is_dataclass(value):
            yield from ((f"{name}.{inner}", kind) for inner, kind in _names(value))
        else:
            yield name, hint


def _replace(settings: Any, new: Mapping[str, Any]) -> Any:
    """Return a copy with values by dotted name."""
    own = {name: value for name, value in new.items() if "." not in name}
    for section in {name.partition(".")[0] for name in new if "." in name}:
        inner = {
            name.partition(".")[2]: value for name, value in new.items() if name.startswith(f"{section}.")
        }
        own[section] = _replace(getattr(settings, section), inner)
    return dataclasses.replace(settings, **own)


def _convert(name: str, text: str, hint: Any) -> Any:
    """Return ``text`` as the type ``hint``."""
    if get_origin(hint) is tuple:
        return tuple(_convert(name, part, get_args(hint)[0]) for part in text.split(","))
    if get_origin(hint) is Literal:
        checks.one_of(name, text, get_args(hint))
        return text
    if hint is bool:
        checks.one_of(name, text, tuple(TRUTH))
        return TRUTH[text]
    try:
        return hint(text)
    except ValueError as error:
        raise UserError(f"{name}={text} must be a value of type {hint.__name__}") from error
