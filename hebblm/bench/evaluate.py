"""The cost of a whole evaluation with every method, against the unadapted model alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
import torch

from awd_lstm import ARCHITECTURES
from hebblm.adapt import METHODS, MethodSettings, Rule
from hebblm.bench.configs import EvalConfig
from hebblm.bench.harness import Harness
from hebblm.bench.machine import peak_resident_bytes
from hebblm.bench.record import Noted, Row, as_measured
from hebblm.bench.source import ModelSource, Source, SyntheticSource, open_source
from hebblm.bench.stand_in import Reading, model_reading, synthetic_reading
from hebblm.bench.timing import Tick, Timing, interleave, stopwatch
from hebblm.evaluation.defaults import paper_values
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Scores, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import MemoryConfig
from hebblm.models.awd import AwdBase
from hebblm.models.dynamic import DynamicBase, DynamicConfig

PARTS = 10  # of the stream, each with its own cost


def case_count(config: EvalConfig) -> int:
    """Return the number of rows that :func:`measure` yields."""
    return len(config.memory_sizes) + 4


def measure(
    config: EvalConfig, device: torch.device, tick: Tick, noted: Noted = as_measured
) -> Iterator[Row]:
    """Return one row a memory size, smallest first, then the price of currency, the stream, many streams, dynamic
    evaluation.

    Args:
        config: sizes and settings.
        device: where to compute.
        tick: called after every round.
        noted: called with each row of a whole evaluation and what was evaluated.
    """
    source, reading = _open(config, device)
    methods = method_settings()
    rules = {name: METHODS[name].rule(methods) for name in config.names()}
    memory = MemoryConfig(index=config.index, dtype=config.dtype)
    bench = Harness(source, reading, rules, memory, config.k, methods.cache.window, device)
    return _rows(config, bench, {"lstm": METHODS["lstm"].rule(methods)}, tick, noted)


def method_settings() -> MethodSettings:
    """Return the hyper-parameters of every method: the paper's for Penn Treebank."""
    return Hyperparameters().changed(paper_values("ptb", "ptb")).methods


def _rows(
    config: EvalConfig, bench: Harness, unadapted: dict[str, Rule], tick: Tick, noted: Noted
) -> Iterator[Row]:
    """Yield the rows."""
    for size in sorted(config.memory_sizes):
        bench.fill(size)
        timings = interleave(
            {
                "lstm": bench.turn(unadapted, config.tokens, config.batch),
                "all": bench.turn(bench.rules, config.tokens, config.batch),
            },
            config.repeats,
            tick,
        )
        times = timings["all"].times(timings["lstm"])
        values = {
            "times_lstm": times.median,
            "times_lstm_min": times.low,
            "times_lstm_max": times.high,
            "peak_bytes": float(peak_resident_bytes()),
            **bench.shares(config.tokens),
        }
        case = bench.case(entries=size, batch=config.batch)
        yield noted(Row("evaluation", case, timings, {}, values), bench)
    yield _currency(config, bench, tick)
    yield _stream(config, bench, tick)
    yield _streams(config, bench, unadapted, tick)
    yield _dynamic(config, bench, unadapted, tick)


def _open(config: EvalConfig, device: torch.device) -> tuple[Source, Reading]:
    """Return the source of the entries, and the stream."""
    if config.checkpoint is not None:
        model: ModelSource = open_source(config.checkpoint, config.corpus, device)
        return model, model_reading(model, config.longest())
    architecture = ARCHITECTURES[config.arch](config.vocabulary)
    source = SyntheticSource(architecture.embedding_dim, config.vocabulary, seed=config.seed, device=device)
    return source, synthetic_reading(source, architecture, config.longest(), config.seed)


