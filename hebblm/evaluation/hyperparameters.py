"""Hyper-parameters of a run: their default values, and changes by dotted name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.gone import gone_setting
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.section import words_of
from hebblm.adapt.settings import SECTIONS, MethodSettings
from hebblm.errors import MOST, UserError
from hebblm.memory import MemoryConfig
from hebblm.models.update import BaseUpdate, DynamicConfig
from hebblm.progress import say
from hebblm.suggest import closest, did_you_mean

_OWN = {"dynamic": DynamicConfig, "base": BaseUpdate, "memory": MemoryConfig}
"""The sections that no method owns."""
_METHODS = {kind.section: kind for kind in SECTIONS}


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Hyper-parameters that can be set by dotted name, as ``hebb.beta=0.5``.

    Args:
        methods: of the methods that read a base's hidden states.
        dynamic: of dynamic evaluation.
        base: how the base learns while it reads.
        memory: how entries are kept and searched.
    """

    methods: MethodSettings = field(default_factory=MethodSettings)
    dynamic: DynamicConfig = field(default_factory=DynamicConfig)
    base: BaseUpdate = field(default_factory=BaseUpdate)
    memory: MemoryConfig = field(default_factory=MemoryConfig)

    def changed(self, values: Mapping[str, Any]) -> Hyperparameters:
        """Return a copy with some values replaced.

        Args:
            values: by dotted name; text is converted to the field's type.

        Raises:
            UserError: a name that is unknown or gone, or a value of the wrong type or out of range.
        """
        if not isinstance(values, Mapping):
            raise UserError(f"{values!r:.60} are no values by dotted name, such as {{'hebb.beta': 0.9}}")
        found: dict[str, dict[str, Any]] = {}  # a section at once, since some values only go together
        for name, value in values.items():
            section, _, key = plain_name(name).partition(".")
            if key not in _types().get(section, {}):
                raise _unknown(name, closest(section, _types()), key)
            found.setdefault(section, {})[key] = _convert(name, value, _types()[section][key])
        new = {section: dataclasses.replace(self._section(section), **held) for section, held in found.items()}
        own = {section: new.pop(section) for section in _OWN if section in new}
        return dataclasses.replace(self, methods=self.methods.replaced(*new.values()), **own)

    def of(self, name: str) -> Any:
        """Return the value of a dotted name."""
        section, _, key = name.partition(".")
        return getattr(self._section(section), key)

    def _section(self, name: str) -> Any:
        return getattr(self, name) if name in _OWN else self.methods[_METHODS[name]]

    def check_set(self, names: Iterable[str]) -> None:
        """Refuse values that were asked for and that MbPA's optimizer does not go by.

        Args:
            names: dotted.

        Raises:
            UserError: naming the first one.
        """
        for name in names:
            if name in ("mbpa.lr", "mbpa.rate") and self.methods[MbpaConfig].optimizer == "newton":
                raise UserError(
                    f"{name} is of gradient descent, and MbPA takes Newton's steps; leave it out, or set "
                    "mbpa.optimizer=sgd beside it"
                )

    def tell_unread(self, names: Iterable[str], methods: Sequence[str]) -> None:
        """Tell of values that were set, by dotted name, and that no method of a run reads."""
        if unread := self.unread(names, methods):
            why = f"none of {', '.join(methods)} reads" if len(methods) > 1 else f"{methods[0]} does not read"
            say(f"set for nothing, since {why} it: {', '.join(unread)}")

    def unread(self, names: Iterable[str], methods: Iterable[str]) -> list[str]:
        """Return those of some dotted names whose values no method of a run reads."""
        records = [METHODS[method] for method in methods]
        read = {kind.section for record in records for kind in record.settings} | {"base", "memory"}
        read |= {"dynamic"} if any(record.moving for record in records) else set()
        return [name for name in map(plain_name, names) if name.partition(".")[0] not in read]

    def read_by(self, method: str) -> dict[str, Any]:
        """Return the values that a method reads, by dotted name."""
        record = METHODS[method]
        sections = [*(kind.section for kind in record.settings), *(["dynamic"] if record.moving else [])]
        return {
            f"{section}.{name}": value
            for section in sections
            for name, value in dataclasses.asdict(self._section(section)).items()
        }

    def document(self) -> dict[str, Any]:
        """Return the values by section, as JSON."""
        own = {name: dataclasses.asdict(getattr(self, name)) for name in _OWN}
        return {"methods": self.methods.document(), **own}


def defaults() -> dict[str, Any]:
    """Return the default value of every dotted name."""
    plain = Hyperparameters()
    names = [f"{section}.{key}" for section, types in _types().items() for key in types]
    return {name: plain.of(name) for name in names}


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


def scalar(value: Any) -> Any:
    """Return what a scalar of NumPy or torch holds, and anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def plain_name(name: str) -> str:
    """Return a dotted name as it is kept: ``mixture+hebb.weight`` is ``mixture_hebb.weight``."""
    return name.replace("+", "_")


@cache
def _types() -> dict[str, dict[str, Any]]:
    """Return the type of every value, by section and name."""
    return {
        section: {f.name: get_type_hints(settings)[f.name] for f in dataclasses.fields(settings)}
        for section, settings in {**_METHODS, **_OWN}.items()
    }


def _unknown(name: str, section: str | None, key: str) -> UserError:
    """Return the error for a dotted name, with what is near it: a value of its section, or of a section like it."""
    if (said := gone_setting(name)) is not None:
        return UserError(said)
    hint = ""
    if section is not None:
        names = {known: f"{section}.{known}" for known in _types()[section]}
        meant = closest(key, names)
        hint = f" known are {', '.join(names.values())};" if meant is None else f" did you mean {names[meant]}?"
    return UserError(f"unknown setting {name!r};{hint} hebblm-eval --settings lists them all")


def _convert(name: str, value: Any, hint: Any) -> Any:
    """Return ``value`` as the type ``hint``; text becomes a number where one is meant."""
    value = scalar(value)
    if type(None) in get_args(hint) and value in ("none", ""):
        value = None
    try:
        found = msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}={value} must be {_wanted(value, hint)}") from error
    if isinstance(found, int | float) and not abs(found) <= MOST:
        raise UserError(f"{name}={value} must be a number of at most {MOST:.0e}")
    return found


def _wanted(value: Any, hint: Any) -> str:
    """Return what a value of the type ``hint`` is, beside one that is none."""
    words = words_of(hint)
    choice = f"one of {', '.join(words)}"
    if get_origin(hint) is Literal:
        return f"{choice};{did_you_mean(str(value), words)} see hebblm-eval --settings"
    return f"a number, or {choice}" if words else f"a value of type {(*get_args(hint), hint)[0].__name__}"
