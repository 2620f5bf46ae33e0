"""The cost of a whole evaluation with every method, against the unadapted model alone."""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict
from functools import partial

import numpy as np
import torch

from awd_lstm import ARCHITECTURES
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.methods.rule import Rule
from hebblm.adapt.settings import MethodSettings
from hebblm.bench.configs import EvalBenchConfig
from hebblm.bench.harness import Harness
from hebblm.bench.machine import peak_resident_bytes
from hebblm.bench.record import Case, Rounds, Row
from hebblm.bench.source import ModelSource, Source, SyntheticSource, open_source
from hebblm.bench.stand_in import Workload, model_workload, synthetic_workload
from hebblm.bench.timing import Timing, stopwatch
from hebblm.evaluation.defaults import paper_values
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.memory import MemoryConfig
from hebblm.models.awd import AwdBase
from hebblm.models.dynamic import DynamicBase, DynamicConfig

PARTS = 10  # of the stream, each with its own cost


def cases(config: EvalBenchConfig, rounds: Rounds) -> list[Case]:
    """Return a case a memory size, smallest first, then currency, the stream, many streams, dynamic evaluation."""
    source, workload = _open(config, rounds.device)
    methods = method_settings()
    rules = {name: METHODS[name].rule(methods) for name in config.names()}
    unadapted = {"lstm": METHODS["lstm"].rule(methods)}
    memory = MemoryConfig(index=config.index, dtype=config.dtype)
    bench = Harness(source, workload, rules, memory, config.k, methods[CacheConfig].window, rounds.device)
    return [
        *(partial(_evaluation, config, bench, size, unadapted, rounds) for size in sorted(config.memory_sizes)),
        partial(_currency, config, bench, rounds),
        partial(_stream, config, bench, rounds),
        partial(_streams, config, bench, unadapted, rounds),
        partial(_dynamic, config, bench, unadapted, rounds),
    ]


def method_settings() -> MethodSettings:
    """Return the hyper-parameters of every method: the paper's for Penn Treebank."""
    return Hyperparameters().changed(paper_values("ptb", "ptb")).methods


def _evaluation(config: EvalBenchConfig, bench: Harness, size: int, unadapted: dict[str, Rule], rounds: Rounds) -> Row:
    """Fill the memory; evaluate all methods on it and the model alone in turn."""
    bench.fill(size)
    timings = rounds.times(
        {
            "lstm": bench.turn(unadapted, config.tokens, config.batch),
            "all": bench.turn(bench.rules, config.tokens, config.batch),
        }
    )
    values = {
        **timings["all"].times(timings["lstm"]).named("times_lstm"),
        "peak_bytes": float(peak_resident_bytes()),
        **bench.shares(),
    }
    case = bench.case(entries=size, batch=config.batch)
    return Row("evaluation", case, timings, {}, values, {"bench": bench})


def _open(config: EvalBenchConfig, device: torch.device) -> tuple[Source, Workload]:
    """Return the source of the entries, and the stream."""
    if config.checkpoint is not None:
        model: ModelSource = open_source(config.checkpoint, config.corpus, device)
        return model, model_workload(model, config.longest())
    architecture = ARCHITECTURES[config.arch](config.vocabulary)
    source = SyntheticSource(architecture.embedding_dim, config.vocabulary, seed=config.seed, device=device)
    return source, synthetic_workload(source, architecture, config.longest(), config.seed)


def _currency(config: EvalBenchConfig, bench: Harness, rounds: Rounds) -> Row:
    """Compare an update at every token with one a mini-batch, on the largest memory; and with tokens taken singly."""
    timings = rounds.times(
        {
            "mini_batch": bench.turn(bench.rules, config.currency_tokens, config.batch),
            "every_token": bench.turn(bench.rules, config.currency_tokens, 1),
        }
    )
    together = bench.scores.nll
    bench.rewind(config.currency_tokens)
    singly = bench.evaluate(bench.rules, 1, read_ahead=False).nll
    differences = [np.abs(together[name] - singly[name]) for name in bench.rules]
    values = {
        **timings["every_token"].times(timings["mini_batch"]).named("times"),
        "difference_mean": float(max(found.mean() for found in differences)),
        "difference_max": float(max(found.max() for found in differences)),
    }
    return Row("currency", bench.case(batch=config.batch), timings, {}, values)


def _stream(config: EvalBenchConfig, bench: Harness, rounds: Rounds) -> Row:
    """Follow the cost a token over a long stream: one timing a part of it, one entry a step of the evaluation."""
    for _ in range(config.repeats + 1):
        rounds.tick()
    bench.rewind(config.stream_tokens)
    stamps = [(time.perf_counter(), 0)]
    bench.evaluate(
        bench.rules,
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
    case = bench.case(batch=config.batch, tokens=len(bench.stream))
    return Row("stream", case, timings, {}, {"last_over_first": last / first})


def _streams(config: EvalBenchConfig, bench: Harness, unadapted: dict[str, Rule], rounds: Rounds) -> Row:
    """Read the same tokens as one stream and as several side by side, with the model alone and with all methods.

    The values are the milliseconds a token of each method had it run alone, at each number of streams.
    """
    rules = {"lstm": unadapted, "all": bench.rules}
    timings = rounds.times(
        {
            f"{name} {streams}": bench.turn(chosen, config.stream_tokens, config.batch, streams)
            for streams in (1, *config.streams)
            for name, chosen in rules.items()
        }
    )
    single = {f"{name} {streams}": f"{name} 1" for streams in config.streams for name in rules}
    values: dict[str, float] = {}
    for streams in (1, *config.streams):
        bench.rewind(config.stream_tokens, streams)
        bench.evaluate(bench.rules, config.batch)
        values |= {f"{name} {streams}": spent for name, spent in bench.shares().items()}
    return Row("streams", bench.case(batch=config.batch, tokens=config.stream_tokens), timings, single, values)


def _dynamic(config: EvalBenchConfig, bench: Harness, unadapted: dict[str, Rule], rounds: Rounds) -> Row:
    """Time dynamic evaluation, which moves a base of its own, beside the unadapted model."""
    tokens, settings = config.currency_tokens, DynamicConfig(rule="sgd", lr=8e-4)

    def moving() -> None:
        bench.rewind(tokens)
        bench.base = DynamicBase(AwdBase(bench.workload.model), settings, None)
        bench.context.fixed = False
        bench.context.set_head(bench.base.head)

    def read() -> object:
        return bench.evaluate(unadapted, settings.segment, read_ahead=False)

    timings = rounds.times(
        {
            "lstm": bench.turn(unadapted, tokens, config.batch),
            "dynamic": stopwatch(read, tokens, bench.device, before=moving),
        }
    )
    times = timings["dynamic"].times(timings["lstm"])
    case = bench.case(settings=asdict(settings))
    return Row("dynamic", case, timings, {}, {"times_lstm": times.median})
