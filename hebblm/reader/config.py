"""How a reader predicts and learns, for its constructor, its file and its history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hebblm.adapt.methods import check_methods, unaliased
from hebblm.adapt.renamed import present_name, present_settings
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters, defaults
from hebblm.evaluation.scenario_config import (
    ScenarioConfig,
    as_strings,
    number_of_neighbors,
    whole_number,
)
from hebblm.io.files import Count
from hebblm.runtime.progress import log

Setting = str | float | int | bool | None
METHOD = "best"
"""Method of a reader if neither its caller nor a saved reader names one."""


class ReaderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Values of a reader.

    Args:
        method: name from :data:`hebblm.METHODS`; None if not chosen or not known.
        k: neighbours of each query; None likewise.
        update_every: most tokens between two updates; None likewise.
        settings: hyper-parameters by dotted name.
        model: name of the model; None if not known.
    """

    method: str | None = None
    k: Count | None = None
    update_every: Count | None = None
    settings: dict[str, Setting] = {}
    model: str | None = None

    def check(self, memory: object) -> None:
        """Refuse values that no reader can be opened with, before the saved reader in ``memory`` is
        read.
        """
        if self.method is not None:
            check_methods([*map(unaliased, as_strings("method", [self.method]))])
        Hyperparameters().changed(self.settings)
        kept = sorted(name for name in self.settings if name.startswith("memory."))
        if memory is not None and kept:
            raise UserError(
                f"{kept[0]} is set, but {memory} keeps the value it was saved with; leave it out"
            )

    def over(
        self, saved: ReaderConfig, others: Mapping[str, Any], memory: object
    ) -> tuple[OpenedConfig, Hyperparameters]:
        """Return the values of a reader that is opened with these.

        Args:
            saved: values of the saved reader in ``memory``, used where these have none.
            others: settings by dotted name, used where neither has a value.
            memory: folder of the saved reader, for messages; None without one.

        Returns:
            All values, with the settings that the method reads, and all hyper-parameters.
        """
        method = unaliased(self.method or saved.method or METHOD)
        check_methods([method])
        present = present_settings(saved.settings)
        known = {name: value for name, value in present.items() if name in defaults()}
        if lost := sorted(name for name in saved.settings if present_name(name) not in known):
            log(
                f"{memory} was saved with settings that this version does not have: "
                f"{', '.join(lost)}"
            )
        values = Hyperparameters().changed({**others, **known, **self.settings})
        values.check_set(self.settings)
        values.tell_unread(self.settings, [method])
        if values.base.lr:
            raise UserError(
                f"a reader's base stays as trained, not base.lr={values.base.lr}; use "
                "hebblm.evaluate"
            )
        k = saved.k or ScenarioConfig.k if self.k is None else self.k
        every = self.update_every
        if every is None:
            every = saved.update_every or ScenarioConfig.update_every
        chosen = OpenedConfig(
            method=method,
            k=number_of_neighbors(k),
            update_every=whole_number("update_every", every),
            settings=values.read_by(method),
            model=self.model or saved.model,
        )
        return chosen, values


class OpenedConfig(ReaderConfig, frozen=True, kw_only=True):
    """Values of an opened reader, all given."""

    method: str
    k: int
    update_every: int
