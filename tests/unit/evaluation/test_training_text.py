from __future__ import annotations

import copy
import itertools
import resource
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import torch

from awd_lstm.model import NewRows, grow_vocabulary
from hebblm.errors import UserError
from hebblm.evaluation import training_text as module
from hebblm.evaluation.training_text import Segments, mean_squares, training_memory, training_states
from hebblm.io import locks, tensors
from hebblm.io.files import _HOST
from hebblm.memory import MemoryConfig
from hebblm.models.awd import SEGMENT, STREAMS, WARM_UP, AwdModel
from hebblm.types import OutputHead

from ...support import toy


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path))


def forgetful():  # type: ignore[no-untyped-def]
    """Return a model that remembers fewer tokens than the parts are warmed up with."""
    model = toy.tiny_model()
    with torch.no_grad():
        for layer in model.layers:
            layer.weight_hh.mul_(0.3)
    return model


@pytest.mark.parametrize("count", [2, 1500, (STREAMS + 1) * 4 * WARM_UP + 3])
def test_equals_reading_the_text_as_one_stream(count: int) -> None:
    model, ids = forgetful(), toy.tokens(0, count, toy.SOURCE)
    parts = list(training_states(AwdModel(model, Path("none"), "checkpoint", "0"), ids))
    keys, labels = torch.cat([k for k, _ in parts]), torch.cat([v for _, v in parts])
    stream = torch.from_numpy(ids)
    with torch.no_grad():
        expected = model(stream[None, :-1], model.initial_state(1)).hidden[0]
    assert keys.shape == expected.shape == (count - 1, toy.DIM)
    assert torch.equal(labels.sort().values, stream[1:].sort().values)
    # As a multiset: sorting by a projection pairs the same entries, whatever the order they came
    # in.
    axis = toy.randn(1, toy.DIM, dtype=torch.float64)
    mine, theirs = (
        torch.cat([k.double(), v[:, None] * 10.0], 1) @ torch.cat([axis, axis[:1]])
        for k, v in ((keys, labels), (expected, stream[1:]))
    )
    assert torch.allclose(mine.sort().values, theirs.sort().values, atol=2e-4)
    if count < 8 * WARM_UP:
        assert torch.allclose(keys, expected, atol=1e-4), "one part keeps the order"
        assert torch.equal(labels, stream[1:])


def ask(model, ids, owner: str, head: OutputHead | None = None, **config: object):  # type: ignore[no-untyped-def]
    memory = MemoryConfig(**{"index": "exact", **config})  # type: ignore[arg-type]
    trained = AwdModel(model, Path("none"), "checkpoint", owner)
    return training_memory(trained, ids, memory, dictionary_hash="d" * 64, head=head)


def grown(model, init: NewRows) -> OutputHead:  # type: ignore[no-untyped-def]
    """Return the model's head with a few further rows."""
    copied = copy.deepcopy(model)
    grow_vocabulary(copied, toy.NOVEL, init, torch.Generator().manual_seed(3))
    return OutputHead(copied.embedding.detach(), copied.bias.detach())


