"""Numbers at their ends stay finite or are refused; memory, files and time stay flat over a million
tokens.
"""

from __future__ import annotations

import gc
import math
import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.context import Context
from hebblm.adapt.methods import DYNAMIC, METHODS
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.memory import AnyMemory, FlatMemory, MemoryConfig, build_memory
from hebblm.types import OutputHead

from ..support import toy
from .sandbox import FOREVER, Case, Clock, Group, Writer, make_world, run

RULES = [name for name in METHODS if name != DYNAMIC]
EVALUATIONS = 100
EVALUATED = (
    "--checkpoint {root}/model --text {root}/other.txt --device cpu --max-tokens 60 --k 5 "
    "--update-every 10 "
    "--methods lstm,cache,knn,mixture,mbpa,mbpa-absolute,hebb,mixture+hebb,best"
)
NO_NUMBER = re.compile(r"(?<![\w/.])(nan|inf|infinity|∞)(?![\w])", re.IGNORECASE)
HALF = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, torch.float64, *HALF)
NOT_FINITE_ITSELF = "the base is not finite"
CLASSES, WIDTH, COUNT = 300, 8, 5_000


@dataclass(frozen=True)
class Problem:
    """What a method is asked."""

    method: str
    settings: dict[str, Any]  # by dotted name
    head_dtype: torch.dtype  # of states and softmax layer
    key_dtype: torch.dtype  # of the memory
    norm: float  # of the states, and of the keys
    duplicates: bool  # every key is one of three
    entries: int  # in memory
    seed: int  # of all numbers


def problem(seed: int) -> Problem:
    draw = random.Random(f"numbers {seed}")

    def between(low: float, high: float) -> float:
        return 10 ** draw.uniform(math.log10(low), math.log10(high))

    optimizer = draw.choice(("newton", "sgd", "rmsprop"))
    rate = draw.choice(
        ("guarded", "absolute") if optimizer == "rmsprop" else ("relative", "guarded", "absolute")
    )
    settings: dict[str, Any] = {
        "mbpa.optimizer": optimizer,
        "mbpa.solver": "exact" if optimizer == "rmsprop" else draw.choice(("fast", "exact")),
        "mbpa.lr_units": rate,
        "mbpa.lr": between(1e-6, 1e6),
        "mbpa.steps": draw.choice((1, 3, 15)),
        "mbpa.eps": between(1e-12, 10),
        "mbpa.l2_to_base": between(1e-6, 1e3),
        "mbpa.scale": draw.choice(("relative", "absolute")),
        "mbpa.kernel_weight": draw.choice(("raw", "sum", "max")),
        "mbpa_absolute.lr": between(1e-6, 1e6),
        "mbpa_absolute.eps": between(1e-12, 10),
        "hebb.eta": between(1e-6, 1e6),
        "hebb.kernel_weight": draw.choice(("raw", "sum", "max")),
        "hebb.scale": draw.choice(("relative", "absolute")),
        "hebb.gate": draw.choice(("gated", "literal")),
        "mixture.theta": between(1e-6, 1e6),
        "mixture.scale": draw.choice(("relative", "absolute")),
        "knn.temperature": between(1e-6, 1e6),
        "cache.theta": between(1e-6, 1e6),
    }
    return Problem(
        method=draw.choice(RULES),
        settings=settings,
        head_dtype=draw.choice((*[torch.float32] * 6, torch.float64, *HALF)),
        key_dtype=draw.choice(DTYPES),
        norm=draw.choice((1e-6, 1e-3, 1.0, 1e3, 1e6)),
        duplicates=draw.random() < 0.3,
        entries=draw.choice((0, 1, 7, 60)),
        seed=seed,
    )


