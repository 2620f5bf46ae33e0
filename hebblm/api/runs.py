"""Comparison and tuning, many methods on one text; mistakes are reported before anything is
opened.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hebblm.adapt.grid import Grid
from hebblm.adapt.methods import (
    DEFAULT_METHODS,
    DYNAMIC,
    ENSEMBLES,
    EVALUATED,
    EVERY,
    METHODS,
    TUNABLE,
    check_methods,
    named,
    unaliased,
    with_ensembled,
    with_parts,
)
from hebblm.adapt.renamed import present_name
from hebblm.api.request import Model, Request, Target
from hebblm.errors import UserError
from hebblm.evaluation.defaults import TunedFile
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.options import EvalOptions
from hebblm.evaluation.resume import resumable
from hebblm.evaluation.run import Evaluation, run_scenario
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scenario_config import as_strings
from hebblm.report.render.document import write_report
from hebblm.report.render.inspection import write_inspection
from hebblm.report.render.result import Result
from hebblm.report.result.methods import BASE
from hebblm.report.result.schema import FILE_NAME
from hebblm.report.result.tokens import FILE_NAME as TOKENS
from hebblm.report.result.tokens import TokenLosses
from hebblm.runtime.progress import log
from hebblm.runtime.ranks import current
from hebblm.tuning.search import TUNED_FILE, Search, write_tuned
from hebblm.tuning.tune import tune as tune_scenario

# Below this, the best of some hundred points is often the luckiest one, and worse than the default
# on other text.
FEW_TOKENS = 5000


def evaluate(
    model: Model = None,
    target: Target = None,
    methods: str | Sequence[str] = DEFAULT_METHODS,
    *,
    hyperparameters: str = "default",
    values: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    output_path: str | Path | None = None,
    command: str | None = None,
    **options: Any,
) -> Result:
    """Compare methods on one text, as ``hebblm-eval --checkpoint MODEL --target TEXT`` does.

    Args:
        model: a language model, or the name or folder of one; None if ``options`` name a scenario.
        target: a corpus (ptb, wt2, pydoc, numpy, text:PATH, hf:ID); the path of a text, of records
            or of a folder of them; or the texts themselves, a list or a pandas Series of strings.
        methods: names in the order of the tables, in a list or in one string ("lstm,cache").
        hyperparameters: default, tuned, paper, or a file of hebblm-tune.
        values: hyper-parameters by dotted name, found for this scenario; they override
            ``hyperparameters``.
        settings: single hyper-parameters by dotted name; they override both.
        output_path: folder for result and report.
        command: the command line, for the result's provenance.
        options: fields of :class:`hebblm.evaluation.options.EvalOptions`, e.g. ``accuracy=True``,
            and of :class:`hebblm.evaluation.scenario_config.ScenarioConfig`, e.g.
            ``max_tokens=1000``.

    Returns:
        The result, with ``.table()``, ``.to_pandas()`` and ``.save(folder)``.

    Raises:
        UserError: an unknown name or value, or a corpus that is not available.
    """
    every = methods == EVERY
    methods = with_ensembled(_named(methods, EVALUATED))
    evaluation = EvalOptions.of(options)
    request = Request.of(
        model, target, hyperparameters, values, settings, output_path, asked=EvalOptions, **options
    )
    if every and request.config.streams > 1:
        log(
            "left out, because it mixes methods that follow a single stream: "
            f"{', '.join(ENSEMBLES)}"
        )
        methods = [name for name in methods if name in METHODS]
    _check_methods(methods, request, settings or {})
    _check_options(evaluation, methods, request)
    ranks = current()
    request.check_ranks(ranks.size)
    if request.folder is not None:
        _check_page(request.folder)
    scenario, record = request.open("evaluate", command)
    if methods == [*DEFAULT_METHODS] and not _has_statistics(scenario, request.settings):
        methods.remove(DYNAMIC)
    identity = {"methods": methods, **evaluation.identity()}
    with resumable(scenario, request.settings, record, identity) as checkpoint:
        run = run_scenario(
            scenario,
            methods,
            request.settings,
            record,
            evaluation,
            ranks=ranks,
            checkpoint=checkpoint,
        )
        if run is not None and request.folder is not None:
            _write(run, request.folder, evaluation)
        if ranks.size > 1:  # intermediate files stay until the first process has ended
            result = None if run is None else run.result.to_json()
            return Result.from_json(ranks.all_gather_object(result)[0])
    assert run is not None
    return run.result


def _check_methods(methods: Sequence[str], request: Request, settings: Mapping[str, Any]) -> None:
    """Refuse methods that do not go with the keys or streams of a call, and name settings that no
    method reads.
    """
    predictors = [name for name in methods if name in METHODS]
    request.check_keys(predictors)
    for name in methods:
        if name in ENSEMBLES:
            request.check_one_stream(f"{name}, one of the methods, follows a single stream")
    request.settings.tell_unread(settings, predictors)


def _check_options(options: EvalOptions, methods: Sequence[str], request: Request) -> None:
    """Refuse options that do not go with the methods, the folder or the text of a call."""
    predictors = [name for name in methods if name in METHODS]
    if options.show_learned and (BASE not in predictors or len(methods) < 2):
        raise UserError(
            f"show_learned compares a method with the base, not {','.join(methods)}; add base or "
            "a method"
        )
    for name, asked in (
        ("log_samples", options.log_samples),
        ("show_learned", options.show_learned),
    ):
        if asked and request.folder is None:
            raise UserError(f"{name} needs output_path=DIR to write to")
    for name in options.one_stream():
        request.check_one_stream(f"`{name}` follows a single stream")
    source, read = request.config.corpora()
    if options.forgetting and source == read:
        raise UserError(
            f"`forgetting` compares two domains, and {read} is the only one; use "
            "cross_domain=A-to-B"
        )


def _check_page(folder: Path) -> None:
    """Refuse a folder with a page that is not a result's; name a result that will be replaced."""
    page = folder / "report.md"
    if (folder / FILE_NAME).is_file():
        log(f"{folder} holds a finished result; it is replaced when this run ends")
    elif page.exists():
        raise UserError(
            f"{page} does not belong to a result, and would be overwritten; choose another folder"
        )


