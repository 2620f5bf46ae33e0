"""Hyper-parameters of a run: the paper's, the tuned ones, and changes by dotted name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from hebblm.adapt import MethodSettings
from hebblm.errors import UserError
from hebblm.files import read_json
from hebblm.memory import MemoryConfig
from hebblm.models.update import BaseUpdate
from hebblm.suggest import closest

if TYPE_CHECKING:
    from hebblm.models.dynamic import DynamicConfig

TUNED_SCHEMA = "hebblm-tuned/1"
_OWN = ("dynamic", "base", "memory")  # the sections that no method owns
_PRINTED: dict[str, Any] = {
    "cache.scale": "absolute",
    "knn.gamma": 0.3,  # kNN-LM is none of the paper's; a number here as everywhere in it
    "mixture.scale": "absolute",
    "hebb.scale": "absolute",
    "hebb.closeness": "raw",
}
ABSOLUTE = {"mbpa.rate": "guarded", "mbpa.scale": "absolute", "mbpa.eps": 1e-3}
"""MbPA in the paper's own units; a query that diverges is run again at a stable rate."""
_LITERAL = ("mbpa_absolute", "mbpa_guarded")
PAPER: dict[str, dict[str, Any]] = {
    "ptb": {
        **_PRINTED,
        "cache.theta": 1.0,
        "cache.gamma": 0.1,
        "mixture.theta": 0.4,
        "mixture.gamma": 0.01,
        **ABSOLUTE,
        "mbpa.lr": 0.1,
        "mbpa.steps": 5,
        "hebb.beta": 0.6,
        "hebb.eta": 0.7,
        "mixture_mbpa.weight": 0.05,
        "mixture_hebb.weight": 0.05,
    },
    "wt2": {
        **_PRINTED,
        "cache.window": 3785,
        "cache.theta": 0.662,
        "cache.gamma": 0.1279,
        "mixture.theta": 0.4,
        "mixture.gamma": 0.15,
        **ABSOLUTE,
        "mbpa.lr": 0.1,
        "mbpa.steps": 5,
        "hebb.beta": 0.15,
        "hebb.eta": 0.4,
        "mixture_mbpa.weight": 0.15,
        "mixture_hebb.weight": 0.2,
    },
    "cross": {
        **_PRINTED,
        "cache.theta": 1.0,
        "cache.gamma": 0.1,
        "base.lr": 1e-4,
        "mixture.theta": 0.4,
        "mixture.gamma": 0.3,
        **ABSOLUTE,
        "mbpa.lr": 2.0,
        "mbpa.steps": 1,
        "hebb.beta": 0.5,
        "hebb.eta": 0.3,
        "mixture_mbpa.weight": 0.3,
        "mixture_hebb.weight": 0.3,
    },
}
"""The paper's optima (its Table "lm_parameter") in its own units; the cache's are those published for AWD-LSTM."""


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
        new = {
            name: dataclasses.replace(self._section(name), **held)
            for name, held in by_section(values).items()
        }
        own = {name: new.pop(name) for name in _OWN if name in new}
        return dataclasses.replace(self, methods=dataclasses.replace(self.methods, **new), **own)

    def _section(self, name: str) -> Any:
        """Return the settings of one section."""
        return getattr(self if name in _OWN else self.methods, name)


def _sections() -> dict[str, Callable[[], Any]]:
    """Return, by section, what gives its default values."""
    every = (*dataclasses.fields(MethodSettings), *dataclasses.fields(Hyperparameters))
    return {f.name: f.default_factory for f in every if callable(f.default_factory) and f.name != "methods"}


def defaults() -> dict[str, Any]:
    """Return the default value of every dotted name."""
    return {
        f"{name}.{f.name}": getattr(held, f.name)
        for name, held in ((name, section()) for name, section in _sections().items())
        for f in dataclasses.fields(held)
    }


def known_names() -> list[str]:
    """Return every dotted name."""
    return list(defaults())


