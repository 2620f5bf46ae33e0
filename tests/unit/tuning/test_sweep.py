from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hebblm.adapt.methods import METHODS, STATIC_METHODS
from hebblm.adapt.methods.predictor import Predictor
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Schedule, evaluate
from hebblm.evaluation.scenario import Scenario, ScenarioConfig
from hebblm.evaluation.vocabulary import UnionVocabulary
from hebblm.io.locks import file_lock
from hebblm.memory import AnyMemory, FaissMemory, FlatMemory, HybridMemory, RingMemory
from hebblm.models.awd import AwdBase, AwdModel
from hebblm.online import layout as layouts
from hebblm.online.layout import Pace
from hebblm.text import Dictionary
from hebblm.tuning import sweep
from hebblm.tuning.sweep import SweepPlan, prepare_sweep, sweep_plan

from ...support import toy

TOKENS = 130
STREAM = toy.stream_of(toy.tokens(3, TOKENS))
# Few candidates and an index that is trained again and again: what it finds depends on when it was
# trained.
MEMORIES: dict[str, Callable[[], AnyMemory]] = {
    "flat": lambda: FlatMemory(toy.DIM),
    "ring": lambda: RingMemory(toy.DIM, 13),
    "hybrid": lambda: HybridMemory(
        FaissMemory(toy.DIM, "PQ4x4fs", rescore=1), FlatMemory(toy.DIM), flush_at=11
    ),
}
every_memory = pytest.mark.parametrize("make", MEMORIES.values(), ids=MEMORIES.keys())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(layouts, "BLOCK", 12)
    monkeypatch.setattr(layouts, "READ_AHEAD", 24)
    monkeypatch.setattr(sweep, "PART", 75)
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))


def plan_of(every: int = 3, *, write: bool = True, name: str = "a") -> SweepPlan:
    return SweepPlan({"name": name}, Pace.of(every, ahead=True), write, 9)


def losses(
    memory: AnyMemory,
    every: int,
    found: sweep.Sweep | None,
    base: AwdBase | None = None,
    write: bool = True,
) -> dict[str, np.ndarray]:
    base = base or toy.base_of(toy.tiny_model())
    context = toy.context_of(base, memory, STREAM)
    predictors: dict[str, Predictor] = {
        name: METHODS[name].predictor(toy.SETTINGS) for name in STATIC_METHODS
    }
    return evaluate(
        base,
        [context],
        predictors,
        STREAM,
        UnionVocabulary(),
        Schedule(every, write=write, read_ahead=True, precomputed=found),
    ).nll


def forget(tokens: int) -> None:
    """Take no note of progress."""


