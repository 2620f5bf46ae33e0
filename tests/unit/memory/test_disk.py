from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.memory import (
    DiskMemory,
    FlatMemory,
    HybridMemory,
    MemoryConfig,
    build_memory,
    load_memory,
    persistence,
    save_memory,
    store,
)
from hebblm.memory import disk as module
from hebblm.memory.persistence import check_files, read_manifest

OWNER = {"model_hash": "m", "dictionary_hash": "d"}
DIM = 16


def keys(seed: int, count: int) -> Tensor:
    """Return keys around forty centres."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(40, DIM, generator=torch.Generator().manual_seed(0))
    return centres[torch.randint(40, (count,), generator=draw)] + 0.3 * torch.randn(
        count, DIM, generator=draw
    )


def memory(work: Path | None = None) -> DiskMemory:
    return DiskMemory(DIM, "IVF16,PQ8x4", rescore=8, nprobe=8, work=work)


def filled(count: int, work: Path | None = None) -> DiskMemory:
    made = memory(work)
    made.add(keys(1, count), torch.arange(count), torch.linspace(0, 1, count))
    return made


def recall(found: Tensor, wanted: Tensor) -> float:
    return float((found[:, :, None] == wanted[:, None, :]).any(2).float().mean())


def test_a_saved_memory_is_found_in_and_grows_without_its_files_changing(tmp_path: Path) -> None:
    save_memory(filled(2000), tmp_path / "m", **OWNER)
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    assert set(before) == {
        "about.json", "index.faiss", "keys.bin", "lists.bin", "log_normalizers.bin",
        "manifest.json", "norms.bin",
        "values.bin",
    } - {"about.json"}  # fmt: skip
    readers = [load_memory(tmp_path / "m", **OWNER) for _ in range(2)]
    exact = FlatMemory(DIM)
    exact.add(keys(1, 2000), torch.arange(2000))
    queries = keys(2, 30)
    for reader in readers:
        assert recall(reader.search(queries, 20).values, exact.search(queries, 20).values) > 0.95
    readers[0].add(keys(3, 500), torch.arange(2000, 2500), torch.zeros(500))
    exact.add(keys(3, 500), torch.arange(2000, 2500))
    assert recall(readers[0].search(queries, 20).values, exact.search(queries, 20).values) > 0.95
    assert (len(readers[0]), len(readers[1])) == (2500, 2000)
    readers[0].reset()
    first, second = (reader.search(queries, 20) for reader in readers)
    assert torch.equal(first.values, second.values)
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before


def test_every_entry_is_in_one_of_many_lists(tmp_path: Path) -> None:
    # all lists visited: nothing but the rounding of codes is lost
    made = DiskMemory(DIM, "IVF512,SQ8", nprobe=512)
    made.add(keys(1, 6000), torch.arange(6000))
    save_memory(made, tmp_path / "m", **OWNER)
    reader, exact, queries = load_memory(tmp_path / "m", **OWNER), FlatMemory(DIM), keys(2, 20)
    exact.add(keys(1, 6000), torch.arange(6000))
    for memory_on_disk in (made, reader):
        assert (
            recall(memory_on_disk.search(queries, 20).values, exact.search(queries, 20).values) == 1
        )
    index = module.open_lists(tmp_path / "m", "IVF512,SQ8", 6000).index
    sizes = [index.invlists.list_size(number) for number in range(512)]
    assert (sum(sizes), index.ntotal) == (6000, 6000)


def test_a_grown_memory_is_saved_with_one_index_of_all(tmp_path: Path) -> None:
    save_memory(filled(2000), tmp_path / "m", **OWNER)
    grown = load_memory(tmp_path / "m", **OWNER)
    grown.add(keys(3, 900), torch.arange(2000, 2900), torch.zeros(900))
    save_memory(grown, tmp_path / "n", **OWNER)
    manifest = read_manifest(tmp_path / "n")
    assert manifest.index is not None
    assert (manifest.count, manifest.index.trained, manifest.store) == (2900, 2000, "disk")
    opened = load_memory(tmp_path / "n", **OWNER)
    trained = opened.refresh()
    assert trained is not None
    assert len(trained) == 2900
    queries = keys(2, 30)
    exact = FlatMemory(DIM)
    exact.add(torch.cat([keys(1, 2000), keys(3, 900)]), torch.arange(2900))
    assert recall(opened.search(queries, 20).values, exact.search(queries, 20).values) > 0.95


def test_entries_move_to_disk_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hebblm.memory.factory.MOVED_AT", 300)
    made = build_memory(DIM, MemoryConfig(index="IVF16,PQ8x4", store="disk", dtype="float16"))
    assert isinstance(made, HybridMemory)
    for begin in range(0, 1000, 100):
        made.add(keys(begin, 100), torch.arange(begin, begin + 100))
    assert (len(made.bulk), len(made.recent)) == (800, 200)
    save_memory(made, tmp_path / "m", **OWNER)
    assert read_manifest(tmp_path / "m").dtype == "float16"
    opened = load_memory(tmp_path / "m", **OWNER)
    assert isinstance(opened, HybridMemory)
    assert isinstance(opened.bulk, DiskMemory)
    assert opened.search(keys(0, 5), 3).log_normalizers is None


def test_an_index_that_was_interrupted_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARD", 300)
    save_memory(filled(1000, tmp_path), tmp_path / "whole", **OWNER)
    work = tmp_path / "work"
    work.mkdir()
    original, written = module._write, []

    def write(index: object, path: Path) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        original(index, path)
        written.append(path.name)

    monkeypatch.setattr(module, "_write", write)
    with pytest.raises(KeyboardInterrupt):
        save_memory(filled(1000, work), tmp_path / "cut", **OWNER)
    assert not (tmp_path / "cut").exists()
    written.clear()
    monkeypatch.setattr(
        module, "_write", lambda index, path: (original(index, path), written.append(path.name))
    )
    save_memory(filled(1000, work), tmp_path / "cut", **OWNER)
    assert len(written) == 3, "two shards that were lacking, and the index"
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "cut" / path.name).read_bytes() == path.read_bytes(), path.name


def test_lists_that_find_no_space_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARD", 300)
    save_memory(filled(2000), tmp_path / "m", **OWNER)
    (tmp_path / "m" / "lists.bin").unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # more than a shard, less than all lists
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write .*lists\.bin"):
            memory().write_index(tmp_path / "m")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "m" / "lists.bin").exists()


def test_only_what_is_read_stays_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    save_memory(filled(2000), tmp_path / "m", **OWNER)
    plain, frugal = (load_memory(tmp_path / "m", **OWNER) for _ in range(2))
    queries = keys(2, 30)
    wanted = plain.search(queries, 20)
    monkeypatch.setattr(module, "RELEASED_FROM", 0)
    monkeypatch.setattr(module, "READ_AT_ONCE", 1000)
    released = []
    monkeypatch.setattr(module.EntryStore, "release", lambda store: released.append(store))
    found = frugal.search(queries, 20)
    assert len(released) == 6, "before each of five parts of the queries, and at the end"
    for name in ("keys", "values", "distances"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


def mapped_bytes() -> int:
    """Return how much of the files that are mapped is in memory."""
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if "RssFile" in line
    )
    return 1024 * int(line.split()[1])


def test_keys_are_let_go_of_while_a_memory_is_filled_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = DiskMemory(256, "IVF16,SQ4", dtype=torch.float16)
    before, peaks = mapped_bytes(), [0]
    for _ in range(30):
        made.add(torch.ones(10_000, 256), torch.zeros(10_000, dtype=torch.int64))
        peaks.append(mapped_bytes() - before)
    monkeypatch.setattr(
        persistence,
        "write_rows",
        lambda *given: (store.write_rows(*given), peaks.append(mapped_bytes() - before)),
    )
    monkeypatch.setattr(made, "write_index", lambda folder: None)
    save_memory(made, tmp_path / "m", **OWNER)
    size = (tmp_path / "m" / "keys.bin").stat().st_size
    assert max(peaks) < size / 2


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


ARRAYS = ["values.bin", "norms.bin", "log_normalizers.bin", "index.faiss"]


@pytest.mark.parametrize("name", [*ARRAYS, "keys.bin", "lists.bin"])
def test_damage_is_told(tmp_path: Path, name: str) -> None:
    save_memory(filled(2000), tmp_path / "m", **OWNER)
    flip(tmp_path / "m" / name)
    for reading in (load_memory, lambda folder, **_: check_files(read_manifest(folder), folder)):
        with pytest.raises(UserError, match=f"{name} was changed"):
            reading(tmp_path / "m", **OWNER)
    path = tmp_path / "m" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{name} has"):
        load_memory(tmp_path / "m", **OWNER)


@pytest.mark.parametrize("name", ARRAYS)
def test_damage_beside_large_keys_is_told(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "QUICK", 0)
    save_memory(filled(2000), tmp_path / "m", **OWNER)
    flip(tmp_path / "m" / "keys.bin")
    load_memory(tmp_path / "m", **OWNER)
    flip(tmp_path / "m" / name)
    with pytest.raises(UserError, match=f"{name} was changed"):
        load_memory(tmp_path / "m", **OWNER)


def test_large_lists_that_name_no_entry_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "QUICK", 0)
    save_memory(filled(2000), tmp_path / "m", **OWNER)
    path = tmp_path / "m" / "lists.bin"
    path.write_bytes(b"\x7f" * path.stat().st_size)
    with pytest.raises(UserError, match="inverted lists"):
        load_memory(tmp_path / "m", **OWNER).search(keys(2, 30), 20)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (
            MemoryConfig(store="disk", index="exact"),
            "memory.index=exact does not go with memory.store=disk",
        ),
        (
            MemoryConfig(store="disk", capacity=5),
            "memory.capacity=5 does not go with memory.store=disk",
        ),
        (MemoryConfig(store="disk", index="PQ4x4"), "memory.index=PQ4x4 cannot be kept on disk"),
        (
            MemoryConfig(store="disk", index="IVF4,PQ4x4fs"),
            "memory.index=IVF4,PQ4x4fs cannot be kept on disk",
        ),
    ],
)
def test_what_cannot_stand_on_disk_is_refused(config: MemoryConfig, match: str) -> None:
    with pytest.raises(UserError, match=match):
        build_memory(DIM, config)


def test_several_processes_read_one_memory(tmp_path: Path) -> None:
    save_memory(filled(2000), tmp_path / "m", **OWNER)
    code = (
        "import torch; from pathlib import Path; from hebblm.memory import load_memory;"
        "m = load_memory(Path('m'), model_hash='m', dictionary_hash='d');"
        "print(m.search(torch.zeros(1, 16), 5).values.tolist())"
    )
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [reader.communicate(timeout=120)[0] for reader in readers]
    assert told[0] == told[1] == f"{filled(2000).search(torch.zeros(1, 16), 5).values.tolist()}\n"
