"""Evaluation from scenario to result: all methods on one stream, numbers, token table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hebblm.adapt.methods import ENSEMBLES, METHODS
from hebblm.adapt.work import clock_of
from hebblm.errors import UserError
from hebblm.evaluation.accuracy import NOT_ASKED
from hebblm.evaluation.checkpoint import RunCheckpoint
from hebblm.evaluation.components import ComponentLog, component_table
from hebblm.evaluation.documents import by_document
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.neighbors import NeighborLog, neighbor_table
from hebblm.evaluation.observing import Observers, observers_for
from hebblm.evaluation.options import EvalOptions
from hebblm.evaluation.passes import Pass, dynamic_pass, ensemble_scores, shared_pass
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.summary import (
    Losses,
    gains_of,
    hyperparameters_of,
    method_result,
    pieces_of_parts,
    scenario_record,
    suggestions_of,
    time_parts,
)
from hebblm.evaluation.written_words import written_words
from hebblm.io.files import atomic_path, sha256
from hebblm.io.locks import file_lock
from hebblm.report import Result
from hebblm.report.result.accuracy import Guesses
from hebblm.report.result.parts import (
    Bootstrap,
    lead,
    occurrences_so_far,
)
from hebblm.report.result.schema import FILE_NAME as RESULT_FILE
from hebblm.report.result.schema import PIECES_OF_PARTS, Seconds
from hebblm.report.result.tokens import COMPONENTS_FILE, FILES, NEIGHBORS_FILE
from hebblm.report.result.tokens import FILE_NAME as TOKENS_FILE
from hebblm.runtime.ranks import ALONE, Ranks


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A result and its data.

    Args:
        scenario: the evaluated scenario.
        result: the numbers.
        nll: by method, losses (U,) float32 in nats, of words if tokens are pieces of them.
        guesses: by method, ranks and keystrokes of its suggestions; empty if not requested.
        neighbors: entries that the first tokens retrieved, None if not logged.
        components: shares of the methods' parts in these tokens, None if not logged.
    """

    scenario: Scenario
    result: Result
    nll: dict[str, Losses]
    guesses: dict[str, Guesses]
    neighbors: NeighborLog | None = None
    components: ComponentLog | None = None

    def save(self, folder: Path, *, log_samples: bool) -> None:
        """Write the tables, tokens with ``log_samples`` and neighbours if any, then the result with
        their hashes.
        """
        tables: dict[str, pa.Table] = {}
        if log_samples:
            tables[TOKENS_FILE] = self.tokens()
        if self.neighbors is not None:
            tables[NEIGHBORS_FILE] = neighbor_table(self.neighbors, self.scenario)
        if self.components is not None:
            tables[COMPONENTS_FILE] = component_table(self.components, self.scenario.stream)
        # A result's hashes are those of its own tables: all files are written before any of them
        # replaces a former one.
        with file_lock(folder / RESULT_FILE, "a result"), ExitStack() as stack:
            files = {}
            for name, table in tables.items():
                temporary = stack.enter_context(atomic_path(folder / name))
                pq.write_table(table, temporary)
                files[name] = sha256(temporary)
            replace(self.result, extra={**self.result.extra, FILES: files}).save(folder)

    def tokens(self) -> pa.Table:
        """Return one row per token or, for a model of pieces, word.

        Its columns: position, token, counts in training and stream so far, is_oov, the word as it
        stands in the text with the spaces before it, the number of its pieces, losses, ranks.
        """
        stream = self.scenario.stream.reported
        targets = stream.targets
        counts = stream.target_counts
        symbols = pa.array(stream.symbols, type=pa.string())
        written = written_words(self.scenario)
        pieces = self.scenario.stream.pieces
        columns: dict[str, Any] = {
            "position": pa.array(np.arange(len(stream), dtype=np.int64)),
            "token": symbols.take(pa.array(targets)),
            "train_count": pa.nulls(len(stream), pa.int64()),
            "is_oov": pa.array(stream.oov),
            "seen": pa.array(occurrences_so_far(targets)),
        }
        if counts is not None:
            columns["train_count"] = pa.array(counts)
        if written is not None:
            columns["text"] = pa.array(written, type=pa.string())
        if pieces is not None:
            columns["pieces"] = pa.array(pieces.sums(np.ones(len(self.scenario.stream))))
        for name, losses in self.nll.items():
            columns[f"nll_{name}"] = pa.array(losses)
        for name, guessed in self.guesses.items():
            columns[f"rank_{name}"] = pa.array(guessed.rank, mask=guessed.rank == NOT_ASKED)
        return pa.table(columns)


