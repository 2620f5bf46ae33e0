"""Evaluation from scenario to result: all methods on one stream, numbers, token table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hebblm.adapt.methods import DYNAMIC, ENSEMBLES, METHODS
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.methods.rule import Rule
from hebblm.errors import UserError
from hebblm.evaluation.accuracy import NEVER, NOT_ASKED, AccuracyLog, TypedWords, letters_of
from hebblm.evaluation.checkpoint import RunCheckpoint
from hebblm.evaluation.components import ComponentLog, component_table
from hebblm.evaluation.documents import by_document
from hebblm.evaluation.forgetting import Probe
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.learned import LearnedWords
from hebblm.evaluation.neighbors import NeighborLog, neighbor_table
from hebblm.evaluation.passes import Pass, Watching, dynamic_pass, ensemble_scores, shared_pass
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.word_accuracy import WordsAsked, places_of
from hebblm.evaluation.written_words import written_words
from hebblm.io.files import atomic_path, sha256
from hebblm.io.locks import held
from hebblm.report import MethodResult, Result, ScenarioRecord, frequency_report
from hebblm.report.accuracy import Accuracy, Guesses, accuracy_report
from hebblm.report.buckets import (
    OOV_BY_OCCURRENCE,
    PIECES,
    occurrence_report,
    occurrences_so_far,
    stream_parts,
)
from hebblm.report.gains import Bootstrap, bootstrap_gains, lead, paired_gains
from hebblm.report.inspection import COMPONENTS_FILE, NEIGHBORS_FILE
from hebblm.report.methods import BASE
from hebblm.report.numbers import perplexity
from hebblm.report.result import FILE_NAME as RESULT_FILE
from hebblm.report.stored import METHOD, RUN, SHARED, Part, Seconds
from hebblm.report.tokens import FILE_NAME as TOKENS_FILE
from hebblm.report.tokens import FILES, running_curve
from hebblm.report.units import PIECES_OF_PARTS
from hebblm.runtime.ranks import ALONE, Ranks
from hebblm.text import EvaluationStream
from hebblm.text.dictionary import UNK
from hebblm.text.piece_texts import PieceTexts
from hebblm.text.subwords import Subwords

Losses = npt.NDArray[np.float32]


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
        with held(folder / RESULT_FILE, "a result"), ExitStack() as stack:
            files = {}
            for name, table in tables.items():
                temporary = stack.enter_context(atomic_path(folder / name))
                pq.write_table(table, temporary)
                files[name] = sha256(temporary)
            replace(self.result, extra={**self.result.extra, FILES: files}).save(folder)

    def tokens(self) -> pa.Table:
        """Return one row per token or, for a model of pieces, word.

        Its columns: position, token, counts in training and stream so far, is_oov, the word as it
        stands in the text with the blanks before it, the number of its pieces, losses, ranks.
        """
        stream = self.scenario.stream.reported
        targets, counts = stream.targets, stream.target_counts
        symbols = pa.array(stream.symbols, type=pa.string())
        written, pieces = written_words(self.scenario), self.scenario.stream.pieces
        columns = {
            "position": pa.array(np.arange(len(stream), dtype=np.int64)),
            "token": symbols.take(pa.array(targets)),
            "train_count": pa.array(counts)
            if counts is not None
            else pa.nulls(len(stream), pa.int64()),
            "is_oov": pa.array(stream.oov),
            "seen": pa.array(occurrences_so_far(targets)),
            **({} if written is None else {"text": pa.array(written, type=pa.string())}),
            **(
                {}
                if pieces is None
                else {"pieces": pa.array(pieces.sums(np.ones(len(self.scenario.stream))))}
            ),
            **{f"nll_{name}": pa.array(values) for name, values in self.nll.items()},
            **{
                f"rank_{name}": pa.array(found.rank, mask=found.rank == NOT_ASKED)
                for name, found in self.guesses.items()
            },
        }
        return pa.table(columns)


def run_scenario(
    scenario: Scenario,
    methods: list[str],
    settings: Hyperparameters,
    provenance: dict[str, Any],
    edges: tuple[int, ...],
    *,
    log_neighbors: int = 0,
    forgetting: int | None = None,
    check: bool = False,
    accuracy: int | Sequence[int] = 0,
    show_learned: bool = False,
    ranks: Ranks = ALONE,
    checkpoint: RunCheckpoint | None = None,
) -> Evaluation | None:
    """Evaluate every method on the scenario's stream.

    Args:
        scenario: the opened scenario.
        methods: names in the order of the tables; an ensemble's parts are among them.
        settings: hyper-parameters.
        provenance: command, commit, versions, device, seed.
        edges: bounds of the frequency buckets.
        log_neighbors: number of tokens whose neighbours to log, from the beginning of the stream.
        forgetting: tokens of the source's own text to score before and after; None skips this.
        check: see :class:`~hebblm.evaluation.loop.Hooks`.
        accuracy: also find how well each method suggests words, except ensembles: all where tokens
            are words, else so many, or those of some numbers; 0 or no numbers for none.
        show_learned: also ask for what was learned, see
            :class:`~hebblm.evaluation.learned.LearnedWords`.
        ranks: processes that share the streams.
        checkpoint: checkpoint of the run, None without one.

    Returns:
        The evaluation; None for ranks other than the first.

    Raises:
        UserError: a log of neighbours although no method retrieves; forgetting within one domain; a
            method whose losses have become nan.
    """
    started, config = time.perf_counter(), scenario.config
    built = {name: METHODS[name].rule(settings.methods) for name in methods if name in METHODS}
    rules = {name: rule for name, rule in built.items() if not METHODS[name].moving}
    moving = {name: rule for name, rule in built.items() if METHODS[name].moving}
    if moving:
        scenario.check_statistics(settings.dynamic)
    probe = None if forgetting is None else Probe.of(scenario, forgetting)
    log, parts = None, None
    if log_neighbors:
        if not any(rule.needs.retrieval for rule in rules.values()):
            raise UserError(
                f"{','.join(methods)} look up no neighbours; add a method that does, such as knn"
            )
        log = NeighborLog(log_neighbors, settings.methods[MbpaConfig], write=scenario.writes)
        parts = ComponentLog(log_neighbors, rules)
    logs, asked = _accuracy(scenario, accuracy, rules, moving)
    shared, dynamic = Pass(EvaluationScores({})), Pass(EvaluationScores({}))
    if rules:
        observers = [observer for observer in (log, parts, *logs[:1]) if observer is not None]
        learned = None
        if show_learned:
            pieces = scenario.dictionary if isinstance(scenario.dictionary, Subwords) else None
            learned = LearnedWords(scenario.stream, scenario.vocabulary, pieces)
        watching = Watching(
            probe, check, observers, asked[0] if asked else None, learned, checkpoint
        )
        shared = shared_pass(scenario, rules, settings, watching, ranks)
    if not ranks.leads:
        return None
    if moving:
        watching = Watching(probe, check, logs[1:], asked[1] if asked else None, None, checkpoint)
        dynamic = dynamic_pass(scenario, moving, settings, watching)
        settings = replace(settings, dynamic=dynamic.dynamic or settings.dynamic)
    passes = {name: dynamic if name in moving else shared for name in built}
    ensembles = [name for name in methods if name in ENSEMBLES]
    mixed = ensemble_scores(
        ensembles, {name: found.scores for name, found in passes.items()}, config.update_every
    )
    passes |= dict.fromkeys(ensembles, Pass(mixed))
    by_token = {name: passes[name].scores.nll[name] for name in methods}
    for name, losses in by_token.items():
        if lost := int(np.isnan(losses).sum()):
            rates = METHODS[name].rates(settings.methods)
            raise UserError(
                f"{name}: {lost:,} of {len(losses):,} losses are nan; lower {rates} (--set)"
            )
    nll = {name: scenario.stream.word_losses(losses) for name, losses in by_token.items()}
    bootstrap = Bootstrap(seed=config.seed)
    noted: list[AccuracyLog | WordsAsked] = [*logs, *asked]
    guesses = {
        name: found
        for each in noted
        if each.rules
        for name, found in each.guesses(scenario.stream).items()
    }
    suggested = _suggested(scenario.stream, guesses, edges, bootstrap)
    gains, paired = _gains(scenario, nll, by_token, edges, bootstrap)
    results: dict[str, MethodResult] = {}
    for name, found in passes.items():
        result = method_result(
            name,
            found.scores,
            scenario.stream,
            _hyperparameters(name, settings),
            edges,
            measured=scenario.measured,
            checked=check and name in built and bool(built[name].needs.descents),
        )
        results[name] = replace(
            result,
            gains=gains.get(name, ()),
            forgetting=found.forgetting.get(name),
            accuracy=suggested.get(name, ()),
        )
    extra: dict[str, Any] = {
        "bootstrap": asdict(bootstrap),
        "lead": lead(by_token, bootstrap),
        "paired": paired,
    }
    if probe is not None:
        extra["forgetting"] = probe.describe()
    if scenario.closed:
        extra[PIECES_OF_PARTS] = _pieces_of_parts(scenario.stream, edges)
    if shared.suggested:
        extra["suggested"] = shared.suggested
    if scenario.documents:
        extra["documents"] = by_document(scenario.documents, scenario.stream, by_token)
    whole = Result(
        scenario=_record(scenario, shared.exchanged),
        model={**scenario.model.describe(), "update": asdict(settings.base)},
        memory={
            **(shared.memory or dynamic.memory),
            "content": config.memory_content,
            "k": config.k,
        },
        provenance={**provenance, "data_sha256": scenario.data_sha256},
        methods=results,
        seconds=Seconds(
            time.perf_counter()
            - started
            + sum(found.scores.earlier_seconds for found in (shared, dynamic)),
            (*_parts(shared), *_parts(dynamic, " of dynamic evaluation")),
        ),
        extra=extra,
    )
    return Evaluation(scenario, whole, nll, guesses, log, parts)


def _gains(
    scenario: Scenario,
    nll: Mapping[str, Losses],
    by_token: Mapping[str, Losses],
    edges: tuple[int, ...],
    bootstrap: Bootstrap,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the gains of the methods, by name, and the gains of each over each other."""
    stream = scenario.stream.reported
    parts = stream_parts(
        stream.target_counts, occurrences_so_far(stream.targets), stream.oov, edges
    )
    gains = bootstrap_gains(nll, parts, bootstrap)
    larger = {name: part for name, part in parts.items() if name not in OOV_BY_OCCURRENCE}
    paired = paired_gains(nll, larger, bootstrap)
    if (
        scenario.closed
    ):  # gains a piece as well as a word, because a text without blanks has few words
        every = {PIECES: np.ones(len(scenario.stream), dtype=np.bool_)}
        for name, of_pieces in bootstrap_gains(by_token, every, bootstrap).items():
            gains[name] += of_pieces
        for name, others in paired_gains(by_token, every, bootstrap).items():
            for other, part in others.items():
                paired[name][other] |= part
    return gains, paired


