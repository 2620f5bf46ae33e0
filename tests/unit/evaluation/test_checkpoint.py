"""A reading that ends anywhere and is begun again finds what one finds that was left alone, to the
bit.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from hebblm.adapt.context import Context
from hebblm.adapt.grid import Grid
from hebblm.adapt.methods import DYNAMIC_METHODS, METHODS, STATIC_METHODS
from hebblm.adapt.methods.mbpa import MbpaConfig
from hebblm.adapt.methods.ngram import NgramConfig
from hebblm.adapt.methods.predictor import Predictor
from hebblm.adapt.settings import MethodSettings
from hebblm.errors import UserError
from hebblm.evaluation import checkpoint
from hebblm.evaluation.checkpoint import STATE, RunCheckpoint
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.neighbors import NeighborLog
from hebblm.evaluation.passes import Watching, shared_pass
from hebblm.evaluation.resume import resumable
from hebblm.evaluation.scenario import Scenario
from hebblm.evaluation.scores import EvaluationScores
from hebblm.evaluation.vocabulary import OpenVocabulary, UnionVocabulary, VocabularyPolicy
from hebblm.memory import AnyMemory, FaissMemory, FlatMemory, HybridMemory, RingMemory
from hebblm.models.awd import AwdBase
from hebblm.models.base import BaseUpdate, StreamBase
from hebblm.models.dynamic import DynamicBase, DynamicConfig
from hebblm.models.huggingface.open import open_causal
from hebblm.online import layout as layouts
from hebblm.online.layout import Layout
from hebblm.text import EvaluationStream
from hebblm.tuning.tune import tune

from ...support import toy
from ..models.architectures import ARCHITECTURES, random_model
from .test_forgetting import scenario_of, settings_of

TOKENS = 110
MEMORIES: dict[str, Callable[[], AnyMemory]] = {
    "flat": lambda: FlatMemory(toy.DIM),
    "ring": lambda: RingMemory(toy.DIM, 13, dtype=torch.float16),
    # Few candidates and indexes that are trained again and again: what they find depends on when
    # they were.
    "hybrid": lambda: HybridMemory(
        FaissMemory(toy.DIM, "PQ4x4fs", rescore=1),
        HybridMemory(FaissMemory(toy.DIM, "PQ4x4fs", rescore=1), FlatMemory(toy.DIM), flush_at=7),
        flush_at=43,
    ),
}


class KilledError(Exception):
    """What ends a reading."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(layouts, "BLOCK", 12)
    monkeypatch.setattr(layouts, "READ_AHEAD", 35)  # three blocks, and half of one
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "cache"))


def text(policy: str = "union") -> EvaluationStream:
    ids = toy.tokens(3, TOKENS)
    return toy.stream_of(toy.by_first_appearance(ids) if policy == "open" else ids)