def _write(run: Evaluation, folder: Path, options: EvalOptions) -> None:
    """Write a result, its tables and its pages."""
    run.save(folder, log_samples=options.writes_tokens)
    losses = None
    if options.show_learned:
        losses = TokenLosses.load(folder / TOKENS)
        write_inspection(folder)
    write_report(run.result, folder, tokens=losses)


def tune(
    model: Model = None,
    target: Target = None,
    methods: str | Sequence[str] = TUNABLE,
    *,
    settings: Mapping[str, Any] | None = None,
    dynamic: bool = True,
    around: str | Path | None = None,
    output_path: str | Path | None = None,
    command: str | None = None,
    **options: Any,
) -> Search:
    """Tune hyper-parameters on validation text, as ``hebblm-tune --checkpoint MODEL --target TEXT``
    does.

    Args:
        model: as for :func:`evaluate`.
        target: as for :func:`evaluate`.
        methods: methods to tune, together with those they build on.
        settings: hyper-parameters by dotted name that keep these values; across domains base.lr
            above 0 is tuned.
        dynamic: tune dynamic evaluation as well, which reads the text once for every point.
        around: tuned.json of an earlier tuning, on less text; only values next to those found there
            are tried.
        output_path: folder for tuned.json (every point tried) and config.json (for ``hebblm-eval
            --config``).
        command: the command line, for provenance.
        options: as for :func:`evaluate`; by default the first 10,000 tokens of the validation split
            are read.

    Returns:
        The best point of every method, with ``.values`` by dotted name.

    Raises:
        UserError: the test split, an open vocabulary, an unknown name or value, a fixed value that
            tuning does not try, or an ``around`` that is not a tuning's file.
    """
    options = {"split": "valid", "max_tokens": 10_000, **options}
    if options["split"] != "valid":
        raise UserError(f"tuning must not read the split {options['split']!r}; use split=valid")
    if options.get("vocabulary") == "open":
        raise UserError(
            "vocabulary 'open' cannot be tuned; tune with union, and use the values for both"
        )
    methods = tuple(_named(methods))
    with_parts(methods)
    request = Request.of(model, target, "tune", None, settings, output_path, **options)
    request.check_keys(methods)
    request.check_one_stream("values are tuned on a single stream and serve any number")
    found_before = {} if around is None else TunedFile.read(Path(around)).values
    if request.folder is not None and (request.folder / TUNED_FILE).is_file():
        log(f"{request.folder} holds tuned values; they are replaced when this run ends")
    ranks = current()
    with ranks.in_turn():
        scenario, record = request.open("tune", command)
    if len(scenario.stream) < FEW_TOKENS:
        remedy = "raise max_tokens"
        if scenario.whole:  # all of the split was read
            remedy = f"name a longer text: these are {scenario.part}"
        log(
            f"warning: {len(scenario.stream):,} tokens are few; values found on fewer than "
            f"{FEW_TOKENS:,} may do worse "
            f"on other text than the default ones; {remedy}"
        )
    fixed = {name: request.settings.of(name) for name in map(present_name, settings or {})}
    if dynamic and methods == TUNABLE:
        dynamic = _has_statistics(scenario, request.settings, tuned=True)
    grid = Grid()
    tuned = {"dynamic": dynamic, "fixed": fixed, "around": found_before, "methods": sorted(methods)}
    asked = {"tune": tuned, "grid": asdict(grid)}
    with resumable(scenario, request.settings, record, asked) as checkpoint:
        search = tune_scenario(
            scenario,
            request.settings,
            grid,
            dynamic=dynamic,
            fixed=fixed,
            around=found_before,
            methods=methods,
            checkpoint=checkpoint,
        )
        if request.folder is not None and ranks.leads:
            write_tuned(search, scenario, record, request.folder)
        ranks.wait()  # intermediate files stay until the first process has ended
    return search


def _named(methods: str | Sequence[str], known: Collection[str] = METHODS) -> list[str]:
    """Return the names of methods, given in one string as on the command line, or in a list."""
    if isinstance(methods, str):
        return named(methods, known)
    names = [unaliased(name) for name in as_strings("methods", methods)]
    check_methods(names, known)
    return names


def _has_statistics(scenario: Scenario, settings: Hyperparameters, *, tuned: bool = False) -> bool:
    """Return whether dynamic evaluation, which nobody named, is possible; print why not."""
    try:
        scenario.check_statistics(settings.dynamic, tuned=tuned)
    except UserError as error:
        log(f"dynamic evaluation is left out: {error}")
        return False
    return True