def _pieces_of_parts(stream: EvaluationStream, edges: tuple[int, ...]) -> dict[str, int]:
    """Return the pieces of each part of the text; a piece of several words counts for each in equal
    parts.
    """
    assert stream.pieces is not None
    words, pieces = stream.reported, stream.pieces.sums(np.ones(len(stream)))
    parts = stream_parts(words.target_counts, occurrences_so_far(words.targets), words.oov, edges)
    return {name: round(float(pieces[mask].sum())) for name, mask in parts.items()}


def _accuracy(
    scenario: Scenario, accuracy: int | Sequence[int], *passes: Mapping[str, Rule]
) -> tuple[tuple[AccuracyLog, ...], tuple[WordsAsked, ...]]:
    """Return the logs of the methods of each pass, of all words or of those that are asked for;
    both may be empty.
    """
    stream = scenario.stream
    if not accuracy:
        return (), ()
    if isinstance(scenario.dictionary, Subwords):
        texts, places = PieceTexts(scenario.dictionary), places_of(stream, accuracy)
        return (), tuple(WordsAsked(rules, texts, stream, places) for rules in passes)
    unknown = stream.symbols.index(UNK) if UNK in stream.symbols else None
    return tuple(AccuracyLog(rules, TypedWords(stream.symbols), unknown) for rules in passes), ()


