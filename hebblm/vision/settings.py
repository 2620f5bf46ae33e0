"""Settings changed by name: frozen dataclasses, nested ones by dotted names, values as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Self, cast, get_args, get_origin, get_type_hints

import msgspec

from hebblm.adapt import checks
from hebblm.errors import UserError
from hebblm.suggest import unknown

Scale = Literal["smoke", "small", "paper"]
Anchor = Literal["latest", "separate"]
FisherKind = Literal["labels", "predictions"]
Rate = Literal["relative", "absolute"]
"""Whether a learning rate is in units of 1 / the query's own curvature, or the paper's lambda as it stands."""


class Settings:
    """Base class of frozen dataclasses of settings whose values can be changed by name."""

    __slots__ = ()

    def changed(self, values: Mapping[str, str]) -> Self:
        """Return a copy with some values replaced.

        Args:
            values: text by name, ``section.field`` for a field of a field that is a dataclass; several values are
                separated by commas.

        Raises:
            UserError: an unknown name, or a value of the wrong type or out of range.
        """
        known = dict(_names(self))
        found: dict[str, dict[str, Any]] = {"": {}}  # a section at once, since some values only go together
        for name, text in values.items():
            if name not in known:
                raise unknown("setting", name, known, f"known are {', '.join(known)}")
            section, _, key = name.rpartition(".")
            found.setdefault(section, {})[key] = _convert(name, text, known[name])
        own, settings = found.pop(""), cast(Any, self)
        for section, new in found.items():
            own[section] = dataclasses.replace(getattr(self, section), **new)
        return cast(Self, dataclasses.replace(settings, **own))


def grid(name: str, values: tuple[float, ...], low: float, check: Callable[[str, float], None] | None = None) -> None:
    """Refuse no value at all, a value twice, one below ``low``, and one that ``check`` refuses."""
    if not values or len(set(values)) < len(values):
        raise UserError(f"{name} = {values} must have at least one value, each once")
    for value in values:
        checks.at_least(name, value, low)
        if check is not None:
            check(name, value)


def _names(settings: object) -> Iterator[tuple[str, Any]]:
    for name, hint in get_type_hints(type(settings)).items():
        if dataclasses.is_dataclass(hint):
            yield from ((f"{name}.{inner}", kind) for inner, kind in get_type_hints(hint).items())
        else:
            yield name, hint


def _convert(name: str, text: str, hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return tuple(_convert(name, part, get_args(hint)[0]) for part in text.split(","))
    if get_origin(hint) is Literal:
        checks.one_of(name, text, get_args(hint))
        return text
    try:
        return msgspec.convert(text, hint, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}={text} must be a value of type {hint.__name__}") from error