def _currency(config: EvalConfig, bench: Harness, tick: Tick) -> Row:
    """Compare an update at every token with one a mini-batch, on the largest memory; and with tokens taken singly."""
    timings = interleave(
        {
            "mini_batch": bench.turn(bench.rules, config.currency_tokens, config.batch),
            "every_token": bench.turn(bench.rules, config.currency_tokens, 1),
        },
        config.repeats,
        tick,
    )
    together = bench.scores.nll
    stream = replace(bench.reading.stream, ids=bench.reading.stream.ids[: config.currency_tokens])
    singly = bench.evaluate(bench.context(), bench.rules, stream, 1, read_ahead=False).nll
    differences = [np.abs(together[name] - singly[name]) for name in bench.rules]
    times = timings["every_token"].times(timings["mini_batch"])
    values = {
        "times": times.median,
        "times_min": times.low,
        "times_max": times.high,
        "difference_mean": float(max(found.mean() for found in differences)),
        "difference_max": float(max(found.max() for found in differences)),
    }
    return Row("currency", bench.case(batch=config.batch), timings, {}, values)


def _stream(config: EvalConfig, bench: Harness, tick: Tick) -> Row:
    """Follow the cost a token over a long stream: one timing a part of it, one entry a step of the evaluation."""
    stamps: list[tuple[float, int]] = []
    stream = replace(bench.reading.stream, ids=bench.reading.stream.ids[: config.stream_tokens])
    for _ in range(config.repeats + 1):
        tick()
    stamps.append((time.perf_counter(), 0))
    context = bench.context()
    bench.evaluate(
        context,
        bench.rules,
        stream,
        config.batch,
        progress=lambda tokens: stamps.append((time.perf_counter(), stamps[-1][1] + tokens)),
    )
    steps = [(after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(stamps)]
    parts = min(PARTS, len(steps))
    timings = {}
    for number in range(parts):
        some = steps[number * len(steps) // parts : (number + 1) * len(steps) // parts]
        seconds, tokens = zip(*some, strict=True)
        timings[f"part {number + 1}"] = Timing(seconds, tokens)
    first, last = timings["part 1"].milliseconds().median, timings[f"part {parts}"].milliseconds().median
    return Row(
        "stream",
        bench.case(batch=config.batch, tokens=len(stream)),
        timings,
        {},
        {"last_over_first": last / first},
    )


def _streams(config: EvalConfig, bench: Harness, unadapted: dict[str, Rule], tick: Tick) -> Row:
    """Read the same tokens as one stream and as several side by side, with the model alone and with all methods."""
    rules = {"lstm": unadapted, "all": bench.rules}
    turns = {
        f"{name} {streams}": bench.turn(chosen, config.stream_tokens, config.batch, streams)
        for streams in (1, *config.streams)
        for name, chosen in rules.items()
    }
    timings = interleave(turns, config.repeats, tick)
    single = {f"{name} {streams}": f"{name} 1" for streams in config.streams for name in rules}
    return Row("streams", bench.case(batch=config.batch, tokens=config.stream_tokens), timings, single)


def _dynamic(config: EvalConfig, bench: Harness, unadapted: dict[str, Rule], tick: Tick) -> Row:
    """Time dynamic evaluation, which moves a base of its own, beside the unadapted model."""
    reading = bench.reading
    stream = replace(reading.stream, ids=reading.stream.ids[: config.currency_tokens])
    settings = DynamicConfig(rule="sgd")

    def dynamic() -> tuple[float, int]:
        base = DynamicBase(AwdBase(reading.model), settings, None)
        context = bench.context()
        context.fixed = False
        context.set_head(base.head)

        def read() -> Scores:
            return evaluate(
                base,
                context,
                unadapted,
                stream,
                UnionVocabulary(),
                update_every=settings.segment,
                write=False,
            )

        return stopwatch(read, len(stream), bench.device)()

    timings = interleave(
        {"lstm": bench.turn(unadapted, len(stream), config.batch), "dynamic": dynamic}, config.repeats, tick
    )
    times = timings["dynamic"].times(timings["lstm"])
    case = bench.case(settings=asdict(settings))
    return Row("dynamic", case, timings, {}, {"times_lstm": times.median})
