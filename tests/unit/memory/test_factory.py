from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from hebblm.errors import UserError
from hebblm.memory import (
    FaissMemory,
    FlatMemory,
    HybridMemory,
    MemoryConfig,
    RingMemory,
    build_memory,
    faiss_index,
    load_memory,
    save_memory,
)
from hebblm.memory.persistence import read_manifest


def test_defaults_suit_a_stream() -> None:
    pytest.importorskip("faiss")
    memory = build_memory(8, MemoryConfig())
    assert isinstance(memory, HybridMemory)
    assert isinstance(memory.bulk, FaissMemory)
    assert memory.describe() == {
        "kind": "hybrid",
        "dtype": "float32",
        "keys": "root",
        "entries": 0,
        "factory": "auto",
        "index": None,
        "rescore": 5,
        "nprobe": None,
        "flush_at": 4096,
    }


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (MemoryConfig(index="exact"), FlatMemory),
        (MemoryConfig(capacity=250), RingMemory),
        (MemoryConfig(index="exact", capacity=250), RingMemory),
        (MemoryConfig(index="IVF16,PQ4x4fs", nprobe=3, rescore=9), HybridMemory),
    ],
)
def test_kinds(config: MemoryConfig, kind: type) -> None:
    assert type(build_memory(8, config)) is kind


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_reaches_both_sides(name: str) -> None:
    memory = build_memory(8, MemoryConfig(index="PQ4x4fs", dtype=name))
    assert isinstance(memory, HybridMemory)
    assert memory.bulk.dtype == memory.recent.dtype == getattr(torch, name)


def test_auto_is_exact_without_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_index, "is_installed", lambda: False)
    assert type(build_memory(8, MemoryConfig())) is FlatMemory


def test_auto_is_exact_on_a_gpu() -> None:
    memory = build_memory(8, MemoryConfig(), torch.device("meta"))
    assert type(memory) is FlatMemory


def test_an_automatic_index_is_compared_whole_where_there_is_no_faiss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    memory = build_memory(8, MemoryConfig())
    memory.add(torch.randn(300, 8), torch.arange(300))
    save_memory(memory, tmp_path / "saved", model_hash="m", dictionary_hash="d")
    queries = torch.randn(5, 8)
    expected = memory.search(queries, 7)
    monkeypatch.setattr(faiss_index, "is_installed", lambda: False)
    again = load_memory(tmp_path / "saved", model_hash="m", dictionary_hash="d")
    assert isinstance(again, HybridMemory)
    assert type(again.bulk) is FlatMemory
    assert torch.equal(again.search(queries, 7).values, expected.values)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (MemoryConfig(capacity=0), "memory.capacity=0"),
        (MemoryConfig(index="PQ4x4fs", capacity=10), "memory.capacity=10"),
        (MemoryConfig(index="exact", nprobe=3), "memory.nprobe=3"),
        (MemoryConfig(index="typo"), "memory.index='typo'"),
        (MemoryConfig(rescore=0), "memory.rescore=0"),
        (MemoryConfig(rescore=0, capacity=10), "memory.rescore=0"),
        (MemoryConfig(nprobe=0), "memory.nprobe=0"),
    ],
)
def test_bad_configurations(config: MemoryConfig, match: str) -> None:
    with pytest.raises(UserError, match=match):
        build_memory(8, config)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"store": "disc"},
            r"unknown memory\.store 'disc'; did you mean disk\? use one of ram, disk",
        ),
        (
            {"dtype": "floa32"},
            r"unknown memory\.dtype 'floa32'; did you mean float32\? use one of float32, float16",
        ),
    ],
)
def test_a_mistyped_word_is_told_before_anything_is_loaded(
    options: dict[str, str], told: str
) -> None:
    with pytest.raises(UserError, match=told):
        MemoryConfig(**options)  # type: ignore[arg-type]


def test_a_memory_in_ram_keeps_its_name_in_the_cache() -> None:
    assert "store" not in MemoryConfig().identity()
    assert MemoryConfig(store="disk").identity()["store"] == "disk"


def test_an_option_that_comes_later_changes_no_name_in_the_cache_until_it_is_used() -> None:
    @dataclass(frozen=True, slots=True)
    class Later(MemoryConfig):
        sample: bool = False

    assert Later().identity() == MemoryConfig().identity()
    assert Later(sample=True).identity() == {**MemoryConfig().identity(), "sample": True}


class Sampled(FlatMemory):
    """A memory that counts what it was given."""

    def __init__(self, dim: int, kind: str) -> None:
        super().__init__(dim)
        self.kind = kind  # type: ignore[misc]

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "given": 3}


def test_a_setting_without_a_field_is_kept_in_the_manifest(tmp_path: Path) -> None:
    memory = Sampled(2, "exact")
    memory.add(torch.ones(3, 2), torch.arange(3))
    save_memory(memory, tmp_path / "memory", model_hash="m", dictionary_hash="d")
    assert read_manifest(tmp_path / "memory").settings == {"given": 3}
    save_memory(FlatMemory(2), tmp_path / "plain", model_hash="m", dictionary_hash="d")
    assert read_manifest(tmp_path / "plain").settings == {}


def test_a_kind_that_could_not_be_read_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a Sampled cannot be saved: its kind, 'smapled'"):
        save_memory(Sampled(2, "smapled"), tmp_path / "memory", model_hash="m", dictionary_hash="d")
    assert not (tmp_path / "memory").exists()