def run_scenario(
    scenario: Scenario,
    methods: list[str],
    settings: Hyperparameters,
    provenance: dict[str, Any],
    options: EvalOptions | None = None,
    *,
    ranks: Ranks = ALONE,
    checkpoint: RunCheckpoint | None = None,
) -> Evaluation | None:
    """Evaluate every method on the scenario's stream.

    Args:
        scenario: the opened scenario.
        methods: names in the order of the tables; an ensemble's parts are among them.
        settings: hyper-parameters.
        provenance: command, commit, versions, device, seed.
        options: what to find besides losses; None for the default ones.
        ranks: processes that share the streams.
        checkpoint: checkpoint of the run, None without one.

    Returns:
        The evaluation; None for ranks other than the first.

    Raises:
        UserError: a log of neighbours although no method retrieves; forgetting within one domain; a
            method whose losses have become nan.
    """
    clock = clock_of(scenario.device)
    started = clock()
    options = options or EvalOptions()
    predictors = {
        name: METHODS[name].predictor(settings.methods) for name in methods if name in METHODS
    }
    static = {
        name: predictor
        for name, predictor in predictors.items()
        if not METHODS[name].uses_dynamic_base
    }
    moving = {
        name: predictor for name, predictor in predictors.items() if METHODS[name].uses_dynamic_base
    }
    if moving:
        scenario.check_statistics(settings.dynamic)
    observers = observers_for(options, scenario, settings, static, moving, checkpoint)

    # 1) Read the text, once for each base.
    shared = Pass(EvaluationScores({}))
    dynamic = Pass(EvaluationScores({}))
    if static:
        shared = shared_pass(scenario, static, settings, observers.shared, ranks)
    if not ranks.leads:
        return None
    if moving:
        dynamic = dynamic_pass(scenario, moving, settings, observers.dynamic)
        if dynamic.dynamic is not None:
            settings = replace(settings, dynamic=dynamic.dynamic)

    # 2) Losses by method and token.
    passes = _passes(methods, shared, dynamic, scenario.config.update_every)
    by_token = {name: passes[name].scores.nll[name] for name in methods}
    _check_numbers(by_token, settings)
    nll = {name: scenario.stream.word_losses(losses) for name, losses in by_token.items()}

    # 3) Numbers of each method, and of each pair.
    bootstrap = Bootstrap(seed=scenario.config.seed)
    guesses = observers.guesses(scenario)
    suggested = suggestions_of(scenario.stream, guesses, options.edges, bootstrap)
    gains, paired = gains_of(scenario, nll, by_token, options.edges, bootstrap)
    results = {}
    for name, method_pass in passes.items():
        checked = (
            options.check and name in predictors and bool(predictors[name].requirements.descents)
        )
        results[name] = replace(
            method_result(
                name,
                method_pass.scores,
                scenario.stream,
                hyperparameters_of(name, settings),
                options.edges,
                measured=scenario.measured,
                checked=checked,
            ),
            gains=gains.get(name, ()),
            forgetting=method_pass.forgetting.get(name),
            accuracy=suggested.get(name, ()),
        )

    # 4) What holds for all of them.
    extra = {
        "bootstrap": asdict(bootstrap),
        "lead": lead(by_token, bootstrap),
        "paired": paired,
        **_extra(scenario, options, observers, shared, by_token),
    }
    earlier = sum(method_pass.scores.earlier_seconds for method_pass in (shared, dynamic))
    seconds = clock() - started + earlier
    parts = (*time_parts(shared), *time_parts(dynamic, " of dynamic evaluation"))
    memory = shared.memory or dynamic.memory
    result = Result(
        scenario=scenario_record(scenario, shared.exchanged),
        model={**scenario.model.describe(), "update": asdict(settings.base)},
        memory={
            **memory,
            "content": scenario.config.memory_content,
            "k": scenario.config.k,
        },
        provenance={**provenance, "data_sha256": scenario.data_sha256},
        methods=results,
        seconds=Seconds(seconds, parts),
        extra=extra,
    )
    return Evaluation(scenario, result, nll, guesses, observers.neighbors, observers.components)


def _passes(
    methods: Sequence[str], shared: Pass, dynamic: Pass, update_every: int
) -> dict[str, Pass]:
    """Return the pass of each method by name, ensembles last, which mix the losses of others."""
    passes = {}
    for name in methods:
        if name in METHODS:
            passes[name] = dynamic if METHODS[name].uses_dynamic_base else shared
    ensembles = [name for name in methods if name in ENSEMBLES]
    scores = {name: method_pass.scores for name, method_pass in passes.items()}
    mixed = Pass(ensemble_scores(ensembles, scores, update_every))
    for name in ensembles:
        passes[name] = mixed
    return passes


def _check_numbers(losses: Mapping[str, Losses], settings: Hyperparameters) -> None:
    """Refuse methods with losses that are not numbers."""
    for name, values in losses.items():
        lost = int(np.isnan(values).sum())
        if lost:
            rates = METHODS[name].rates(settings.methods)
            raise UserError(
                f"{name}: {lost:,} of {len(values):,} losses are nan; lower {rates} in `settings`"
            )


def _extra(
    scenario: Scenario,
    options: EvalOptions,
    observers: Observers,
    shared: Pass,
    by_token: Mapping[str, Losses],
) -> dict[str, Any]:
    """Return the parts of a result that only some texts and options have, as JSON."""
    extra: dict[str, Any] = {}
    if observers.probe is not None:
        extra["forgetting"] = observers.probe.describe()
    if scenario.closed:
        extra[PIECES_OF_PARTS] = pieces_of_parts(scenario.stream, options.edges)
    if shared.suggested:
        extra["suggested"] = shared.suggested
    if scenario.documents:
        extra["documents"] = by_document(scenario.documents, scenario.stream, by_token)
    return extra
