"""Arguments of ``evaluate`` and ``tune``, checked before anything is opened, and the scenario that
they name.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os.path import isfile
from pathlib import Path
from typing import Any

from hebblm.adapt.methods import METHODS
from hebblm.api.language_model import LanguageModel
from hebblm.errors import UserError
from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.opening import open_scenario
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.io.files import check_writable
from hebblm.io.provenance import provenance
from hebblm.models.base import TrainedModel, device_of
from hebblm.models.device import pick_device
from hebblm.runtime.progress import log
from hebblm.runtime.ranks import leads
from hebblm.runtime.spelling import unknown
from hebblm.text.corpora import load_manifest
from hebblm.text.records import kept_texts
from hebblm.text.subwords import Subwords

Model = LanguageModel | str | Path | None
Target = str | Path | Sequence[str] | None
MAX_NAME_LENGTH = 4096  # characters of a path


@dataclass(frozen=True, slots=True)
class Request:
    """Arguments of a call, checked before anything is opened."""

    config: ScenarioConfig
    settings: Hyperparameters
    # Where borrowed hyper-parameters come from, and the command that tunes your own.
    note: str
    folder: Path | None  # of the output
    # A model of ``transformers`` that is open already, with its pieces.
    given: tuple[TrainedModel, Subwords] | None

    @classmethod
    def of(
        cls,
        model: Model,
        target: Target,
        hyperparameters: str = "default",
        values: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        output_path: str | Path | None = None,
        *,
        asked: type | None = None,
        **options: Any,
    ) -> Request:
        """Check names, values and folder; the arguments are those of :func:`evaluate`.

        ``asked`` is a dataclass whose fields may be among the options as well.
        """
        named = {**_named_text(target), **_named_model(model)}
        of_scenario = [field.name for field in fields(ScenarioConfig)]
        known = of_scenario
        if asked is not None:
            known = [*of_scenario, *(field.name for field in fields(asked))]
        for name in options:
            if name not in known:
                raise unknown("option", name, known, f"choose from {', '.join(known)}")
            if name in of_scenario:
                named[name] = options[name]
        plain = ScenarioConfig(**named)
        config = plain.completed()
        config.check_names()
        chosen, lender = resolve_settings(config, hyperparameters, values or {}, settings or {})
        chosen.check_set(settings or {})
        folder = None if output_path is None else Path(output_path)
        if folder is not None and leads():
            check_writable(folder)
        note = ""
        if lender:
            note = f"hyper-parameters: {lender}{_how_to_tune(plain)}"
        given: tuple[TrainedModel, Subwords] | None = None
        if isinstance(model, LanguageModel) and model.pieces is not None:
            given = model.model, model.pieces
        request = cls(config, chosen, note, folder, given)
        if chosen.base.lr:
            request.check_one_stream(
                f"base.lr={chosen.base.lr} lets the base follow a single stream"
            )
        return request

    def check_one_stream(self, why: str) -> None:
        if self.config.streams > 1:
            raise UserError(
                f"streams = {self.config.streams} are not possible here: {why}; leave `streams` out"
            )

    def check_keys(self, methods: Sequence[str]) -> None:
        """Refuse methods that adapt the head if memories keep the states of another layer."""
        if self.given is None:
            other_layer = self.config.key != ScenarioConfig.key
        else:
            other_layer = self.given[0].keyed
        if other_layer:
            for name in methods:
                METHODS[name].check_keys(self.settings.methods)

    def open(self, function: str, command: str | None) -> tuple[Scenario, dict[str, Any]]:
        """Return the opened scenario and the record of provenance."""
        config = self.config
        device = pick_device(config.device) if self.given is None else device_of(self.given[0])
        source, target = config.corpora()
        name = Path(config.model or config.checkpoint or source or "").name
        call = f"hebblm.{function}({name!r}, {target!r})"
        record = provenance(command or call, device=str(device), seed=config.seed)
        scenario = open_scenario(config, device, record, self.given)
        if self.note:
            log(self.note)
        return scenario, record

    def check_ranks(self, processes: int) -> None:
        """Refuse options that do not work with several processes."""
        config, memory = self.config, self.settings.memory
        if processes == 1:
            return
        if processes > config.streams:
            raise UserError(
                f"{processes} processes are more than streams = {config.streams}; use "
                f"streams={processes} or more"
            )
        if config.memory_scope == "shared" and memory.capacity is not None:
            raise UserError(
                f"memory.capacity={memory.capacity} is not divided over {processes} processes; "
                "leave it unset, or use "
                "memory_scope=stream or one process"
            )


def _named_text(target: Target) -> dict[str, Any]:
    """Return the field of :class:`ScenarioConfig` that names a text."""
    if target is None:
        return {"target": None}
    if not isinstance(target, str | Path):
        target = kept_texts(target)
    if isinstance(target, str) and ("\n" in target or len(target) > MAX_NAME_LENGTH):
        raise UserError(
            f"target = {target!r:.60} is a text, not the name of one; give it in a list: [text]"
        )
    if isinstance(target, Path) or (target not in load_manifest() and isfile(target)):
        return {"text": Path(target)}
    return {"target": target}


def _named_model(model: Model) -> dict[str, Any]:
    """Return the fields of :class:`ScenarioConfig` that name a model."""
    if model is None:
        return {}
    if isinstance(model, str | Path):
        return {"model": str(model)}
    if not isinstance(model, LanguageModel):
        raise UserError(
            f"a {type(model).__name__} is not a model; name one or its folder, or give what "
            "hebblm.load((model, tokenizer)) returns"
        )
    if model.pieces is not None:
        return {"model": model.name}
    return {"checkpoint": Path(model.name), "device": device_of(model.model).type}


def _how_to_tune(config: ScenarioConfig) -> str:
    """Return a clause with the command that tunes a model's own values; empty for standard input,
    which is read once.
    """
    if config.completed().corpora()[1] == "text:-":
        return ""
    # An open vocabulary is not tuned.
    union = replace(config, vocabulary="union", unk_share=ScenarioConfig.unk_share)
    command = shlex.join(["hebblm-tune", *union.arguments()])
    return f"; to find this model's own: {command}"