@pytest.mark.parametrize("init", ["zero", "uniform"])
@pytest.mark.parametrize("config", [{"dtype": "float16"}, {"capacity": 50}])
def test_normalizers_are_those_of_the_stored_keys_under_the_whole_head(
    init: NewRows, config: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = forgetful(), toy.tokens(1, 200, toy.SOURCE)
    head = grown(model, init)
    memory = ask(model, ids, "a" * 64, head, **config)
    memory.add(toy.randn(0, 3, toy.DIM), torch.tensor([1, 2, 3]), torch.zeros(3))
    memory.reset()
    near = memory.search(toy.randn(3, 4, toy.DIM), 9)
    assert near.log_normalizers is not None
    expected = head.logits(memory.states_of(near.keys)).double().logsumexp(2).float()
    torch.testing.assert_close(near.log_normalizers, expected, rtol=1e-6, atol=2e-6)


def test_a_memory_with_normalizers_serves_a_head_that_moves_but_not_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = forgetful(), toy.tokens(1, 200, toy.SOURCE)
    probe, head = (
        toy.randn(3, 4, toy.DIM),
        OutputHead(model.embedding.detach(), model.bias.detach()),
    )
    assert ask(model, ids, "a" * 64).search(probe, 9).log_normalizers is None
    assert ask(model, ids, "a" * 64, head).search(probe, 9).log_normalizers is not None
    assert len(list((tmp_path / "memory").iterdir())) == 2
    ask(model, ids, "b" * 64, head)
    monkeypatch.setattr(AwdModel, "segments", lambda *args: pytest.fail("it is in the cache"))
    ask(model, ids, "b" * 64)


def test_is_built_once_and_refused_for_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = forgetful(), toy.tokens(1, 200, toy.SOURCE)
    built = ask(model, ids, "a" * 64)
    built.add(toy.randn(0, 3, toy.DIM), torch.tensor([1, 2, 3]))
    built.reset()
    assert len(built) == 199, "what is observed later must not stay"
    [first] = (tmp_path / "memory").iterdir()
    ask(model, ids, "b" * 64)
    [second] = set((tmp_path / "memory").iterdir()) - {first}
    other = ids[::-1].copy()  # of the same length
    labels = torch.cat([part.values for part in ask(model, other, "a" * 64).segments()])
    assert torch.equal(labels, torch.from_numpy(other[1:]))
    assert len(ask(model, ids, "a" * 64, capacity=50)) == 50

    monkeypatch.setattr(AwdModel, "segments", lambda *args: pytest.fail("it is in the cache"))
    again = ask(model, ids, "a" * 64)
    probe = toy.randn(3, 4, toy.DIM)
    assert torch.equal(again.search(probe, 9).keys, built.search(probe, 9).keys)
    assert torch.equal(again.search(probe, 9).values, built.search(probe, 9).values)
    shutil.rmtree(second)
    shutil.copytree(first, second)
    with pytest.raises(UserError, match="model"):
        ask(model, ids, "b" * 64)


def interrupt(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


# In writing the first part, the third, and when all are there.
@pytest.mark.parametrize(("name", "call", "done"), [
    ("save", 1, 0), ("save", 3, 2), ("save_memory", 1, 6),
])  # fmt: skip
@pytest.mark.parametrize(
    "config", [{"index": "IVF4,PQ4x4fs", "dtype": "float16"}, {"capacity": 700}]
)
def test_an_interrupted_build_goes_on_to_the_same_bytes(
    name: str, call: int, done: int, config: dict[str, object], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    model, ids = forgetful(), toy.tokens(1, 1500, toy.SOURCE)
    head = OutputHead(model.embedding.detach(), model.bias.detach())
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "whole"))
    ask(model, ids, "a" * 64, head, **config)
    monkeypatch.setenv("HEBBLM_CACHE", str(tmp_path / "cut"))
    place = module if name == "save_memory" else tensors
    original, calls = getattr(place, name), itertools.count(1)
    with monkeypatch.context() as during:
        during.setattr(
            place, name, lambda *a, **o: (interrupt if next(calls) == call else original)(*a, **o)
        )
        with pytest.raises(KeyboardInterrupt):
            ask(model, ids, "a" * 64, head, **config)
    [folder] = (tmp_path / "cut" / "memory").iterdir()
    assert folder.suffix == ".parts"
    # What is left of a process that could not clean up.
    killed = folder.with_name(f".{folder.stem}.{_HOST}-{1 << 30}.x")
    killed.mkdir()
    (killed / "keys.bin").write_bytes(b"1")
    reads: list[int] = []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", lambda *a: reads.append(a[1].shape[1]) or forward(*a)
    )
    capsys.readouterr()
    ask(model, ids, "a" * 64, head, **config)
    assert sum(reads) == 1499 - done * SEGMENT + (0 if done else WARM_UP) if done < 6 else not reads
    assert (f"goes on from part {done + 1}" in capsys.readouterr().err) == (done > 0)
    assert toy.files_in(tmp_path / "cut" / "memory") == toy.files_in(
        tmp_path / "whole" / "memory"
    ), "and nothing is left over"


