"""The front door's comparison and tuning, many methods on one text; mistakes are told before torch is loaded."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import wraps
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hebblm.adapt.methods import DEFAULT_METHODS, DYNAMIC, METHODS, TUNABLE, check_methods, unaliased, with_parts
from hebblm.errors import UserError
from hebblm.evaluation.defaults import resolve_settings
from hebblm.evaluation.hyperparameters import Hyperparameters, plain_name
from hebblm.evaluation.scenario_config import ScenarioConfig, several, whole
from hebblm.files import check_writable, write_json
from hebblm.progress import say
from hebblm.provenance import provenance
from hebblm.ranks import current, leads
from hebblm.report.parts import DEFAULT_EDGES, validate_edges
from hebblm.suggest import unknown
from hebblm.text.manifest import load_manifest

if TYPE_CHECKING:  # they load torch
    from hebblm.evaluation.scenario import Scenario
    from hebblm.language_model import LanguageModel
    from hebblm.models.base import TrainedModel
    from hebblm.report.readings import Readings
    from hebblm.report.result import Result
    from hebblm.text.subwords import Subwords
    from hebblm.tuning.search import Search

    Model = LanguageModel | str | Path | None
    Target = str | Path | None

FEW_TOKENS = 5000
"""Below this, the best of some hundred points is often the luckiest one, and worse than the default on other text."""

P = ParamSpec("P")
T = TypeVar("T")
_OPTION = re.compile(r"(?<![^\s(])(?<!hebblm-eval )(?<!hebblm-preprocess )--([a-z-]+)")


def _worded(function: Callable[P, T]) -> Callable[P, T]:
    """Let errors name arguments, ``max_tokens`` for ``--max-tokens``, where no command stands behind a call."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            if kwargs.get("command") is None:
                error.args = (_OPTION.sub(lambda found: found[1].replace("-", "_"), str(error)),)
            raise

    return call


@_worded
def evaluate(
    model: Model = None,
    target: Target = None,
    methods: str | Sequence[str] = DEFAULT_METHODS,
    *,
    hyperparameters: str = "default",
    values: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    frequency_edges: Sequence[int] = DEFAULT_EDGES,
    forgetting: int | None = None,
    output_path: str | Path | None = None,
    log_samples: bool = False,
    log_neighbors: int = 0,
    command: str | None = None,
    **options: Any,
) -> Result:
    """Read a text by several methods side by side: what ``hebblm-eval --checkpoint MODEL --target TEXT`` does.

    Args:
        model: a language model, or the name or folder of one; None where ``options`` name a scenario.
        target: a corpus (ptb, wt2, pydoc, numpy, text:PATH, hf:ID) or the path of a text.
        methods: in the order of the tables.
        hyperparameters: default, tuned, paper, or a file of hebblm-tune.
        values: hyper-parameters by dotted name, found for this scenario, over those.
        settings: single hyper-parameters by dotted name, over both.
        frequency_edges: bounds of the frequency buckets.
        forgetting: tokens of the source's own text that are scored before and after, None for none.
        output_path: folder for result and report.
        log_samples: also write tokens.parquet there, one row a token.
        log_neighbors: also write neighbors.parquet, what the first so many tokens retrieved.
        command: as it can be typed again, for the result's provenance.
        options: fields of :class:`hebblm.evaluation.scenario_config.ScenarioConfig`, e.g. ``max_tokens=1000``.

    Returns:
        The result, with ``.table()``, ``.to_pandas()`` and ``.save(folder)``.

    Raises:
        UserError: an unknown name or value, or a corpus that cannot be had.
    """
    methods = [unaliased(name) for name in several("methods", methods)]
    check_methods(methods)
    edges = validate_edges(frequency_edges)
    request = _Request.of(model, target, hyperparameters, values, settings, output_path, **options)
    request.check_keys(methods)
    if log_samples and output_path is None:
        raise UserError("--log-samples needs --output-path DIR to write to")
    log_neighbors = whole("log_neighbors", log_neighbors, 0)
    if log_neighbors and not log_samples:
        raise UserError(f"--log-neighbors {log_neighbors} needs --log-samples beside it")
    source, read = request.config.corpora()
    if forgetting is not None or log_neighbors:
        option = "--forgetting" if log_neighbors == 0 else "--log-neighbors"
        _one_stream(request.config, f"{option} follows a single stream")
    forgetting = None if forgetting is None else whole("forgetting", forgetting)
    if forgetting is not None and source == read:
        raise UserError(f"--forgetting compares two domains, and {read} is the only one; use --cross-domain A-to-B")
    ranks = current()
    _check_ranks(request, ranks.size)
    from hebblm.report.result import FILE_NAME

    if request.folder is not None and (request.folder / FILE_NAME).is_file():
        say(f"{request.folder} holds a finished result; it is replaced when this run ends")
    elif request.folder is not None and (own := request.folder / "report.md").exists():
        raise UserError(f"{own} is of no result there, and would be replaced; choose another folder")
    scenario, record = request.open("evaluate", command)
    if methods == [*DEFAULT_METHODS] and not _has_statistics(scenario, request.settings):
        methods.remove(DYNAMIC)
    from hebblm.evaluation.run import run_scenario
    from hebblm.evaluation.saved import going_on
    from hebblm.report import Result

    beside = {"methods": methods, "log_neighbors": log_neighbors, "forgetting": forgetting}
    with going_on(scenario, request.settings, record, beside):
        found = run_scenario(
            scenario,
            methods,
            request.settings,
            record,
            edges,
            log_neighbors=log_neighbors,
            forgetting=forgetting,
            ranks=ranks,
        )
        if found is not None and request.folder is not None:
            from hebblm.report import write_report

            found.save(request.folder, log_samples=log_samples)
            write_report(found.result, request.folder)
        if ranks.size > 1:  # what is saved is kept until the first one has ended
            return Result.from_json(ranks.told(None if found is None else found.result.to_json())[0])
    assert found is not None
    return found.result


