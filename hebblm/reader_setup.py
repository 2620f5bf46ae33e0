"""How a reader is opened: what its caller asks for, then what a saved reader had, then the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hebblm.adapt.former import present_settings
from hebblm.adapt.methods import check_methods, unaliased
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, defaults, plain_name
from hebblm.evaluation.scenario_config import ScenarioConfig, number_of_neighbors, several, whole
from hebblm.memory.persistence import ReadText
from hebblm.progress import say

METHOD = "mixture+hebb"
"""Method of a reader where neither its caller nor a saved reader names one."""


@dataclass(frozen=True, slots=True)
class ReaderSetup:
    """How a reader was opened, and what it read; nothing where that is not known.

    Args:
        method: by name.
        k: neighbours a query.
        update_every: most tokens between two updates.
        settings: hyper-parameters that the method reads, by dotted name.
        model: its name.
        texts: those that it learned from.
    """

    method: str | None = None
    k: int | None = None
    update_every: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    texts: tuple[ReadText, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """Choices for a reader: method, neighbours, update interval and hyper-parameters."""

    method: str
    k: int
    update_every: int
    values: Hyperparameters


def check_asked(method: str | None, settings: Mapping[str, Any], memory: object) -> None:
    """Refuse what no reader can be opened with, before a saved one is looked at.

    Args:
        method: None where none is named.
        settings: hyper-parameters by dotted name.
        memory: folder of a saved memory, None without one.

    Raises:
        UserError: an unknown method or setting, or settings of a memory beside a saved one.
    """
    if method is not None:
        check_methods([*map(unaliased, several("method", [method]))])
    Hyperparameters().changed(settings)
    kept = sorted(name for name in settings if name.startswith("memory."))
    if memory is not None and kept:
        raise UserError(f"{kept[0]} is set beside {memory}, which keeps what it was saved with; leave it out")


def choose(
    method: str | None,
    k: int | None,
    update_every: int | None,
    settings: Mapping[str, Any],
    others: Mapping[str, Any],
    saved: ReaderSetup,
    memory: object,
) -> Chosen:
    """Return what a reader is opened with.

    Args:
        method: None where none is named; so are the next two.
        k: neighbours a query.
        update_every: most tokens between two updates.
        settings: hyper-parameters that are asked for, by dotted name.
        others: defaults of the model, which hold where neither ``settings`` nor a saved reader has a value.
        saved: how the saved reader was opened.
        memory: its folder, for people.

    Raises:
        UserError: a value out of range, or a base that would have to learn for all methods.
    """
    method = unaliased(method or saved.method or METHOD)
    check_methods([method])
    present = present_settings(saved.settings)
    known = {name: value for name, value in present.items() if name in defaults()}
    if lost := sorted(name for name in saved.settings if plain_name(name) not in known):
        say(f"{memory} was saved with settings that this version does not have: {', '.join(lost)}")
    values = Hyperparameters().changed({**others, **known, **settings})
    values.check_set(settings)
    values.tell_unread(settings, [method])
    if values.base.lr:
        raise UserError(f"a reader's base stays as trained, not base.lr={values.base.lr}; use hebblm.evaluate")
    k = saved.k or ScenarioConfig.k if k is None else k
    every = saved.update_every or ScenarioConfig.update_every if update_every is None else update_every
    return Chosen(method, number_of_neighbors(k), whole("update_every", every), values)