@every_memory
@pytest.mark.parametrize(("every", "write"), [(1, True), (5, True), (40, True), (5, False)])
def test_scores_from_a_sweep_are_the_same_bit_for_bit(
    make: Callable[[], AnyMemory], every: int, write: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, memory = toy.base_of(toy.tiny_model()), make()
    memory.add(toy.randn(0, 20, toy.DIM), torch.arange(20))
    memory.mark_base()
    expected = losses(memory, every, None, write=write)
    memory.reset()
    done: list[int] = []
    found = prepare_sweep(base, memory, STREAM, plan_of(every, write=write), done.append)
    assert sum(done) == TOKENS
    assert len(memory) == (13 if isinstance(memory, RingMemory) else 20), "left as it was"
    kept = prepare_sweep(base, memory, STREAM, plan_of(every, write=write), forget)
    unused = "neither the base is read nor the memory searched a second time"
    monkeypatch.setattr(AwdBase, "read", lambda *_: pytest.fail(unused))
    for kind in (FlatMemory, RingMemory, HybridMemory):
        monkeypatch.setattr(kind, "nearest", lambda *_: pytest.fail(unused))
    for some in (found, kept):
        # A row of 32 bytes: without a copy at most one of two neighbouring rows begins where
        # torch's own tensors do.
        assert {some.states(row, row + 4).data_ptr() % 64 for row in (1, 2)} == {0}
        memory.reset()
        replayed = losses(memory, every, some, base, write)
        for method in STATIC_METHODS:
            assert np.array_equal(replayed[method], expected[method]), method


@every_memory
@pytest.mark.parametrize("tokens", [30, 80])
def test_an_interrupted_sweep_goes_on_where_it_stopped(
    make: Callable[[], AnyMemory], tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = losses(make(), 3, None)
    seen = 0

    def interrupt(count: int) -> None:
        nonlocal seen
        seen += count
        if seen >= tokens:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_sweep(toy.base_of(toy.tiny_model()), make(), STREAM, plan_of(), interrupt)
    reads: list[int] = []
    base, memory = toy.base_of(toy.tiny_model()), make()
    read = base.read
    monkeypatch.setattr(base, "read", lambda inputs: reads.append(len(inputs)) or read(inputs))
    found = prepare_sweep(base, memory, STREAM, plan_of(), forget)
    finished = tokens // plan_of().part * plan_of().part
    assert sum(reads) == TOKENS - finished
    for method, values in losses(memory, 3, found, base).items():
        assert np.array_equal(values, expected[method]), method


def test_a_part_that_was_changed_is_refused_and_a_lost_one_computed_anew() -> None:
    base, memory, plan = toy.base_of(toy.tiny_model()), FlatMemory(toy.DIM), plan_of()
    prepare_sweep(base, memory, STREAM, plan, forget)
    path = plan.folder() / "part-00001.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    changed = prepare_sweep(base, memory, STREAM, plan, forget)
    assert changed is not None
    with pytest.raises(UserError, match=r"part-00001.* was changed .* delete"):
        changed.states(plan.part, plan.part + 1)
    path.unlink()
    prepare_sweep(base, memory, STREAM, plan, forget)
    assert path.read_bytes() == content


def test_no_sweep_of_a_base_that_learns_or_of_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = FlatMemory(toy.DIM)
    moving = toy.base_of(toy.tiny_model(), lr=0.1)
    assert prepare_sweep(moving, memory, STREAM, plan_of(), forget) is None
    monkeypatch.setattr(sweep, "LIMIT_BYTES", 1000)
    assert prepare_sweep(toy.base_of(toy.tiny_model()), memory, STREAM, plan_of(), forget) is None
    assert not plan_of().folder().exists()


def test_the_sweeps_used_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    base, memory = toy.base_of(toy.tiny_model()), FlatMemory(toy.DIM)
    plans = [plan_of(name=name) for name in "abcd"]
    for plan in plans[:3]:
        prepare_sweep(base, memory, STREAM, plan, forget)
    size = sum(file.stat().st_size for file in plans[0].folder().iterdir())
    for plan, age in zip(plans[:3], (30, 10, 20), strict=True):
        os.utime(plan.folder(), (1e9 - age, 1e9 - age))
    monkeypatch.setattr(sweep, "LIMIT_BYTES", int(2.5 * size))
    prepare_sweep(base, memory, STREAM, plans[3], forget)
    assert [plan.folder().exists() for plan in plans] == [False, True, False, True]


def test_a_sweep_that_another_process_fills_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    base, memory = toy.base_of(toy.tiny_model()), FlatMemory(toy.DIM)
    plans = [plan_of(name=name) for name in "abc"]
    for plan, age in zip(plans[:2], (20, 10), strict=True):
        prepare_sweep(base, memory, STREAM, plan, forget)
        os.utime(plan.folder(), (1e9 - age, 1e9 - age))
    size = sum(file.stat().st_size for file in plans[0].folder().iterdir())
    # as a file that is gone between its name and its size
    (plans[0].folder() / "part").symlink_to("renamed")
    monkeypatch.setattr(sweep, "LIMIT_BYTES", int(2.5 * size))
    with file_lock(plans[0].folder(), "states and neighbours"):
        prepare_sweep(base, memory, STREAM, plans[2], forget)
    assert [plan.folder().exists() for plan in plans] == [True, False, True]


def test_a_sweep_counts_as_used_as_long_as_it_is_read() -> None:
    plan = plan_of()
    found = prepare_sweep(toy.base_of(toy.tiny_model()), FlatMemory(toy.DIM), STREAM, plan, forget)
    assert found is not None
    os.utime(plan.folder(), (1e9, 1e9))
    found.states(0, 1)
    assert plan.folder().stat().st_mtime > 1e9


def scenario(training: int = 100, **changes: object) -> Scenario:
    config = {
        "intra_domain": "toy",
        "memory_content": "test",
        "k": 9,
        "update_every": 20,
        **changes,
    }
    return Scenario(
        kind="intra-domain", source="toy", target="toy", dictionary=Dictionary(), stream=STREAM,
        model=AwdModel(toy.tiny_model(), Path("none"), "checkpoint", "0"),
        vocabulary=UnionVocabulary(),
        config=ScenarioConfig(**config),  # type: ignore[arg-type]
        normalization="raw", device=torch.device("cpu"), data_sha256={}, whole=True,
        train=SimpleNamespace(tokens=lambda split: toy.tokens(7, training)),
         # type: ignore[arg-type]
    )  # fmt: skip


def test_whatever_a_sweep_depends_on_names_its_folder() -> None:
    settings = Hyperparameters()
    scenarios = [
        scenario(), scenario(k=8), scenario(update_every=1), scenario(memory_content="both"),
        scenario(seed=7),
        scenario(new_rows="mean"), scenario(memory_content="train"), scenario(99,
        memory_content="train"),
        scenario(memory_content="train", training_entries=50),
        replace(scenario(), stream=toy.stream_of(toy.tokens(4, TOKENS))),
        replace(scenario(), stream=toy.stream_of(toy.tokens(3, TOKENS - 1))),
        replace(scenario(), model=AwdModel(toy.tiny_model(), Path("none"), "checkpoint", "1")),
    ]  # fmt: skip
    folders = [sweep_plan(some, settings).folder() for some in scenarios]
    folders += [
        sweep_plan(scenario(), settings.changed({name: value})).folder()
        for name, value in (
            ("memory.capacity", 50),
            ("memory.dtype", "float16"),
            ("memory.index", "exact"),
        )
    ]
    assert len(set(folders)) == len(folders)
    assert sweep_plan(scenario(), settings.changed({"mbpa.lr": 3.0})).folder() == folders[0]
    assert sweep_plan(scenario(99), settings).folder() == folders[0], (
        "no training text is remembered"
    )
    more = scenario(memory_content="train", training_entries=1000)  # than there are
    assert (
        sweep_plan(more, settings).folder()
        == sweep_plan(scenario(memory_content="train"), settings).folder()
    )
