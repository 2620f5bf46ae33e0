"""Hyper-parameters of a run: their default values, and changes by dotted name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hebblm.adapt.methods import METHODS, SECTIONS
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.renamed import RENAMED, present_name
from hebblm.adapt.settings import MethodSettings, changed
from hebblm.errors import UserError
from hebblm.memory import MemoryConfig
from hebblm.models.update import BaseUpdate, DynamicConfig
from hebblm.runtime.progress import log, log_once
from hebblm.runtime.spelling import closest

_OWN: dict[str, type] = {"dynamic": DynamicConfig, "base": BaseUpdate, "memory": MemoryConfig}
"""The sections that belong to no method."""


def _names() -> dict[str, list[str]]:
    """Return the names of the values of every section, including those of registered methods."""
    names = {}
    for section, kind in (SECTIONS | _OWN).items():
        names[section] = [field.name for field in dataclasses.fields(kind)]
    return names


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Hyper-parameters that can be set by dotted name, such as ``hebb.beta=0.5``."""

    # of methods that read a base's hidden states
    methods: MethodSettings = field(default_factory=MethodSettings)
    dynamic: DynamicConfig = field(default_factory=DynamicConfig)
    base: BaseUpdate = field(default_factory=BaseUpdate)  # how the base learns while it reads
    memory: MemoryConfig = field(default_factory=MemoryConfig)

    def changed(self, values: Mapping[str, Any]) -> Hyperparameters:
        """Return a copy with some values, by dotted name, replaced; text is converted to the type
        of its field.
        """
        if not isinstance(values, Mapping):
            raise UserError(
                f"settings = {values!r:.60} is not a dict; write for example "
                f"settings={{'hebb.beta': 0.9}}"
            )
        known = _names()
        # a section at once, since some values only work together
        changes: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if name in RENAMED:
                log_once(f"{name} is now {RENAMED[name]}; the old name goes with the next release")
            section, _, key = present_name(name).partition(".")
            if key not in known.get(section, ()):
                raise _unknown(name, closest(section, known), key)
            changes.setdefault(section, {})[key] = value
        new = {name: changed(name, self._section(name), values) for name, values in changes.items()}
        top_level = {name: new.pop(name) for name in _OWN if name in new}
        return dataclasses.replace(self, methods=self.methods.replaced(*new.values()), **top_level)

    def of(self, name: str) -> Any:
        """Return the value of a dotted name."""
        section, _, key = name.partition(".")
        return getattr(self._section(section), key)

    def _section(self, name: str) -> Any:
        if name in _OWN:
            return getattr(self, name)
        return self.methods[SECTIONS[name]]

    def check_set(self, names: Iterable[str]) -> None:
        """Refuse values, set by dotted name, that MbPA's optimizer does not use."""
        for name in map(present_name, names):
            if (
                name in ("mbpa.lr", "mbpa.lr_units")
                and self.methods[MbpaConfig].optimizer == "newton"
            ):
                raise UserError(
                    f"{name} is for gradient descent, but MbPA takes Newton's steps; leave it out, "
                    "or set "
                    "mbpa.optimizer=sgd as well"
                )

    def tell_unread(self, names: Iterable[str], methods: Sequence[str]) -> None:
        """Print which values, set by dotted name, no method of a run reads."""
        if unread := self.unread(names, methods):
            if len(methods) > 1:
                why = f"none of {', '.join(methods)} reads"
            else:
                why = f"{methods[0]} does not read"
            log(f"no effect, because {why} it: {', '.join(unread)}")

    def unread(self, names: Iterable[str], methods: Iterable[str]) -> list[str]:
        """Return the dotted names whose values no method of a run reads."""
        read = {"base", "memory"}
        for method in methods:
            read.update(_sections_of(method))
        return [name for name in map(present_name, names) if name.partition(".")[0] not in read]

    def read_by(self, method: str) -> dict[str, Any]:
        """Return the values that a method reads, by dotted name."""
        known = _names()
        values = {}
        for section in _sections_of(method):
            for key in known[section]:
                values[f"{section}.{key}"] = self.of(f"{section}.{key}")
        return values

    def document(self) -> dict[str, Any]:
        """Return the values by section, as JSON."""
        methods = {name: dataclasses.asdict(self._section(name)) for name in SECTIONS}
        rest = {name: dataclasses.asdict(self._section(name)) for name in _OWN}
        return {"methods": methods, **rest}


def _sections_of(method: str) -> list[str]:
    """Return the sections whose values a method reads."""
    record = METHODS[method]
    sections = [kind.section for kind in record.settings]
    if record.uses_dynamic_base:
        sections.append("dynamic")
    return sections


def defaults() -> dict[str, Any]:
    """Return the default value of every dotted name."""
    plain = Hyperparameters()
    values = {}
    for section, keys in _names().items():
        for key in keys:
            values[f"{section}.{key}"] = plain.of(f"{section}.{key}")
    return values


def parse_settings(items: list[str]) -> dict[str, str]:
    """Turn ``["hebb.beta=0.5", ...]`` into a mapping."""
    pairs = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise UserError(f"setting {item!r} has no value; write name=value, e.g. hebb.beta=0.5")
        pairs[name] = value
    return pairs


def _unknown(name: str, section: str | None, key: str) -> UserError:
    """Return the error for a dotted name, with a near one: a value of its section, or of a similar
    section.
    """
    hint = ""
    if section is not None:
        names = {known: f"{section}.{known}" for known in _names()[section]}
        meant = closest(key, names)
        if meant is None:
            hint = f" known are {', '.join(names.values())};"
        else:
            hint = f" did you mean {names[meant]}?"
    return UserError(f"unknown setting {name!r};{hint} hebblm-eval --settings lists them all")