@_worded
def compare_readings(
    model: Model = None,
    target: Target = None,
    methods: str | Sequence[str] = DEFAULT_METHODS,
    *,
    output_path: str | Path | None = None,
    command: str | None = None,
    **options: Any,
) -> Readings:
    """Compare what the paper leaves open, one reading at a time, by those methods that retrieve.

    This is what ``hebblm-eval --readings`` does. The arguments are those of :func:`evaluate`, what concerns only its
    files apart; ``output_path`` is the folder for readings.json.

    Raises:
        UserError: an unknown name or value, or no method that retrieves.
    """
    methods = [unaliased(name) for name in several("methods", methods)]
    check_methods(methods)
    request = _Request.of(model, target, output_path=output_path, **options)
    request.check_keys(methods)
    _one_stream(request.config, "readings are compared on a single stream")
    scenario, record = request.open("front.compare_readings", command)
    from hebblm.evaluation.saved import going_on
    from hebblm.report.readings import FILE_NAME
    from hebblm.tuning import readings

    with going_on(scenario, request.settings, record, {"readings": methods}):
        found = readings.compare_readings(scenario, methods, request.settings, record)
        if request.folder is not None:
            write_json(request.folder / FILE_NAME, found.to_json())
    return found


@_worded
def tune(
    model: Model = None,
    target: Target = None,
    methods: str | Sequence[str] = TUNABLE,
    *,
    settings: Mapping[str, Any] | None = None,
    dynamic: bool = True,
    output_path: str | Path | None = None,
    command: str | None = None,
    **options: Any,
) -> Search:
    """Find hyper-parameters on validation text: what ``hebblm-tune --checkpoint MODEL --target TEXT`` does.

    Args:
        model: as for :func:`evaluate`.
        target: as for :func:`evaluate`.
        methods: only these are tuned, and what they rest on.
        settings: hyper-parameters by dotted name that keep these values; across domains base.lr above 0 is tuned.
        dynamic: tune dynamic evaluation and its combinations as well, which reads the text once a point.
        output_path: folder for tuned.json (every point tried) and config.json (for ``hebblm-eval --config``).
        command: as it can be typed again, for provenance.
        options: as for :func:`evaluate`; by default the first 10,000 tokens of the validation split are read.

    Returns:
        The best point of every method, ``.values`` by dotted name.

    Raises:
        UserError: the test split, an open vocabulary, an unknown name or value, or a value that is not tried.
    """
    options = {"split": "valid", "max_tokens": 10_000, **options}
    if options["split"] != "valid":
        raise UserError(f"split {options['split']!r} must not be tuned on; use --split valid")
    if options.get("vocabulary") == "open":
        raise UserError("vocabulary 'open' cannot be tuned; tune with union, whose values serve both")
    methods = tuple(unaliased(name) for name in several("methods", methods))
    with_parts(methods)
    request = _Request.of(model, target, "tune", None, settings, output_path, **options)
    request.check_keys(methods)
    _one_stream(request.config, "values are tuned on a single stream and serve any number")
    from hebblm.adapt.grid import Grid
    from hebblm.evaluation.saved import going_on
    from hebblm.tuning.search import TUNED_FILE, write_tuned

    if request.folder is not None and (request.folder / TUNED_FILE).is_file():
        say(f"{request.folder} holds tuned values; they are replaced when this run ends")
    ranks = current()
    with ranks.in_turn():
        scenario, record = request.open("tune", command)
    from hebblm.tuning.tune import tune

    if len(scenario.stream) < FEW_TOKENS:
        say(
            f"warning: {len(scenario.stream):,} tokens are few; values found on fewer than {FEW_TOKENS:,} may do worse "
            "on other text than the default ones (see --max-tokens)"
        )
    fixed = {name: request.settings.of(name) for name in map(plain_name, settings or {})}
    if dynamic and methods == TUNABLE:
        dynamic = _has_statistics(scenario, request.settings)
    grid, tuned = Grid(), {"dynamic": dynamic, "fixed": fixed, "methods": sorted(methods)}
    with going_on(scenario, request.settings, record, {"tune": tuned, "grid": asdict(grid)}):
        found = tune(scenario, request.settings, grid, dynamic=dynamic, fixed=fixed, methods=methods)
        if request.folder is not None and ranks.leads:
            write_tuned(found, scenario, record, request.folder)
        ranks.wait()  # what is saved is kept until the first one has ended
    return found