def by_section(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return values by section and name, converted to their types.

    Args:
        values: by dotted name, as for :meth:`Hyperparameters.changed`.

    Raises:
        UserError: an unknown name, or a value of the wrong type.
    """
    found: dict[str, dict[str, Any]] = {}  # a section at once, since some values only go together
    sections = _sections()
    for name, value in values.items():
        section, _, key = name.replace("+", "_").partition(".")
        if section not in sections:
            raise _unknown(name, closest(section, sections), key)
        hints = get_type_hints(type(sections[section]()))
        if key not in (f.name for f in dataclasses.fields(sections[section]())):
            raise _unknown(name, section, key)
        found.setdefault(section, {})[key] = _convert(name, value, hints[key])
    return found


def check_values(values: Mapping[str, Any]) -> None:
    """Refuse values that :meth:`Hyperparameters.changed` would refuse, in a moment rather than once torch is loaded.

    Raises:
        UserError: an unknown name, or a value of the wrong type or out of range.
    """
    for section, held in by_section(values).items():
        dataclasses.replace(_sections()[section](), **held)


def _unknown(name: str, section: str | None, key: str) -> UserError:
    """Return the error for a dotted name, with what is near it: a value of its section, or of a section like it."""
    hint = ""
    if section is not None:
        keys = {f.name: f"{section}.{f.name}" for f in dataclasses.fields(_sections()[section]())}
        meant = closest(key, keys)
        hint = f" known are {', '.join(keys.values())};" if meant is None else f" did you mean {keys[meant]}?"
    return UserError(f"unknown setting {name!r};{hint} hebblm-eval --settings lists them all")


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


def paper_values(source: str, target: str) -> dict[str, Any]:
    """Return the paper's optimum for a scenario: PTB's or WikiText-2's within a domain, else the cross-domain one."""
    values = PAPER["cross"] if source != target else PAPER.get(source, PAPER["wt2"])
    steps = {f"{name}.{key}": values[f"mbpa.{key}"] for name in _LITERAL for key in ("lr", "steps")}
    return {**values, **steps}


def tuned_document(path: Path) -> dict[str, Any]:
    """Return what ``hebblm-tune`` wrote: ``values`` by dotted name, and the ``scenario`` they were found in.

    Raises:
        UserError: no such file, or it is something else.
    """
    document = read_json(path)
    if not isinstance(document, dict) or document.get("schema") != TUNED_SCHEMA:
        raise UserError(f"{path} was not written by hebblm-tune; name a file of schema {TUNED_SCHEMA}")
    values = document.get("values")
    if not isinstance(values, dict):
        raise UserError(f"{path} has no values; run hebblm-tune again")
    return document


def read_tuned(path: Path) -> dict[str, Any]:
    """Return the values of :func:`tuned_document`."""
    values: dict[str, Any] = tuned_document(path)["values"]
    return values


def _convert(name: str, value: Any, hint: Any) -> Any:
    """Return ``value`` as the type ``hint``."""
    choices = get_args(hint)
    words = [word for part in choices if get_origin(part) is Literal for word in get_args(part)]
    if words:
        if value in words:
            return value
        hint = next(part for part in choices if get_origin(part) is not Literal)
        try:
            float(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"{name}={value} must be a number, or one of {', '.join(words)}") from error
    if get_origin(hint) is Literal:
        if value not in choices:
            raise UserError(f"{name}={value} must be one of {', '.join(map(str, choices))}")
        return value
    if type(None) in choices:
        if value in (None, "none", "null", ""):
            return None
        hint = next(c for c in choices if c is not type(None))
    try:
        number = hint(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name}={value} must be a value of type {hint.__name__}") from error
    if isinstance(value, bool) or (hint is int and isinstance(value, float) and number != value):
        raise UserError(f"{name}={value} must be a value of type {hint.__name__}")
    if number != number:
        raise UserError(f"{name}={value} must be a number")
    return number