def test_parts_are_not_left_behind_nor_trusted_when_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = forgetful(), toy.tokens(1, 600, toy.SOURCE)
    with monkeypatch.context() as during:
        during.setattr(module, "save_memory", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(model, ids, "a" * 64)
    [folder] = (tmp_path / "memory").iterdir()
    path = folder / "part-00001.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=r"part-00001.* was changed .* delete"):
        ask(model, ids, "a" * 64)
    path.write_bytes(content)
    shutil.copytree(folder, tmp_path / "copy")
    ask(model, ids, "a" * 64)
    shutil.copytree(tmp_path / "copy", folder)  # killed behind the saved memory
    ask(model, ids, "a" * 64)
    assert [path.name for path in (tmp_path / "memory").iterdir()] == [folder.stem]


def test_a_second_process_waits_for_the_first_and_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Event()
    monkeypatch.setattr(locks, "log", lambda line: waiting.set())
    model, ids = forgetful(), toy.tokens(1, 600, toy.SOURCE)
    first = ask(model, ids, "a" * 64)
    [folder] = (tmp_path / "memory").iterdir()
    folder.rename(tmp_path / "kept")
    monkeypatch.setattr(
        AwdModel, "segments", lambda *args: pytest.fail("the first process does that")
    )
    with ThreadPoolExecutor() as pool:
        with Segments(folder.with_name(f"{folder.name}.parts")).locked("it"):
            second = pool.submit(ask, model, ids, "a" * 64)
            assert waiting.wait(30)
            assert not second.done()
            (tmp_path / "kept").rename(folder)
        probe = toy.randn(3, 4, toy.DIM)
        assert torch.equal(second.result().search(probe, 9).keys, first.search(probe, 9).keys)


def test_what_cannot_be_stored_is_said_before_anything_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = forgetful()
    with torch.no_grad():
        model.layers[-1].bias_ih.fill_(torch.nan)
    with pytest.raises(UserError, match="not finite"):
        ask(model, toy.tokens(1, 600, toy.SOURCE), "a" * 64)
    assert not list(tmp_path.rglob("part-*"))
    with pytest.raises(UserError, match="float8"):
        ask(model, toy.tokens(1, 600, toy.SOURCE), "b" * 64, dtype="float8")


def test_a_part_that_does_not_fit_on_the_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    segments = Segments(tmp_path / "parts")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(UserError, match="cannot write"):
            segments.save(0, {"x": torch.zeros(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(segments.folder.iterdir())
    segments.save(0, {"x": torch.zeros(1000)})
    assert torch.equal(segments.load(0)["x"], torch.zeros(1000))


IDS = toy.tokens(1, 900, toy.SOURCE)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    computed, compute = [], AwdModel.mean_squares

    def counted(of: AwdModel, *arguments: object) -> list[torch.Tensor]:
        computed.append(1)
        return compute(of, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(AwdModel, "mean_squares", counted)
    return computed


def trained(sha256: str = "0") -> AwdModel:
    return AwdModel(toy.tiny_model(), Path("none"), "checkpoint", sha256)


def test_gradients_are_computed_once_and_told_of_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, computed = trained().mean_squares(IDS, 10), counting(monkeypatch)
    for _ in range(2):
        found = mean_squares(trained(), IDS, 10)
        assert len(found) == len(plain)
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    assert len(computed) == 1
    told = capsys.readouterr().err
    assert told.count("needs the gradients of the training text: about ") == 1
    assert "once for this model; the other `methods` do without" in " ".join(told.split())
    assert told.count("come from an earlier run") == 1
    assert len(list((tmp_path / "gradients").iterdir())) == 1, (
        "neither lock nor half a file is left"
    )


def test_gradients_of_another_model_text_or_segment_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed = counting(monkeypatch)
    for asked in (
        (trained(), IDS, 10),
        (trained("1"), IDS, 10),
        (trained(), IDS[:-1], 10),
        (trained(), IDS, 11),
    ):
        mean_squares(*asked)
    assert len(computed) == 4


def test_changed_gradients_are_refused(tmp_path: Path) -> None:
    mean_squares(trained(), IDS, 10)
    (path,) = (tmp_path / "gradients").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=f"{path.name} was changed .*; delete it"):
        mean_squares(trained(), IDS, 10)