def trial(asked: Problem) -> str:
    """Return "finite", "refused", or what was wrong."""
    try:
        settings = Hyperparameters().changed(asked.settings).methods
        rule = METHODS[asked.method].predictor(settings)
        dtype = asked.head_dtype
        states = toy.randn(asked.seed, 90, WIDTH, dtype=torch.float64)
        states = (states * (asked.norm / states.norm(dim=1, keepdim=True))).to(dtype)
        if not states.isfinite().all():
            states = states.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
        head = OutputHead(
            toy.randn(1, CLASSES, WIDTH, dtype=dtype), toy.randn(2, CLASSES, dtype=dtype)
        )
        if not head.logits(states).isfinite().all():
            return NOT_FINITE_ITSELF
        new = torch.arange(CLASSES) >= CLASSES - 20
        context = Context(
            head, FlatMemory(WIDTH, dtype=asked.key_dtype), k=7,
            train_counts=torch.arange(CLASSES).masked_fill(new, 0), new_classes=new, window=13,
        )  # fmt: skip
        context.learn_mixture_weights([rule])
        places = torch.arange(asked.entries)
        keys = states[places % 3] if asked.duplicates else states[places]
        labels = torch.randint(
            0, CLASSES, (asked.entries,), generator=torch.Generator().manual_seed(asked.seed)
        )
        half = asked.entries // 2
        for part in (slice(0, half), slice(half, None)):
            if len(labels[part]):
                toy.observe(context, keys[part], labels[part])
        batch = EvalBatch(torch.cat([states[:3], states[-9:]]), context)
        targets = torch.randint(
            0, CLASSES, (12,), generator=torch.Generator().manual_seed(asked.seed + 1)
        )
        scores, whole = rule.score(batch, targets), rule.log_probs(EvalBatch(batch.hidden, context))
    except UserError as error:
        return "refused" if "\n" not in str(error) else f"refused in several lines: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not scores.isfinite().all():
        return f"score {float(scores[~scores.isfinite()][0])}"
    if whole.isnan().any() or (whole == math.inf).any():
        return "log-probability nan or inf"
    if not whole.gather(1, targets[:, None]).isfinite().all():
        return "log-probability of a target -inf"
    return "finite"


def tables(scratch: Path, count: int, clock: Clock = FOREVER) -> Case:
    """Evaluate with such settings, and look for what is no number in everything that is written."""
    root, case, refused = scratch / "world", Case(), 0
    make_world(root)
    for seed in range(count):
        if clock.over():
            break
        asked = problem(seed)
        dtype = str(asked.key_dtype).removeprefix("torch.").replace("float64", "float32")
        changes = " ".join(f"{name}={value}" for name, value in asked.settings.items())
        line = f"eval {EVALUATED} --set {changes} memory.dtype={dtype} --output-path {{out}}"
        out = scratch / str(seed)
        ended = run(Writer.of("eval", line), root, out, {"HEBBLM_CACHE": str(scratch / "cache")})
        refused += ended.status == 2
        wrong = ended.defect()
        for path in out.rglob("*") if not wrong and ended.status == 0 else ():
            if path.suffix in (".md", ".csv", ".json", ".tex") and (
                found := NO_NUMBER.search(path.read_text())
            ):
                wrong = f"{path.name} says {found[0]}"
        case.count(f"seed {seed}: {wrong}" if wrong else "")
    case.note = f"{refused:,} refused"
    return case


def number_cases(scratch: Path, clock: Clock) -> Iterator[tuple[str, Case]]:
    """Try every seed; yield the methods' figures, and those of whole evaluations."""
    found = {name: Case() for name in RULES}
    refused = dict.fromkeys(RULES, 0)
    methods = Clock(None if clock.minutes is None else clock.minutes / 2)
    for seed in range(COUNT):
        if methods.over():
            break
        asked = problem(seed)
        what = trial(asked)
        if what == NOT_FINITE_ITSELF:
            continue
        refused[asked.method] += what == "refused"
        found[asked.method].count("" if what in ("finite", "refused") else f"seed {seed}: {what}")
    for name, case in found.items():
        case.note = f"{refused[name]:,} refused"
        if case.tried:
            yield name, case
    if not clock.over():
        yield "tables of whole evaluations", tables(scratch, EVALUATIONS, clock)


TOKENS, EVERY = 1_000_000, 1_000
K = 8
# Bytes of resident memory that may come beside the entries: pages of allocators, buffers that
# doubled.
GROWTH = 24 << 20
# the last tenth may take so much longer a token than the first; the machine is not ours alone
SLOWER = 1.5
LOSS = 4  # bytes of a token in the result of a method
ENTRY = 8 + 4 + 4 + 4 * toy.DIM  # bytes of an entry of a growing memory


