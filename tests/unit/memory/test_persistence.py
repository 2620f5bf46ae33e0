from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hebblm.errors import UserError
from hebblm.io.files import read_json, write_json
from hebblm.memory import (
    FaissMemory,
    FlatMemory,
    HybridMemory,
    RingMemory,
    faiss_index,
    load_memory,
    save_memory,
)
from hebblm.memory.persistence import SCHEMA


def rows(seed: int, count: int, dim: int = 8) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def saved(folder: Path) -> Path:
    memory = FaissMemory(8, "IVF4,PQ4x4fs", dtype=torch.float16, rescore=7, nprobe=2)
    memory.add(rows(0, 200), torch.arange(200))
    save_memory(memory, folder, model_hash="model", dictionary_hash="dictionary")
    return folder


def load(folder: Path, **changes: str) -> Any:
    return load_memory(
        folder, **{"model_hash": "model", "dictionary_hash": "dictionary", **changes}
    )


def test_a_trained_index_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "memory")
    monkeypatch.setattr(faiss_index, "train", None)
    loaded = load(folder)
    assert loaded.describe() == {
        "kind": "faiss",
        "dtype": "float16",
        "keys": "state",
        "entries": 200,
        "factory": "IVF4,PQ4x4fs",
        "index": "IVF4,PQ4x4fs",
        "rescore": 7,
        "nprobe": 2,
    }
    original = FaissMemory(8, "IVF4,PQ4x4fs", dtype=torch.float16, rescore=7, nprobe=2)
    original.add(rows(0, 200), torch.arange(200))
    monkeypatch.undo()
    queries = rows(1, 6)
    first, second = loaded.search(queries, 5), original.search(queries, 5)
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.keys, second.keys)


@pytest.mark.parametrize("mmap", [True, False])
def test_bfloat16_keys_are_kept_bit_for_bit_at_half_the_size(tmp_path: Path, mmap: bool) -> None:
    folder, keys, queries = tmp_path / "memory", rows(0, 60), rows(1, 6)
    memory = FlatMemory(8, dtype=torch.bfloat16)
    memory.add(keys, torch.arange(60))
    save_memory(memory, folder, model_hash="model", dictionary_hash="dictionary")
    assert (folder / "keys.bin").stat().st_size == 60 * 8 * 2
    loaded = load_memory(folder, model_hash="model", dictionary_hash="dictionary", mmap=mmap)
    assert loaded.dtype == torch.bfloat16
    first, second = loaded.search(queries, 9), memory.search(queries, 9)
    assert torch.equal(first.keys, keys.bfloat16().float()[first.values])
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.distances, second.distances)


def test_mapped_files_never_change(tmp_path: Path) -> None:
    folder = saved(tmp_path / "memory")
    before = (folder / "keys.bin").read_bytes()
    memory = load(folder)
    memory.add(rows(3, 50), torch.arange(50))
    memory.reset()
    memory.add(rows(4, 50), torch.arange(50))
    assert (folder / "keys.bin").read_bytes() == before


def test_hybrid_and_ring_keep_their_settings(tmp_path: Path) -> None:
    hybrid = HybridMemory(FlatMemory(8), FlatMemory(8), flush_at=33)
    hybrid.add(rows(0, 40), torch.arange(40))
    hybrid.add(rows(1, 20), torch.arange(20))
    save_memory(hybrid, tmp_path / "h", model_hash="model", dictionary_hash="dictionary")
    assert len(hybrid.recent) == 20
    loaded = load(tmp_path / "h")
    assert (len(loaded.bulk), len(loaded.recent), loaded.flush_at) == (60, 0, 33)
    ring = RingMemory(8, 15)
    ring.add(rows(0, 40), torch.arange(40))
    save_memory(ring, tmp_path / "r", model_hash="model", dictionary_hash="dictionary")
    loaded = load(tmp_path / "r")
    assert loaded.capacity == 15
    assert loaded.entries().values.tolist() == list(range(25, 40))


