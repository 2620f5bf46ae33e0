"""One evaluation from scenario to result: all methods over one stream, numbers, token table."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hebblm.adapt import DYNAMIC, METHODS, Rule
from hebblm.errors import UserError
from hebblm.evaluation.forgetting import Probe
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Scores
from hebblm.evaluation.metrics import method_result
from hebblm.evaluation.neighbors import NeighborLog
from hebblm.evaluation.passes import Pass, dynamic_pass, shared_pass
from hebblm.evaluation.scenario import Scenario
from hebblm.files import atomic_path
from hebblm.report import MethodResult, Result
from hebblm.report import Scenario as ScenarioRecord
from hebblm.report.gains import Bootstrap, lead
from hebblm.report.parts import occurrences_so_far, part_gains
from hebblm.report.seconds import METHOD, RUN, SHARED, Part, Seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result and the losses it was made from.

    Args:
        result: the numbers.
        nll: by method, (T,) float32 nats.
        neighbors: what the first tokens retrieved, None if it was not logged.
    """

    result: Result
    nll: dict[str, npt.NDArray[np.float32]]
    neighbors: NeighborLog | None = None


def run_scenario(
    scenario: Scenario,
    methods: list[str],
    settings: Hyperparameters,
    provenance: dict[str, Any],
    edges: tuple[int, ...],
    *,
    log_neighbors: int = 0,
    forgetting: int | None = None,
) -> Outcome:
    """Evaluate every method on the scenario's stream.

    Args:
        scenario: opened.
        methods: by name, in the order of the tables.
        settings: hyper-parameters.
        provenance: command, commit, versions, device, seed.
        edges: bounds of the frequency buckets.
        log_neighbors: tokens of the beginning of the stream whose neighbours are noted.
        forgetting: tokens of the source's own text that are scored before and after, None for none.

    Raises:
        UserError: neighbours are to be noted and no method retrieves any; forgetting within one domain.
    """
    started = time.perf_counter()
    built = {name: METHODS[name].rule(settings.methods) for name in methods}
    rules = {name: rule for name, rule in built.items() if not METHODS[name].moving}
    moving = {name: rule for name, rule in built.items() if METHODS[name].moving}
    probe = None if forgetting is None else Probe.of(scenario, forgetting)
    log = None
    if log_neighbors:
        if not any(rule.needs.retrieval for rule in rules.values()):
            raise UserError(f"no method of {','.join(methods)} retrieves; add one to log neighbours of")
        write = scenario.config.memory_content != "train"
        log = NeighborLog(log_neighbors, settings.methods.mbpa, write=write)
    shared, dynamic = Pass(Scores({})), Pass(Scores({}))
    if rules:
        shared = shared_pass(scenario, rules, settings, log=log, probe=probe)
    if moving:
        dynamic = dynamic_pass(scenario, moving, settings, probe=probe)
    nll = {name: (dynamic if name in moving else shared).scores.nll[name] for name in methods}
    results = {
        name: _method_result(name, rule, dynamic if name in moving else shared, scenario, settings, edges)
        for name, rule in built.items()
    }
    stream, config = scenario.stream, scenario.config
    bootstrap = Bootstrap(seed=config.seed)
    gains = part_gains(
        nll,
        stream.train_counts[stream.targets],
        occurrences_so_far(stream.targets),
        stream.oov,
        edges,
        bootstrap,
    )
    results = {name: replace(item, gains=gains.get(name, ())) for name, item in results.items()}
    record = ScenarioRecord(
        kind=scenario.kind,
        source=scenario.source,
        target=scenario.target,
        split=scenario.split,
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
            "part": scenario.part,
            "whole_split": scenario.whole,
            "unk_tokens": int((stream.ids == scenario.dictionary.unk_index).sum()),
            "tokenizer": None if scenario.train is None else scenario.train.meta.tokenizer,
            "target_tokenizer": scenario.tokenizer,
        },
    )
    return Outcome(
        Result(
            scenario=record,
            model={**scenario.model.describe(), "update": asdict(settings.base)},
            memory={**(shared.memory or dynamic.memory), "content": config.memory_content, "k": config.k},
            provenance={**provenance, "data_sha256": scenario.data_sha256},
            methods=results,
            seconds=Seconds(
                time.perf_counter() - started,
                (*_parts(shared), *_parts(dynamic, " of dynamic evaluation")),
            ),
            extra={
                "bootstrap": bootstrap.to_json(),
                "lead": lead(nll, bootstrap),
                **({} if probe is None else {"forgetting": probe.describe()}),
            },
        ),
        nll,
        log,
    )


def _parts(found: Pass, whose: str = "") -> list[Part]:
    """Return what a pass spent its time on.

    Args:
        found: the pass.
        whose: told apart from the other pass by these words.
    """
    scores = found.scores
    times = {
        **{work.name: work.seconds for work in found.preparation},
        "base": scores.base_seconds,
        "retrieval": scores.retrieval_seconds,
    }
    parts = [Part(RUN, name + whose, seconds) for name, seconds in times.items()]
    parts += [Part(SHARED, name + whose, seconds) for name, seconds in scores.shared_seconds.items()]
    parts += [Part(METHOD, name, seconds) for name, seconds in scores.own_seconds.items()]
    return [part for part in parts if part.seconds]


def _method_result(
    name: str, rule: Rule, found: Pass, scenario: Scenario, settings: Hyperparameters, edges: tuple[int, ...]
) -> MethodResult:
    """Summarise what one method of a pass scored."""
    scores, values = found.scores, METHODS[name].hyperparameters(settings.methods)
    if name == DYNAMIC:
        values = {**asdict(settings.dynamic), **values}
    elif METHODS[name].moving:
        values = {DYNAMIC: asdict(settings.dynamic), "adaptation": values}
    counts: dict[str, Any] = {}
    if rule.needs.descents:
        counts = {
            "rose": scores.rose[name],
            "stabilized": scores.stabilized[name],
            "errors": scores.errors[name],
        }
    result = method_result(
        scores.nll[name],
        scenario.stream,
        hyperparameters=values,
        seconds=scores.seconds[name],
        **counts,
        edges=edges,
        whole=scenario.whole,
    )
    return replace(result, forgetting=found.forgetting.get(name))


def write_tokens(outcome: Outcome, scenario: Scenario, path: Any) -> None:
    """Write one row a token: position, token, counts in training and in the stream so far, is_oov, losses in nats."""
    stream = scenario.stream
    targets = stream.targets
    symbols = pa.array(stream.symbols, type=pa.string())
    columns = {
        "position": pa.array(np.arange(len(stream), dtype=np.int64)),
        "token": symbols.take(pa.array(targets)),
        "train_count": pa.array(stream.train_counts[targets]),
        "is_oov": pa.array(stream.oov),
        "seen": pa.array(occurrences_so_far(targets)),
        **{f"nll_{name}": pa.array(values) for name, values in outcome.nll.items()},
    }
    with atomic_path(path) as temporary:
        pq.write_table(pa.table(columns), temporary)