@dataclass
class Watch:
    """What was measured on the way."""

    total: int
    tokens: int = 0  # read so far
    # (tokens, resident bytes, open files, processor seconds) at every hundredth of the way
    points: list[tuple[int, int, int, float]] = field(default_factory=list)

    def __call__(self, tokens: int) -> None:
        """Count tokens, and measure."""
        self.tokens += tokens
        while self.tokens >= (len(self.points) + 1) * self.total // 100:
            if len(self.points) in (9, 99):
                gc.collect()
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf(
                "SC_PAGE_SIZE"
            )
            self.points.append(
                (self.tokens, resident, len(os.listdir("/proc/self/fd")), time.process_time())
            )

    def defects(self, methods: int, growing: bool, slower: float) -> list[str]:
        """Return what is not flat from the first tenth to the last."""
        first, last = self.points[9], self.points[99]
        # arrays grow by half
        own = (last[0] - first[0]) * (LOSS * methods + (2 * ENTRY if growing else 0))
        found = []
        if last[1] - first[1] > own + GROWTH:
            found.append(
                f"resident memory grew by {(last[1] - first[1]) >> 20} MiB, {own >> 20} of it for "
                "losses and entries"
            )
        if last[2] > first[2]:
            found.append(f"open files grew from {first[2]} to {last[2]}")
        if self.pace(89, 99) > slower * self.pace(0, 9):
            found.append(
                f"{1e6 * self.pace(89, 99):.0f} µs a token at the end, {1e6 * self.pace(0, 9):.0f} "
                "at first"
            )
        return found

    def pace(self, begin: int, end: int) -> float:
        """Return processor seconds a token between two points."""
        (start, _, _, at), (stop, _, _, until) = self.points[begin], self.points[end]
        return (until - at) / max(1, stop - start)

    def note(self) -> str:
        """Return the measurements in short."""
        first, last = self.points[9], self.points[99]
        return (
            f"{first[1] >> 20} to {last[1] >> 20} MiB, {first[2]} to {last[2]} files, "
            f"{1e6 * self.pace(0, 9):.0f} to {1e6 * self.pace(89, 99):.0f} µs a token"
        )


def soak(
    memory: AnyMemory,
    names: list[str],
    *,
    growing: bool,
    moving: bool = False,
    total: int = TOKENS,
    slower: float = SLOWER,
) -> Case:
    """Read so many tokens by some methods over one memory."""
    base = toy.base_of(toy.tiny_model(), lr=1e-3 if moving else 0.0)
    stream = toy.stream_of(toy.tokens(0, total))
    context = toy.context_of(base, memory, stream, k=K)
    context.fixed = not moving
    rules = {name: METHODS[name].predictor(toy.LEARNED) for name in names}
    watch, case = Watch(total), Case()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = evaluate(
            base,
            [context],
            rules,
            stream,
            UnionVocabulary(),
            Schedule(EVERY),
            Hooks(progress=watch),
        )
    finally:
        torch.set_num_threads(threads)
    wrong = watch.defects(len(names), growing, slower)
    for name in names:
        finite = bool(np.isfinite(found.nll[name]).all())
        case.count(
            "; ".join(wrong) if wrong else "" if finite else f"{name}: a loss that is not finite"
        )
    case.note = f"methods over {total:,} tokens: {watch.note()}"
    return case


def soak_cases(
    _: Path, clock: Clock = FOREVER, total: int = TOKENS, slower: float = SLOWER
) -> Iterator[tuple[str, Case]]:
    """Read with each kind of memory, by all methods that it serves."""
    still, moved = (
        [name for name, m in METHODS.items() if m.uses_dynamic_base == moving]
        for moving in (False, True)
    )
    kinds = (
        ("the latest 10,000 entries", still, MemoryConfig(capacity=10_000), False),
        ("a memory that grows", still, MemoryConfig(), False),
        (
            "the latest 10,000 entries, a base that learns",
            moved,
            MemoryConfig(capacity=10_000),
            True,
        ),
    )
    for name, methods, config, moving in kinds:
        if not clock.over():
            memory, growing = build_memory(toy.DIM, config), config.capacity is None
            yield (
                name,
                soak(memory, methods, growing=growing, moving=moving, total=total, slower=slower),
            )


ENDS = Group(
    "Numbers at their ends",
    number_cases,
    (
        "a softmax layer of half precision ended in a traceback",
        "an absolute rate whose pull takes back more than was changed gave nan",
        "a perplexity beyond the largest float was infinite",
    ),
)
SOAK = Group("A million tokens", soak_cases)