class Reading:
    """One reading, made anew for each process that would begin it."""

    def __init__(
        self,
        methods: tuple[str, ...],
        base: Callable[[], StreamBase],
        memory: Callable[[], AnyMemory],
        *,
        settings: MethodSettings = toy.LEARNED,
        layout: Layout | None = None,
        vocabulary: VocabularyPolicy | None = None,
        every: int = 5,
        ahead: bool = True,
    ) -> None:
        self.predictors: dict[str, Predictor] = {
            name: METHODS[name].predictor(settings) for name in methods
        }
        self.base, self.memory, self.every, self.ahead = base, memory, every, ahead
        self.layout = layout or Layout.of(TOKENS)
        self.vocabulary = vocabulary or UnionVocabulary()
        self.stream = text("union" if vocabulary is None else "open")
        self.log = NeighborLog(TOKENS, settings[MbpaConfig], write=True)

    def run(
        self, folder: Path | None, kill: int | None = None
    ) -> tuple[EvaluationScores, list[Context]]:
        """Read, but end behind so many calls of the progress; return what was found."""
        base = self.base()
        contexts = [self._context(base) for _ in range(self.layout.streams // self.layout.together)]
        self.log = NeighborLog(TOKENS, toy.SETTINGS[MbpaConfig], write=True)
        where = None if folder is None else RunCheckpoint(folder).next_pass("a text", [self.log])
        calls = Counter[str]()

        def progress(tokens: int) -> None:
            calls["made"] += 1
            if kill is not None and calls["made"] > kill:
                raise KilledError

        found = evaluate(
            base,
            contexts,
            self.predictors,
            self.stream,
            self.vocabulary,
            Schedule(self.every, layout=self.layout, read_ahead=self.ahead),
            Hooks([self.log], check=True, progress=progress, checkpoint=where),
        )
        return found, contexts

    def _context(self, base: StreamBase) -> Context:
        rows = len(base.head.weight)
        counts = torch.from_numpy(self.stream.train_counts[:rows].copy())
        new = torch.arange(rows) >= toy.SOURCE
        return Context(
            base.head, self.memory(), k=9, train_counts=counts, new_classes=new, window=30,
            fixed=not base.trains_online and isinstance(self.vocabulary, UnionVocabulary),
            streams=self.layout.together,
        )  # fmt: skip


def survives(reading: Reading, folder: Path, seed: int = 0) -> None:
    """Read a text undisturbed and, in another folder, again and again with an end at random."""
    whole, contexts = reading.run(None)
    noted, draw, kills = reading.log.columns(), Random(seed), 0
    while True:
        started = time.monotonic()
        try:
            found, mine = reading.run(folder, draw.randint(1, 3))
        except KilledError:
            kills += 1
            continue
        break
    assert kills >= 2
    for name, losses in whole.nll.items():
        assert losses.tobytes() == found.nll[name].tobytes(), name
    assert (found.loss_increased, found.retried) == (whole.loss_increased, whole.retried)
    assert found.errors == whole.errors
    clock = found.earlier_seconds + time.monotonic() - started
    times = [found.base_seconds, found.retrieval_seconds]
    assert clock > sum([*times, *found.shared_seconds.values(), *found.own_seconds.values()])
    for one, other in zip(contexts, mine, strict=True):
        assert torch.equal(one.observed, other.observed)
        assert len(one.memory) == len(other.memory)
        for before, after in zip(one.memory.segments(), other.memory.segments(), strict=True):
            assert torch.equal(before.keys, after.keys)
            assert torch.equal(before.values, after.values)
    for name, column in noted.items():
        assert column.tobytes() == reading.log.columns()[name].tobytes(), name


@pytest.mark.parametrize(
    ("memory", "settings"),
    [(MEMORIES["flat"], toy.SETTINGS), *((memory, toy.LEARNED) for memory in MEMORIES.values())],
    ids=["numbers", *MEMORIES.keys()],
)
@pytest.mark.parametrize("streams", [1, 3])
def test_every_method_over_a_fixed_base(
    streams: int, memory: Callable[[], AnyMemory], settings: MethodSettings, tmp_path: Path
) -> None:
    model = toy.tiny_model()
    for scope in ("shared", "stream")[:streams]:
        layout = Layout.of(TOKENS, streams, scope=scope)  # type: ignore[arg-type]

        def base() -> StreamBase:
            return AwdBase(model, rows=toy.NOVEL, init="uniform", streams=streams)

        survives(
            Reading(STATIC_METHODS, base, memory, settings=settings, layout=layout),
            tmp_path / scope,
        )


def test_a_position_may_lie_before_what_the_base_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    save = checkpoint.PassCheckpoint._save

    def noted(self: checkpoint.PassCheckpoint, place: int, read: int) -> None:
        saved.append((place, read))
        save(self, place, read)

    monkeypatch.setattr(checkpoint.PassCheckpoint, "_save", noted)
    model = toy.tiny_model()
    Reading(("mixture",), lambda: AwdBase(model, rows=toy.NOVEL), MEMORIES["flat"]).run(tmp_path)
    ends = [30] * 3 + [60] * 3 + [90] * 3 + [TOKENS] * 2  # of what the base reads at once
    assert saved == list(zip(range(10, TOKENS + 1, 10), ends, strict=True))


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("fresh", ["token", "interval"])
def test_ngrams_of_streams_that_reach_their_capacity(
    streams: int, fresh: Any, tmp_path: Path
) -> None:
    model, settings = toy.tiny_model(), toy.LEARNED.replaced(NgramConfig(fresh=fresh, capacity=37))

    def base() -> StreamBase:
        return AwdBase(model, rows=toy.NOVEL, init="uniform", streams=streams)

    layout = Layout.of(TOKENS, streams)
    survives(
        Reading(("ngram",), base, MEMORIES["flat"], settings=settings, layout=layout), tmp_path
    )


@pytest.mark.parametrize("rule", ["sgd", "rms"])
@pytest.mark.parametrize("vocabulary", ["union", "open"])
def test_every_method_over_dynamic_evaluation(rule: str, vocabulary: str, tmp_path: Path) -> None:
    model = toy.tiny_model()
    squares = [toy.randn(7, *p.shape).square() for p in model.parameters()]
    rows, words = (
        (toy.NOVEL, None) if vocabulary == "union" else (0, OpenVocabulary(toy.UNK, toy.WORDS))
    )

    def base() -> StreamBase:
        own = AwdBase(model, rows=rows, init="uniform")
        return DynamicBase(own, DynamicConfig(rule, lr=0.05), squares)  # type: ignore[arg-type]

    methods = tuple(name for name in DYNAMIC_METHODS if words is None or name == "dynamic+best")
    survives(
        Reading(methods, base, MEMORIES["flat"], vocabulary=words, every=5, ahead=False), tmp_path
    )


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop"])
@pytest.mark.parametrize("vocabulary", ["union", "open"])
def test_a_base_that_learns_and_grows(optimizer: str, vocabulary: str, tmp_path: Path) -> None:
    model = toy.tiny_model()
    update = BaseUpdate(lr=0.02, optimizer=optimizer)  # type: ignore[arg-type]
    rows, words = (
        (toy.NOVEL, None) if vocabulary == "union" else (0, OpenVocabulary(toy.UNK, toy.WORDS))
    )

    def base() -> StreamBase:
        return AwdBase(model, rows=rows, init="uniform", update=update, seed=5)

    methods = ("lstm", "cache", "mixture")
    survives(Reading(methods, base, MEMORIES["flat"], vocabulary=words, ahead=False), tmp_path)


@pytest.mark.parametrize(
    ("name", "moving"),
    [*((name, False) for name in ARCHITECTURES)]
    + [(name, True) for name in ("GPT2", "Llama", "Mistral", "Gemma2", "GptOss", "Mamba2", "Rwkv")],
)
def test_models_of_transformers_go_on_to_the_bit(name: str, moving: bool) -> None:
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"this transformers has no {name}")
    model = open_causal(random_model(name), context=16, stride=6)
    update = BaseUpdate(lr=0.05, optimizer="rmsprop") if moving else None
    first, second = (model.base(update=update) for _ in range(2))
    ids = torch.randint(3, 60, (60,), generator=torch.Generator().manual_seed(0))
    for begin in range(0, 40, 5):
        first.read(ids[begin : begin + 5])
        first.learn(ids[begin + 1 : begin + 6])
    kept = {key: value.clone() for key, value in first.state_dict().items()}
    second.load_state_dict(kept)
    for begin in range(40, 60, 5):
        assert torch.equal(first.read(ids[begin : begin + 5]), second.read(ids[begin : begin + 5]))
        for base in (first, second):
            base.learn(ids[begin : begin + 5])


@pytest.fixture
def within(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the process be interrupted at the first so many savings."""
    left = [0]
    write = checkpoint.PassCheckpoint._save

    def interrupted(self: checkpoint.PassCheckpoint, place: int, read: int) -> None:
        write(self, place, read)
        if left[0] > 0:
            left[0] -= 1
            raise KilledError

    monkeypatch.setattr(checkpoint.PassCheckpoint, "_save", interrupted)
    return left


def test_a_tuning_goes_on(tmp_path: Path, within: list[int]) -> None:
    grid = Grid(
        theta=(0.3, "online"), gamma=(0.2, "online"), mbpa_lr=(0.1, 0.3), mbpa_steps=(1, 2),
        beta=(0.3, 0.6),
        eta=(0.1, 1.0), dynamic_lr=(0.5, 1.0), temperature=(1.0,), absolute_lr=(0.1,),
    )  # fmt: skip
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    expected = tune(scenario, settings, grid)
    within[0] = 1 << 30
    done = 0
    while within[0]:
        within[0] = 3 if done < 12 else 0
        try:
            with resumable(scenario, settings, {}, {"tune": 1}) as run:
                found = tune(scenario, settings, grid, checkpoint=run)
        except KilledError:
            done += 1
    assert done == 12
    assert found.values == expected.values
    assert {name: best.tried for name, best in found.best.items()} == {
        name: best.tried for name, best in expected.best.items()
    }
    assert not (tmp_path / "cache" / "positions").exists()


def test_other_settings_begin_anew_and_nothing_is_left(tmp_path: Path, within: list[int]) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    other = settings.changed({"mixture.theta": 0.123})
    within[0] = 1
    with pytest.raises(KilledError), resumable(scenario, settings, {"threads": 1}, {}) as run:
        _read(scenario, settings, run)
    places = tmp_path / "cache" / "positions"
    assert [path.name for path in places.glob(f"*/*/{STATE}")] == [STATE]
    for changed, threads, asked in (
        (other, 1, {}),
        (settings, 2, {}),
        (settings, 1, {"methods": []}),
    ):
        with resumable(scenario, changed, {"threads": threads}, asked) as run:
            assert run is not None
            assert not run.folder.exists()
    with resumable(scenario, settings, {"threads": 1}, {}) as run:
        assert run is not None
        assert run.folder.exists()
        _read(scenario, settings, run)
    assert not places.exists()


def test_what_was_changed_is_refused(tmp_path: Path, within: list[int]) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    within[0] = 1
    with pytest.raises(KilledError), resumable(scenario, settings, {}, {}) as run:
        _read(scenario, settings, run)
    for path in sorted((tmp_path / "cache" / "positions").glob("*/*/*.safetensors")):
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + b"\0\0\7")
        with (
            pytest.raises(UserError, match=r"delete .* to start the run again"),
            resumable(scenario, settings, {}, {}) as run,
        ):
            _read(scenario, settings, run)
        path.write_bytes(whole)


def test_runs_that_nobody_came_back_to_are_removed(tmp_path: Path) -> None:
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    left = tmp_path / "cache" / "positions" / "other"
    left.mkdir(parents=True)
    with resumable(scenario, settings, {}, {}):
        assert left.exists()
    os.utime(left, (0, 0))
    with resumable(scenario, settings, {}, {}):
        assert not left.exists()


def test_ctrl_c_saves_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "EVERY", 1e9)
    # ignored where tests run in the background
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    scenario, settings = scenario_of(tmp_path), settings_of(0.0)
    states = (tmp_path / "cache" / "positions").glob(f"*/*/{STATE}")
    with resumable(scenario, settings, {}, {}) as run:
        with pytest.raises(KeyboardInterrupt):  # nothing is under way
            signal.raise_signal(signal.SIGINT)
        _read(scenario, settings, run)
    reach = checkpoint.PassCheckpoint.reach

    def pressed(self: checkpoint.PassCheckpoint, place: int, read: int) -> None:
        signal.raise_signal(signal.SIGINT)
        reach(self, place, read)

    monkeypatch.setattr(checkpoint.PassCheckpoint, "reach", pressed)
    with pytest.raises(KeyboardInterrupt), resumable(scenario, settings, {}, {}) as run:
        _read(scenario, settings, run)
    assert len(list(states)) == 1
    assert signal.signal(signal.SIGINT, former) is signal.default_int_handler


def _read(scenario: Scenario, settings: Hyperparameters, run: RunCheckpoint | None) -> None:
    predictors = {name: METHODS[name].predictor(settings.methods) for name in ("lstm", "mixture")}
    shared_pass(replace(scenario), predictors, settings, Watching(checkpoint=run))
