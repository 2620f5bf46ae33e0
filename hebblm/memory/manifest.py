"""The manifest of a saved memory: what it holds, what it belongs to, and the hashes of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from hebblm.errors import UserError
from hebblm.files import Count, lack, read_record, sha256, write_json
from hebblm.memory.faiss_index import TrainedIndex
from hebblm.memory.store import KEY_DTYPES, accumulation_dtype

SCHEMA = "hebblm-memory/1"
NAME = "manifest.json"
LARGE, QUICK = ("keys.bin", "lists.bin"), 1 << 28
"""Files whose bytes are not read on opening, of a memory on disk, where they are more than so many: a second's work."""
Some = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """The settings of a FAISS memory, and its index if one was built."""

    factory: str  # "auto" or a factory string
    rescore: Some  # candidates for each neighbour
    nprobe: Some | None  # inverted lists visited, None for the default
    spec: str | None  # the factory string of the saved index, None if there is none
    trained: Count  # entries when the index was trained

    @classmethod
    def of(cls, settings: Mapping[str, Any], trained: TrainedIndex | None) -> IndexManifest:
        spec, count = (None, 0) if trained is None else (trained.spec, trained.trained)
        return cls(settings["factory"], settings["rescore"], settings["nprobe"], spec, count)


class Owner(TypedDict):
    """Hashes of what a memory belongs to: the model that made its keys, the dictionary that its labels refer to."""

    model_hash: str
    dictionary_hash: str


Kind = Literal["exact", "ring", "faiss", "hybrid", "disk"]
Dtype = Literal["float16", "bfloat16", "float32", "float64"]
Store = Literal["ram", "disk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Manifest of a saved memory; ``files`` maps each name to its size in bytes and its sha256."""

    schema: str
    kind: Kind
    model_hash: str
    dictionary_hash: str
    dtype: Dtype
    count: Count
    dim: Count
    capacity: Some | None = None
    flush_at: Some | None = None
    index: IndexManifest | None = None
    store: Store = "ram"
    files: dict[str, tuple[Count, str]]

    def write(self, folder: Path) -> None:
        write_json(folder / NAME, asdict(self), seal=True)


def describe_files(folder: Path) -> dict[str, tuple[int, str]]:
    return {path.name: (path.stat().st_size, sha256(path)) for path in sorted(folder.iterdir())}


def read_manifest(folder: Path) -> Manifest:
    path = folder / NAME
    if not path.is_file():
        raise UserError(f"{folder} holds no saved memory: {NAME} {lack(path)}; save one there first")
    manifest = read_record(Manifest, path, "build the memory anew", SCHEMA)
    _check_fields(manifest, path)
    return manifest


def check_owner(manifest: Manifest, folder: Path, *, model_hash: str, dictionary_hash: str) -> None:
    for name, found, expected in (
        ("model", manifest.model_hash, model_hash),
        ("dictionary", manifest.dictionary_hash, dictionary_hash),
    ):
        if found != expected:
            raise UserError(
                f"the memory in {folder} belongs to another {name} "
                f"(hash {found[:12]}, expected {expected[:12]}); build it anew with this {name}"
            )


def check_files(manifest: Manifest, folder: Path, *, quick: bool = False) -> None:
    """Refuse files that are missing, truncated or changed.

    If ``quick``, only the sizes of large keys and inverted lists count; there may be more than fits into memory.
    """
    for name, (size, digest) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} {lack(path)}; build the memory anew")
        if path.stat().st_size != size:
            raise UserError(f"{path} has {path.stat().st_size} bytes instead of {size}; build the memory anew")
        if not (quick and name in LARGE and size > QUICK) and sha256(path) != digest:
            raise UserError(f"{path} was changed (its sha256 is not the manifest's); build the memory anew")


def _check_fields(manifest: Manifest, path: Path) -> None:
    """Refuse values from which no memory can be made."""
    sound = (
        (manifest.kind != "ring" or manifest.capacity is not None)
        and (manifest.kind != "hybrid" or manifest.flush_at is not None)
        and (manifest.index is not None or (manifest.kind not in ("faiss", "disk") and manifest.store == "ram"))
        and all(Path(name).name == name for name in manifest.files)
    )
    if sound:
        itemsize = KEY_DTYPES[manifest.dtype].itemsize
        expected = {"keys.bin": manifest.count * manifest.dim * itemsize, "values.bin": manifest.count * 8}
        if "log_normalizers.bin" in manifest.files or manifest.store == "disk":
            expected["log_normalizers.bin"] = manifest.count * 4
        if manifest.store == "disk":
            expected["norms.bin"] = manifest.count * accumulation_dtype(KEY_DTYPES[manifest.dtype]).itemsize
        sizes = {name: manifest.files[name][0] for name in expected if name in manifest.files}
        has_index = manifest.index is not None and manifest.index.spec is not None
        sound = sizes == expected and has_index == ("index.faiss" in manifest.files)
        sound = sound and (manifest.store == "disk" and has_index) == ("lists.bin" in manifest.files)
    if not sound:
        raise UserError(f"{path} contradicts itself; build the memory anew")
