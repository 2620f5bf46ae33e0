"""One evaluation from scenario to result: all methods over one stream, numbers, token table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hebblm.adapt import DYNAMIC, Rule, build_rule, hyperparameters
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import WITHOUT_RETRIEVAL, Scores, evaluate, evaluate_alone
from hebblm.evaluation.metrics import method_result
from hebblm.evaluation.scenario import Scenario
from hebblm.files import atomic_path
from hebblm.models.dynamic import DynamicBase, gradient_mean_squares
from hebblm.progress import bar
from hebblm.report import Result
from hebblm.report import Scenario as ScenarioRecord

ADAPTED = ("mbpa", "hebb")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result and the losses it was made from.

    Args:
        result: the numbers.
        nll: by method, (T,) float32 nats.
    """

    result: Result
    nll: dict[str, npt.NDArray[np.float32]]


def run_scenario(
    scenario: Scenario,
    methods: list[str],
    settings: Hyperparameters,
    provenance: dict[str, Any],
    edges: tuple[int, ...],
) -> Outcome:
    """Evaluate every method on the scenario's stream.

    Args:
        scenario: opened.
        methods: by name, in the order of the tables.
        settings: hyper-parameters.
        provenance: command, commit, versions, device, seed.
        edges: bounds of the frequency buckets.
    """
    rules = {name: build_rule(name, settings.methods) for name in methods if name != DYNAMIC}
    scores, memory = _shared_pass(scenario, rules, settings)
    if DYNAMIC in methods:
        scores.nll[DYNAMIC], scores.seconds[DYNAMIC] = _dynamic_pass(scenario, settings)
    results = {
        name: method_result(
            scores.nll[name],
            scenario.stream,
            hyperparameters=asdict(settings.dynamic)
            if name == DYNAMIC
            else hyperparameters(name, settings.methods),
            seconds=scores.seconds[name],
            stabilized=scores.stabilized[name] if any(part in name for part in ADAPTED) else None,
            **_fast_form(name, scores, settings),
            edges=edges,
            whole=scenario.whole,
        )
        for name in methods
    }
    stream, config = scenario.stream, scenario.config
    record = ScenarioRecord(
        kind=scenario.kind,
        source=scenario.source,
        target=scenario.target,
        split=config.split,
        normalization=scenario.normalization,
        vocabulary=config.vocabulary,
        tokens=len(stream),
        oov_tokens=int(stream.oov.sum()),
        oov_types=stream.oov_types,
        extra={
            "source_vocabulary": stream.source_size,
            "vocabulary_size": stream.vocabulary_size,
            "new_rows": config.new_rows,
            "update_every": config.update_every,
            "whole_split": scenario.whole,
            "tokenizer": None if scenario.train is None else scenario.train.meta.tokenizer,
        },
    )
    return Outcome(
        Result(
            scenario=record,
            model={**scenario.model.describe(), "update": asdict(settings.base)},
            memory={**memory, "content": config.memory_content, "k": config.k},
            provenance={**provenance, "data_sha256": scenario.data_sha256},
            methods=results,
        ),
        scores.nll,
    )


def _fast_form(name: str, scores: Scores, settings: Hyperparameters) -> dict[str, int]:
    """Return how many queries a method's fast form handed to a wider and to the exact one, where it has a fast form."""
    if settings.methods.mbpa.method != "fast" or not any(part in name for part in ADAPTED):
        return {}
    return {"widened": scores.widened[name], "exact_fallbacks": scores.exact_fallbacks[name]}


def _shared_pass(
    scenario: Scenario, rules: dict[str, Rule], settings: Hyperparameters
) -> tuple[Scores, dict[str, Any]]:
    """Run all methods that share the base's hidden states; return scores and a description of the memory."""
    config, stream = scenario.config, scenario.stream
    retrieve = any(name not in WITHOUT_RETRIEVAL for name in rules)
    base = scenario.base(settings)
    memory = scenario.memory(settings) if retrieve else None
    if not rules:
        return Scores({}), {}
    store = memory if memory is not None else scenario.empty_memory(settings)
    context = scenario.context(base, store, settings.methods.cache.window if "cache" in rules else 0)
    with bar() as progress:
        task = progress.add_task(f"evaluate {len(rules)} methods", total=len(stream), unit="tokens")
        scores = evaluate(
            base,
            context,
            rules,
            stream,
            scenario.vocabulary,
            update_every=config.update_every,
            write=retrieve and config.memory_content != "train",
            read_ahead=not base.moving and config.vocabulary == "union",
            retrieve=retrieve,
            progress=lambda tokens: progress.advance(task, tokens),
        )
    return scores, dict(store.describe())


def _dynamic_pass(scenario: Scenario, settings: Hyperparameters) -> tuple[npt.NDArray[np.float32], float]:
    """Run dynamic evaluation, a base of its own."""
    config = settings.dynamic
    model = scenario.model.model
    squares = None
    if config.rule == "rms":
        squares = gradient_mean_squares(model, scenario.training_ids(), config)
    base = DynamicBase(model, config, squares, rows=scenario.novel_rows, init=scenario.config.new_rows)
    with bar() as progress:
        task = progress.add_task("dynamic evaluation", total=len(scenario.stream), unit="tokens")
        return evaluate_alone(
            base,
            scenario.stream,
            scenario.vocabulary,
            segment=config.segment,
            progress=lambda tokens: progress.advance(task, tokens),
        )


def write_tokens(outcome: Outcome, scenario: Scenario, path: Any) -> None:
    """Write one row a token: position, token, train_count, is_oov, and the loss of each method in nats."""
    stream = scenario.stream
    targets = stream.targets
    symbols = pa.array(stream.symbols, type=pa.string())
    columns = {
        "position": pa.array(np.arange(len(stream), dtype=np.int64)),
        "token": symbols.take(pa.array(targets)),
        "train_count": pa.array(stream.train_counts[targets]),
        "is_oov": pa.array(stream.oov),
        **{f"nll_{name}": pa.array(values) for name, values in outcome.nll.items()},
    }
    with atomic_path(path) as temporary:
        pq.write_table(pa.table(columns), temporary)