def _has_statistics(scenario: Scenario, settings: Hyperparameters) -> bool:
    """Say whether dynamic evaluation, which nobody asked for by name, can be had; tell why where it cannot."""
    try:
        scenario.check_statistics(settings.dynamic)
    except UserError as error:
        say(f"dynamic evaluation is left out: {error}")
        return False
    return True


def _check_ranks(request: _Request, processes: int) -> None:
    """Refuse what several processes cannot do together."""
    config, memory = request.config, request.settings.memory
    if processes == 1:
        return
    if processes > config.streams:
        raise UserError(
            f"{processes} processes are more than streams = {config.streams}; use --streams {processes} or more"
        )
    if config.memory_scope == "shared" and memory.capacity is not None:
        raise UserError(
            f"memory.capacity={memory.capacity} is not divided over {processes} processes; leave it unset, or use "
            "--memory-scope stream or one process"
        )


def _one_stream(config: ScenarioConfig, why: str) -> None:
    """Refuse several streams."""
    if config.streams > 1:
        raise UserError(f"streams = {config.streams} cannot be had here: {why}; leave --streams out")


@dataclass(frozen=True, slots=True)
class _Request:
    """Arguments of a front-door call, checked without loading torch."""

    config: ScenarioConfig
    settings: Hyperparameters
    note: str  # whose they are, where they are not the model's own, and how to find these
    folder: Path | None  # for what is written
    held: tuple[TrainedModel, Subwords] | None  # a model of ``transformers`` that is open already, with its pieces

    @classmethod
    def of(
        cls,
        model: Model,
        target: Target,
        hyperparameters: str = "default",
        values: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        output_path: str | Path | None = None,
        **options: Any,
    ) -> _Request:
        """Check names, values and folder; the arguments are those of :func:`evaluate`."""
        if target is not None and not isinstance(target, str | Path):
            raise UserError(f"target = {target!r:.60} is no text; name a corpus or the path of a text")
        own = isinstance(target, Path) or (target not in load_manifest() and isfile(target or ""))
        named: dict[str, Any] = {"text": Path(target or "")} if own else {"target": target}
        held: tuple[TrainedModel, Subwords] | None = None
        if isinstance(model, str | Path):
            named["model"] = str(model)
        elif model is not None:
            from hebblm.language_model import LanguageModel
            from hebblm.models.base import device_of

            if not isinstance(model, LanguageModel):
                raise UserError(
                    f"a {type(model).__name__} is no model to evaluate; name one or its folder, or give what "
                    "hebblm.load((model, tokenizer)) returns"
                )
            if model.pieces is not None:
                named["model"], held = model.name, (model.model, model.pieces)
            else:
                named["checkpoint"], named["device"] = Path(model.name), device_of(model.model).type
        known = [field.name for field in fields(ScenarioConfig)]
        for name in options:
            if name not in known:
                raise unknown("option", name, known, f"choose from {', '.join(known)}")
        plain = ScenarioConfig(**{**named, **options})
        config = plain.completed()
        config.check()
        chosen, lender = resolve_settings(config, hyperparameters, values or {}, settings or {})
        if chosen.base.lr:
            _one_stream(config, f"base.lr={chosen.base.lr} lets the base follow a single stream")
        place = None if output_path is None else Path(output_path)
        if place is not None and leads():
            check_writable(place)
        union = replace(plain, vocabulary="union", unk_share=ScenarioConfig.unk_share)  # open is not tuned
        tuning = shlex.join(["hebblm-tune", *union.arguments()])
        note = f"hyper-parameters: {lender}; find this model's own with {tuning}"
        return cls(config, chosen, note if lender else "", place, held)

    def check_keys(self, methods: Sequence[str]) -> None:
        """Refuse methods that adapt the head where memories keep the states of another layer."""
        if self.config.key != ScenarioConfig.key if self.held is None else self.held[0].keyed:
            for name in methods:
                METHODS[name].check_keys(self.settings.methods)

    def open(self, function: str, command: str | None) -> tuple[Scenario, dict[str, Any]]:
        """Return the opened scenario and the record of provenance."""
        from hebblm.evaluation.opening import open_scenario
        from hebblm.models.base import device_of
        from hebblm.models.device import pick_device

        config = self.config
        device = pick_device(config.device) if self.held is None else device_of(self.held[0])
        source, target = config.corpora()
        name = Path(config.model or config.checkpoint or source or "").name
        call = f"hebblm.{function}({name!r}, {target!r})"
        record = provenance(command or call, device=str(device), seed=config.seed)
        scenario = open_scenario(config, device, record, self.held)
        if self.note:
            say(self.note)
        return scenario, record