def test_an_empty_memory_survives(tmp_path: Path) -> None:
    save_memory(FlatMemory(8), tmp_path / "m", model_hash="model", dictionary_hash="dictionary")
    loaded = load(tmp_path / "m")
    assert len(loaded) == 0
    assert loaded.dim == 8


@pytest.mark.parametrize("which", ["model", "dictionary"])
def test_another_owner_is_refused(tmp_path: Path, which: str) -> None:
    folder = saved(tmp_path / "memory")
    with pytest.raises(
        UserError, match=f"belongs to another {which} .*; build it again with this {which}"
    ):
        load(folder, **{f"{which}_hash": "other"})


@pytest.mark.parametrize("name", ["keys.bin", "values.bin", "index.faiss"])
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    folder = saved(tmp_path / "memory")
    path = folder / name
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(
        UserError, match=f"{name} has {len(content) - 1} bytes instead of {len(content)}"
    ):
        load(folder)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=f"{name} was changed"):
        load(folder)
    path.unlink()
    with pytest.raises(UserError, match=f"{name} does not exist"):
        load(folder)
    os.mkfifo(path)
    with pytest.raises(UserError, match=f"{name} is not a plain file"):
        load(folder)


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda m: m.update(schema="hebblm-memory/2"),
            f"not of schema {SCHEMA} but 'hebblm-memory/2'",
        ),
        (lambda m: m.pop("count"), "does not fit"),
        (lambda m: m.update(index={"surprise": 1}), "does not fit"),
        (lambda m: m.update(kind="octree"), "does not fit"),
        (lambda m: m.update(kind="ring"), "contradict each other"),
        (lambda m: m.update(count=1 << 80), "does not fit"),
        (lambda m: m.update(count=199), "contradict each other"),
        (lambda m: m.update(index=None), "contradict each other"),
        (lambda m: m["files"].pop("keys.bin"), "contradict each other"),
        (lambda m: m["files"].update({"../outside": [0, ""]}), "contradict each other"),
    ],
)
def test_bad_manifests_are_refused(tmp_path: Path, change: Change, match: str) -> None:
    folder = saved(tmp_path / "memory")
    manifest = read_json(folder / "manifest.json")
    change(manifest)
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(UserError, match=match):
        load(folder)


def test_no_memory_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no saved memory"):
        load(tmp_path)


def test_an_index_of_other_keys_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "memory")
    other = FaissMemory(8, "IVF4,PQ4x4fs")
    other.add(rows(0, 300), torch.arange(300))
    save_memory(other, tmp_path / "other", model_hash="model", dictionary_hash="dictionary")
    (folder / "index.faiss").write_bytes((tmp_path / "other" / "index.faiss").read_bytes())
    manifest, others = (
        read_json(place / "manifest.json") for place in (folder, tmp_path / "other")
    )
    manifest["files"]["index.faiss"] = others["files"]["index.faiss"]
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(UserError, match="does not belong to its keys"):
        load(folder)


def test_saving_replaces_a_memory_but_nothing_else(tmp_path: Path) -> None:
    folder = saved(tmp_path / "memory")
    save_memory(load(folder), folder, model_hash="new", dictionary_hash="dictionary")
    assert len(load(folder, model_hash="new")) == 200
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("x")
    with pytest.raises(UserError, match="does not hold a memory"):
        save_memory(
            load(folder, model_hash="new"), tmp_path / "thesis", model_hash="m", dictionary_hash="d"
        )
    with pytest.raises(UserError, match="is a file"):
        save_memory(
            FlatMemory(2), tmp_path / "thesis" / "chapter", model_hash="m", dictionary_hash="d"
        )
    assert (tmp_path / "thesis" / "chapter").read_text() == "x"


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path / "memory")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FaissMemory, "write_index", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_memory(load(folder), folder, model_hash="new", dictionary_hash="dictionary")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["memory"]
