"""The cost of a whole evaluation with every method, against the unadapted model alone."""

from __future__ import annotations

import itertools
import time
from functools import partial

import numpy as np

from awd_lstm import ARCHITECTURES
from hebblm.adapt.methods import METHODS
from hebblm.adapt.methods.cache import CacheConfig
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.defaults import paper_values
from hebblm.evaluation.hyperparameters import Hyperparameters
from recipes.bench.configs import METHODS as MEASURED
from recipes.bench.configs import EvalBenchConfig
from recipes.bench.harness import Harness, Rules
from recipes.bench.machine import peak_resident_bytes
from recipes.bench.record import Case, Rounds, Row
from recipes.bench.source import SyntheticSource
from recipes.bench.timing import Timing

PARTS = 10  # of the stream, each with its own cost


def cases(config: EvalBenchConfig, rounds: Rounds) -> list[Case]:
    """Return a case a memory size, smallest first, then currency, the stream, and many streams."""
    methods = method_settings()
    predictors = {name: METHODS[name].predictor(methods) for name in MEASURED}
    unadapted = {"lstm": predictors["lstm"]}
    architecture = ARCHITECTURES[config.arch](config.vocabulary)
    source = SyntheticSource(
        architecture.embedding_dim, config.vocabulary, seed=config.seed, device=rounds.device
    )
    longest = max(config.tokens, config.currency_tokens, config.stream_tokens)
    bench = Harness.of(
        source, architecture, longest, predictors, config.k, methods[CacheConfig].window
    )
    return [
        *(
            partial(_evaluation, config, bench, size, unadapted, rounds)
            for size in sorted(config.memory_sizes)
        ),
        partial(_currency, config, bench, rounds),
        partial(_stream, config, bench, rounds),
        partial(_streams, config, bench, unadapted, rounds),
    ]


def method_settings() -> MethodSettings:
    """Return the hyper-parameters of every method: the paper's for Penn Treebank."""
    return Hyperparameters().changed(paper_values("ptb", "ptb")).methods


def _evaluation(
    config: EvalBenchConfig, bench: Harness, size: int, unadapted: Rules, rounds: Rounds
) -> Row:
    """Fill the memory; evaluate all methods on it and the model alone in turn."""
    bench.fill(size)
    timings = rounds.times(
        {
            "lstm": bench.turn(unadapted, config.tokens, config.batch),
            "all": bench.turn(bench.predictors, config.tokens, config.batch),
        }
    )
    times = timings["all"].times(timings["lstm"]).named("times_lstm")
    values = {**times, "peak_bytes": float(peak_resident_bytes()), **bench.shares()}
    case = bench.case(entries=size, batch=config.batch)
    return Row("evaluation", case, timings, {}, values)


def _currency(config: EvalBenchConfig, bench: Harness, rounds: Rounds) -> Row:
    """Compare an update at every token with one a mini-batch, on the largest memory; and with
    tokens taken singly.
    """
    timings = rounds.times(
        {
            "mini_batch": bench.turn(bench.predictors, config.currency_tokens, config.batch),
            "every_token": bench.turn(bench.predictors, config.currency_tokens, 1),
        }
    )
    together = bench.scores.nll
    bench.rewind(config.currency_tokens)
    singly = bench.evaluate(bench.predictors, 1, read_ahead=False).nll
    differences = [np.abs(together[name] - singly[name]) for name in bench.predictors]
    values = {
        **timings["every_token"].times(timings["mini_batch"]).named("times"),
        "difference_mean": float(max(found.mean() for found in differences)),
        "difference_max": float(max(found.max() for found in differences)),
    }
    return Row("currency", bench.case(batch=config.batch), timings, {}, values)


def _stream(config: EvalBenchConfig, bench: Harness, rounds: Rounds) -> Row:
    """Follow the cost a token over a long stream: one timing a part of it, one entry a step of the
    evaluation.
    """
    for _ in range(config.repeats + 1):
        rounds.tick()
    bench.rewind(config.stream_tokens)
    stamps = [(time.perf_counter(), 0)]
    bench.evaluate(
        bench.predictors,
        config.batch,
        progress=lambda tokens: stamps.append((time.perf_counter(), stamps[-1][1] + tokens)),
    )
    steps = [
        (after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(stamps)
    ]
    parts = min(PARTS, len(steps))
    timings = {}
    for number in range(parts):
        some = steps[number * len(steps) // parts : (number + 1) * len(steps) // parts]
        seconds, tokens = zip(*some, strict=True)
        timings[f"part {number + 1}"] = Timing(seconds, tokens)
    first, last = (
        timings["part 1"].milliseconds().median,
        timings[f"part {parts}"].milliseconds().median,
    )
    case = bench.case(batch=config.batch, tokens=config.stream_tokens)
    return Row("stream", case, timings, {}, {"last_over_first": last / first})


def _streams(config: EvalBenchConfig, bench: Harness, unadapted: Rules, rounds: Rounds) -> Row:
    """Read the same tokens as one stream and as several in parallel, with the model alone and with
    all methods.

    The values are the milliseconds a token of each method had it run alone, at each number of
    streams.
    """
    predictors = {"lstm": unadapted, "all": bench.predictors}
    timings = rounds.times(
        {
            f"{name} {streams}": bench.turn(chosen, config.stream_tokens, config.batch, streams)
            for streams in (1, *config.streams)
            for name, chosen in predictors.items()
        }
    )
    single = {f"{name} {streams}": f"{name} 1" for streams in config.streams for name in predictors}
    values: dict[str, float] = {}
    for streams in (1, *config.streams):
        bench.rewind(config.stream_tokens, streams)
        bench.evaluate(bench.predictors, config.batch)
        values |= {f"{name} {streams}": spent for name, spent in bench.shares().items()}
    return Row(
        "streams",
        bench.case(batch=config.batch, tokens=config.stream_tokens),
        timings,
        single,
        values,
    )