def _suggested(
    stream: EvaluationStream,
    guesses: Mapping[str, Guesses],
    edges: tuple[int, ...],
    bootstrap: Bootstrap,
) -> dict[str, tuple[Accuracy, ...]]:
    """Return how well methods suggest words, part by part."""
    words = stream.reported
    parts = stream_parts(words.target_counts, occurrences_so_far(words.targets), words.oov, edges)
    unknown = words.symbols.index(UNK) if UNK in words.symbols else NEVER
    order = [name for name in (BASE, *guesses) if name in guesses]  # gains are over the base
    there = words.targets != unknown
    for found in guesses.values():  # all were asked for the same words
        there &= found.rank != NOT_ASKED
    return accuracy_report(
        {name: guesses[name] for name in order}, letters_of(stream), there, parts, bootstrap
    )


def _record(scenario: Scenario, exchanged: Mapping[str, Any] | None) -> ScenarioRecord:
    """Return a result's record of its scenario; ``exchanged`` is the traffic between processes,
    None for one.
    """
    config, stream = scenario.config, scenario.stream.reported
    return ScenarioRecord(
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
            **({} if scenario.total is None else {"split_tokens": scenario.total}),
            "unk_tokens": stream.occurrences(UNK),
            "tokenizer": scenario.training_tokenizer,
            "target_tokenizer": scenario.tokenizer,
            **({} if scenario.column is None else {"column": scenario.column}),
            **scenario.pieces(),
            **(
                {}
                if config.streams == 1
                else {"streams": config.streams, "memory_scope": config.memory_scope}
            ),
            **({} if exchanged is None else {"processes": exchanged}),
        },
    )


