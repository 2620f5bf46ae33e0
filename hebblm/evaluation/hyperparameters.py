"""Hyper-parameters of a run: their default values, and changes by dotted name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from hebblm.adapt import MethodSettings
from hebblm.errors import UserError
from hebblm.memory import MemoryConfig
from hebblm.models.update import BaseUpdate
from hebblm.suggest import closest

if TYPE_CHECKING:
    from hebblm.models.dynamic import DynamicConfig

_OWN = ("dynamic", "base", "memory")  # the sections that no method owns


def _default_dynamic() -> DynamicConfig:
    """Return the defaults of dynamic evaluation, which stand beside its model: importing them loads torch."""
    from hebblm.models.dynamic import DynamicConfig

    return DynamicConfig()


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Everything that can be set by dotted name, as ``hebb.beta=0.5``.

    Args:
        methods: of the methods that read a base's hidden states.
        dynamic: of dynamic evaluation.
        base: how the base learns while it reads.
        memory: how entries are kept and searched.
    """

    methods: MethodSettings = field(default_factory=MethodSettings)
    dynamic: DynamicConfig = field(default_factory=_default_dynamic)
    base: BaseUpdate = field(default_factory=BaseUpdate)
    memory: MemoryConfig = field(default_factory=MemoryConfig)

    def changed(self, values: Mapping[str, Any]) -> Hyperparameters:
        """Return a copy with some values replaced.

        Args:
            values: by dotted name; text is converted to the field's type.

        Raises:
            UserError: an unknown name, or a value of the wrong type or out of range.
        """
        new = _replaced(values, self._section)
        own = {name: new.pop(name) for name in _OWN if name in new}
        return dataclasses.replace(self, methods=dataclasses.replace(self.methods, **new), **own)

    def of(self, name: str) -> Any:
        """Return the value of a dotted name."""
        section, _, key = name.partition(".")
        return getattr(self._section(section), key)

    def _section(self, name: str) -> Any:
        """Return the settings of one section."""
        return getattr(self if name in _OWN else self.methods, name)


def defaults() -> dict[str, Any]:
    """Return the default value of every dotted name."""
    return {
        f"{section}.{name}": getattr(default(), name)
        for section, default in _sections().items()
        for name in _types(section)
    }


def check_values(values: Mapping[str, Any]) -> None:
    """Refuse values that :meth:`Hyperparameters.changed` would refuse, in a moment rather than once torch is loaded.

    Raises:
        UserError: an unknown name, or a value of the wrong type or out of range.
    """
    _replaced(values, lambda section: _sections()[section]())


def parse_settings(items: list[str]) -> dict[str, str]:
    """Turn ``["hebb.beta=0.5", ...]`` into a mapping.

    Raises:
        UserError: an item without ``=``.
    """
    pairs = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise UserError(f"setting {item!r} has no value; write name=value, e.g. hebb.beta=0.5")
        pairs[name] = value
    return pairs


def plain_name(name: str) -> str:
    """Return a dotted name as it is kept: ``mixture+hebb.weight`` is ``mixture_hebb.weight``."""
    return name.replace("+", "_")


def _sections() -> dict[str, Callable[[], Any]]:
    """Return, by section, what gives its default values."""
    every = (*dataclasses.fields(MethodSettings), *dataclasses.fields(Hyperparameters))
    return {f.name: f.default_factory for f in every if callable(f.default_factory) and f.name != "methods"}


@cache
def _types(section: str) -> dict[str, Any]:
    """Return the type of every value of a section."""
    settings = type(_sections()[section]())
    hints = get_type_hints(settings)
    return {f.name: hints[f.name] for f in dataclasses.fields(settings)}


def _replaced(values: Mapping[str, Any], current: Callable[[str], Any]) -> dict[str, Any]:
    """Return the sections that some values belong to, with these in place of those of ``current``.

    Raises:
        UserError: an unknown name, or a value of the wrong type or out of range.
    """
    found: dict[str, dict[str, Any]] = {}  # a section at once, since some values only go together
    for name, value in values.items():
        section, _, key = plain_name(name).partition(".")
        if section not in _sections():
            raise _unknown(name, closest(section, _sections()), key)
        if key not in _types(section):
            raise _unknown(name, section, key)
        found.setdefault(section, {})[key] = _convert(name, value, _types(section)[key])
    return {section: dataclasses.replace(current(section), **held) for section, held in found.items()}


def _unknown(name: str, section: str | None, key: str) -> UserError:
    """Return the error for a dotted name, with what is near it: a value of its section, or of a section like it."""
    hint = ""
    if section is not None:
        meant = closest(key, _types(section))
        names = ", ".join(f"{section}.{known}" for known in _types(section))
        hint = f" known are {names};" if meant is None else f" did you mean {section}.{meant}?"
    return UserError(f"unknown setting {name!r};{hint} hebblm-eval --settings lists them all")


def _convert(name: str, value: Any, hint: Any) -> Any:
    """Return ``value`` as the type ``hint``; text becomes a number where one is meant.

    Raises:
        UserError: a value of another type, or none of a choice.
    """
    parts = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    kinds = [part for part in parts if get_origin(part) is not Literal and part is not type(None)]
    if value in words:
        return value
    if type(None) in parts and value in (None, "none", "null", ""):
        return None
    choice = f"one of {', '.join(map(str, words))}"
    if not kinds:
        raise UserError(f"{name}={value} must be {choice}")
    try:
        found = msgspec.convert(value, kinds[0], strict=False)
    except msgspec.ValidationError as error:
        wanted = f"a number, or {choice}" if words else f"a value of type {kinds[0].__name__}"
        raise UserError(f"{name}={value} must be {wanted}") from error
    if found != found:
        raise UserError(f"{name}={value} must be a number")
    return found
