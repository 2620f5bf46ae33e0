"""Comparison and tuning, many methods on one text; mistakes are reported before anything is
opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

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
from hebblm.api.request import Model, Request, Target
from hebblm.errors import UserError
from hebblm.evaluation.defaults import TunedFile
from hebblm.evaluation.hyperparameters import Hyperparameters, plain_name
from hebblm.evaluation.resume import resumable
from hebblm.evaluation.run import run_scenario
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scenario_config import several, whole
from hebblm.report.accuracy import WORDS_ASKED
from hebblm.report.buckets import DEFAULT_EDGES, validate_edges
from hebblm.report.document import write_report
from hebblm.report.inspection import write_inspection
from hebblm.report.methods import BASE
from hebblm.report.result import FILE_NAME, Result
from hebblm.report.tokens import FILE_NAME as TOKENS
from hebblm.report.tokens import TokenLosses
from hebblm.runtime.progress import say
from hebblm.runtime.ranks import current
from hebblm.tuning.search import TUNED_FILE, Search, write_tuned
from hebblm.tuning.tune import tune as tune_scenario

# Below this, the best of some hundred points is often the luckiest one, and worse than the default
# on other text.
FEW_TOKENS = 5000

P = ParamSpec("P")
T = TypeVar("T")
# A command with its options, which stays as it is, or an option alone.
_OPTION = re.compile(r"hebblm-[a-z]+(?: --[a-z-]+(?: [^\s;,]+)?)+|(?<![^\s(])--([a-z-]+)")


def _worded(function: Callable[P, T]) -> Callable[P, T]:
    """Make errors name arguments, such as ``max_tokens`` for ``--max-tokens``, unless a command
    made the call.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            if kwargs.get("command") is None:
                message = _OPTION.sub(
                    lambda option: (option[1] or "").replace("-", "_") or option[0], str(error)
                )
                error.args = (message,)
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
    check: bool = False,
    accuracy: bool = False,
    accuracy_words: int | Sequence[int] = WORDS_ASKED,
    output_path: str | Path | None = None,
    log_samples: bool = False,
    log_neighbors: int = 0,
    show_learned: bool = False,
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
        frequency_edges: bounds of the frequency buckets.
        forgetting: tokens of the source's own text to score before and after; None skips this.
        check: also count the queries whose neighbours' loss rose in MbPA, and compare its fast form
            with the exact one on one query in a thousand. That takes about a tenth longer.
        accuracy: also find how often the next word is among those that a method suggests, and the
            keystrokes that a list of three saves. That takes whole distributions, and about twice
            the time.
        accuracy_words: words that a model of pieces is asked for, evenly spread, or the places in
            the text of single words; each takes some forward passes. A model of words is asked for
            all.
        output_path: folder for result and report.
        log_samples: also write tokens.parquet there, one row per token.
        log_neighbors: also write, for so many tokens, neighbors.parquet with what they retrieved,
            and components.parquet with what each part of a method gave to them.
        show_learned: also write what was learned: inspect.html, the text shaded by gain, and in the
            report the words that changed most and three suggestions before and after reading.
            Writes tokens.parquet as well.
        command: the command line, for the result's provenance.
        options: fields of :class:`hebblm.evaluation.scenario_config.ScenarioConfig`, e.g.
            ``max_tokens=1000``.

    Returns:
        The result, with ``.table()``, ``.to_pandas()`` and ``.save(folder)``.

    Raises:
        UserError: an unknown name or value, or a corpus that is not available.
    """
    every, methods = methods == EVERY, with_ensembled(_named(methods, EVALUATED))
    rules = [name for name in methods if name in METHODS]
    if show_learned and (BASE not in rules or len(methods) < 2):
        raise UserError(
            f"--show-learned compares a method with the base, not {','.join(methods)}; add base or "
            "a method"
        )
    edges = validate_edges(frequency_edges)
    request = Request.of(model, target, hyperparameters, values, settings, output_path, **options)
    request.check_keys(rules)
    if every and request.config.streams > 1:
        say(
            "left out, because it mixes methods that follow a single stream: "
            f"{', '.join(ENSEMBLES)}"
        )
        methods = rules
    for name in ENSEMBLES.keys() & methods:
        request.check_one_stream(f"{name}, one of the methods, follows a single stream")
    request.settings.tell_unread(settings or {}, rules)
    for option, asked_for in (("--log-samples", log_samples), ("--show-learned", show_learned)):
        if asked_for and output_path is None:
            raise UserError(f"{option} needs --output-path DIR to write to")
    log_neighbors = whole("log_neighbors", log_neighbors, 0)
    if log_neighbors and not log_samples:
        raise UserError(f"--log-neighbors {log_neighbors} needs --log-samples as well")
    source, read = request.config.corpora()
    single = {
        "--forgetting": forgetting is not None,
        "--log-neighbors": log_neighbors > 0,
        "--accuracy": accuracy,
        "--show-learned": show_learned,
    }
    for option in (option for option, asked_for in single.items() if asked_for):
        request.check_one_stream(f"{option} follows a single stream")
    asked: int | list[int]
    if isinstance(accuracy_words, Sequence):
        asked = [whole("accuracy_words", place, 0) for place in accuracy_words]
        if not asked:
            raise UserError(
                "accuracy_words names no word; give places in the text, or a number of words"
            )
    else:
        asked = whole("accuracy_words", accuracy_words)
    forgetting = None if forgetting is None else whole("forgetting", forgetting)
    if forgetting is not None and source == read:
        raise UserError(
            f"--forgetting compares two domains, and {read} is the only one; use --cross-domain "
            "A-to-B"
        )
    ranks = current()
    request.check_ranks(ranks.size)
    if request.folder is not None and (request.folder / FILE_NAME).is_file():
        say(f"{request.folder} holds a finished result; it is replaced when this run ends")
    elif request.folder is not None and (page := request.folder / "report.md").exists():
        raise UserError(
            f"{page} does not belong to a result, and would be overwritten; choose another folder"
        )
    scenario, record = request.open("evaluate", command)
    if methods == [*DEFAULT_METHODS] and not _has_statistics(scenario, request.settings):
        methods.remove(DYNAMIC)
    beside = {
        "methods": methods,
        "log_neighbors": log_neighbors,
        "forgetting": forgetting,
        "check": check,
        "accuracy": asked if accuracy else 0,
    }
    with resumable(scenario, request.settings, record, beside) as checkpoint:
        run = run_scenario(
            scenario,
            methods,
            request.settings,
            record,
            edges,
            log_neighbors=log_neighbors,
            forgetting=forgetting,
            check=check,
            accuracy=asked if accuracy else 0,
            show_learned=show_learned,
            ranks=ranks,
            checkpoint=checkpoint,
        )
        if run is not None and request.folder is not None:
            run.save(request.folder, log_samples=log_samples or show_learned)
            losses = None
            if show_learned:
                losses = TokenLosses.load(request.folder / TOKENS)
                write_inspection(request.folder)
            write_report(run.result, request.folder, tokens=losses)
        if ranks.size > 1:  # intermediate files stay until the first process has ended
            return Result.from_json(
                ranks.all_gather_object(None if run is None else run.result.to_json())[0]
            )
    assert run is not None
    return run.result


@_worded
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
        raise UserError(f"tuning must not read the split {options['split']!r}; use --split valid")
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
        say(f"{request.folder} holds tuned values; they are replaced when this run ends")
    ranks = current()
    with ranks.in_turn():
        scenario, record = request.open("tune", command)
    if len(scenario.stream) < FEW_TOKENS:
        remedy = "raise --max-tokens"
        if scenario.whole:  # all of the split was read
            remedy = f"name a longer text: these are {scenario.part}"
        say(
            f"warning: {len(scenario.stream):,} tokens are few; values found on fewer than "
            f"{FEW_TOKENS:,} may do worse "
            f"on other text than the default ones; {remedy}"
        )
    fixed = {name: request.settings.of(name) for name in map(plain_name, settings or {})}
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
    names = [unaliased(name) for name in several("methods", methods)]
    check_methods(names, known)
    return names


def _has_statistics(scenario: Scenario, settings: Hyperparameters, *, tuned: bool = False) -> bool:
    """Return whether dynamic evaluation, which nobody named, is possible; print why not."""
    try:
        scenario.check_statistics(settings.dynamic, tuned=tuned)
    except UserError as error:
        say(f"dynamic evaluation is left out: {error}")
        return False
    return True