def method_result(
    name: str,
    scores: EvaluationScores,
    stream: EvaluationStream,
    hyperparameters: Mapping[str, Any],
    edges: Sequence[int],
    *,
    measured: bool,
    checked: bool,
) -> MethodResult:
    """Return a summary of one method's losses, by word, and by piece if tokens are pieces of
    words.
    """
    words = stream.reported
    losses = stream.word_losses(scores.nll[name]).astype(np.float64)
    seconds, errors = scores.seconds[name], scores.errors[name]
    oov = words.oov
    mean, total, counts = (
        float(losses.mean()),
        float(scores.nll[name].sum(dtype=np.float64)),
        words.target_counts,
    )
    units = (
        stream.words + stream.lines
    )  # a word count leaves out ends of line; token perplexity scores them
    piece = total / len(stream) if words is not stream else None
    fast_error = {
        "queries": len(errors),
        "mean": sum(errors) / max(1, len(errors)),
        "max": max(errors, default=0.0),
    }
    return MethodResult(
        nll=mean,
        perplexity=perplexity(mean),
        oov_nll=float(losses[oov].mean()) if oov.any() else None,
        in_vocabulary_nll=None if oov.all() else float(losses[~oov].mean()),
        frequency=() if counts is None else tuple(frequency_report(losses, counts, tuple(edges))),
        hyperparameters=hyperparameters,
        seconds=seconds,
        tokens_per_second=len(stream) / seconds if seconds else 0.0,
        rose_queries=scores.rose[name] if checked else None,
        stabilized_queries=scores.stabilized[name] if checked else None,
        words_perplexity=perplexity(total / units) if measured else None,
        bits_per_byte=stream.bits_per_byte(total / len(stream)) if measured else None,
        running=tuple(running_curve(scores.nll[name])),
        oov_occurrences=tuple(occurrence_report(losses, occurrences_so_far(words.targets), oov)),
        piece_nll=piece,
        piece_perplexity=None if piece is None else perplexity(piece),
        extra={"fast_error": fast_error} if errors else {},
    )


def _parts(found: Pass, whose: str = "") -> list[Part]:
    scores = found.scores
    times = {
        **{work.name: work.seconds for work in found.preparation},
        "base": scores.base_seconds,
        "retrieval": scores.retrieval_seconds,
    }
    parts = [Part(RUN, name + whose, seconds) for name, seconds in times.items()]
    parts += [
        Part(SHARED, name + whose, seconds) for name, seconds in scores.shared_seconds.items()
    ]
    parts += [Part(METHOD, name, seconds) for name, seconds in scores.own_seconds.items()]
    return [part for part in parts if part.seconds]


def _hyperparameters(name: str, settings: Hyperparameters) -> dict[str, Any]:
    """Return the settings that a method depends on, as JSON."""
    if name in ENSEMBLES:
        return {part: _hyperparameters(part, settings) for part in ENSEMBLES[name].parts}
    values, dynamic = METHODS[name].hyperparameters(settings.methods), asdict(settings.dynamic)
    if name == DYNAMIC:
        return {**dynamic, **values}
    return {DYNAMIC: dynamic, "adaptation": values} if METHODS[name].moving else values
