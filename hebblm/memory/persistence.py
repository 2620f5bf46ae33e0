"""A saved memory: raw little-endian arrays, and a manifest with their types, owners and hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, cast, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hebblm.errors import UserError
from hebblm.io.files import Count, atomic_path, check_own, lack, read_record, sha256, write_json
from hebblm.io.tensors import read_tensors, write_tensors
from hebblm.memory.base import AnyMemory
from hebblm.memory.disk import INDEX, open_lists, saved_entries
from hebblm.memory.faiss_index import TrainedIndex, load_faiss
from hebblm.memory.store import CHUNK, KEY_DTYPES, EntryStore, accumulation_dtype, write_rows

SCHEMA = "hebblm-memory/1"
NAME, ABOUT, NGRAMS = "manifest.json", "about.json", "ngrams.safetensors"
LARGE, QUICK = ("keys.bin", "lists.bin"), 1 << 28
"""Files of a memory on disk whose bytes are not checked on opening if they are larger; that would
take a second.
"""
Some = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """The settings of a FAISS memory, and its index if one was built."""

    factory: str  # "auto" or a factory string
    rescore: Some  # candidates for each neighbour
    nprobe: Some | None  # inverted lists visited, None for the default
    spec: str | None  # the factory string of the saved index, None without an index
    trained: Count  # entries when the index was trained

    @classmethod
    def of(cls, settings: Mapping[str, Any], trained: TrainedIndex | None) -> IndexManifest:
        spec, count = (None, 0) if trained is None else (trained.spec, trained.trained)
        return cls(settings["factory"], settings["rescore"], settings["nprobe"], spec, count)


class Owner(TypedDict):
    """Hashes of a memory's owners: the model that made its keys, and the dictionary of its
    labels.
    """

    model_hash: str
    dictionary_hash: str


Kind = Literal["exact", "ring", "faiss", "hybrid", "disk"]
Dtype = Literal["float16", "bfloat16", "float32", "float64"]
Store = Literal["ram", "disk"]
Keys = Literal["root", "state"]


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
    keys: Keys = "state"
    # of the kind's own settings, those that have no field here
    settings: dict[str, bool | int | float | str] = field(default_factory=dict)
    files: dict[str, tuple[Count, str]]


def read_manifest(folder: Path) -> Manifest:
    path = folder / NAME
    if not path.is_file():
        raise UserError(
            f"{folder} holds no saved memory: {NAME} {lack(path)}; save one there first"
        )
    manifest = read_record(Manifest, path, "build the memory again", SCHEMA)
    _check_fields(manifest, path)
    return manifest


def check_owner(manifest: Manifest, folder: Path, *, model_hash: str, dictionary_hash: str) -> None:
    for name, value, expected in (
        ("model", manifest.model_hash, model_hash),
        ("dictionary", manifest.dictionary_hash, dictionary_hash),
    ):
        if value != expected:
            raise UserError(
                f"the memory in {folder} belongs to another {name} "
                f"(hash {value[:12]}, expected {expected[:12]}); build it again with this {name}"
            )


def check_files(manifest: Manifest, folder: Path, *, quick: bool = False) -> None:
    """Refuse files that are missing, truncated or changed.

    With ``quick``, only the sizes of large keys and inverted lists are checked; they may not fit
    into memory.
    """
    for name, (size, digest) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} {lack(path)}; build the memory again")
        if path.stat().st_size != size:
            raise UserError(
                f"{path} has {path.stat().st_size} bytes instead of {size}; build the memory again"
            )
        if not (quick and name in LARGE and size > QUICK) and sha256(path) != digest:
            raise UserError(
                f"{path} was changed (its sha256 is not the manifest's); build the memory again"
            )


def _check_fields(manifest: Manifest, path: Path) -> None:
    """Refuse values that do not describe a memory."""
    sound = (
        (manifest.kind != "ring" or manifest.capacity is not None)
        and (manifest.kind != "hybrid" or manifest.flush_at is not None)
        and (
            manifest.index is not None
            or (manifest.kind not in ("faiss", "disk") and manifest.store == "ram")
        )
        and all(Path(name).name == name for name in manifest.files)
    )
    if sound:
        itemsize = KEY_DTYPES[manifest.dtype].itemsize
        expected = {
            "keys.bin": manifest.count * manifest.dim * itemsize,
            "values.bin": manifest.count * 8,
        }
        if "log_normalizers.bin" in manifest.files or manifest.store == "disk":
            expected["log_normalizers.bin"] = manifest.count * 4
        if manifest.store == "disk":
            expected["norms.bin"] = (
                manifest.count * accumulation_dtype(KEY_DTYPES[manifest.dtype]).itemsize
            )
        sizes = {name: manifest.files[name][0] for name in expected if name in manifest.files}
        has_index = manifest.index is not None and manifest.index.spec is not None
        sound = sizes == expected and has_index == ("index.faiss" in manifest.files)
        sound = sound and (manifest.store == "disk" and has_index) == (
            "lists.bin" in manifest.files
        )
    if not sound:
        raise UserError(f"{path} has values that contradict each other; build the memory again")


class SourceText(TypedDict, total=False):
    """Record of a text that was read: its name or file, if it has one, and its known numbers."""

    path: str
    bytes: Count
    sha256: str
    column: str
    tokens: Count
    words: Count  # new to the model and to the texts before it
    read: str  # when it was read last
    pieces: list[Count]  # tokens of the pieces in which a memory of texts was built


class About(TypedDict, total=False):
    """Record that comes with the entries of a saved memory."""

    model: str | None
    known: Count | None
    words: list[str]
    tokenizer: Literal["own", "whitespace", "moses"] | None
    texts: list[SourceText]
    identity: str


def save_memory(
    memory: AnyMemory,
    folder: Path,
    *,
    model_hash: str,
    dictionary_hash: str,
    about: Mapping[str, Any] | None = None,
    ngrams: Mapping[str, npt.NDArray[np.generic]] | None = None,
) -> None:
    """Write the entries of a memory to a folder, whole or not at all; they do not change.

    Args:
        memory: the memory to save; recent entries of a :class:`HybridMemory` belong to its bulk
            when loaded.
        folder: created, or replaced if it holds a saved memory.
        model_hash: hash of the model that made the keys.
        dictionary_hash: hash of the dictionary of the values.
        about: a record of the memory, see :func:`read_about`.
        ngrams: counts of the exact words, see :func:`read_ngrams`; None or empty without counts.

    Raises:
        UserError: ``folder`` holds something else, or cannot be written.
    """
    check_replaceable(folder)
    segments, settings = memory.segments(), memory.settings()
    store = settings.get("store", "ram")
    with atomic_path(folder, directory=True) as temporary:
        _write_parts(temporary / "keys.bin", [part.keys for part in segments], memory.release)
        _write_parts(temporary / "values.bin", [part.values for part in segments])
        logs = [part.log_normalizers for part in segments if part.log_normalizers is not None]
        if store == "disk":
            _write_parts(temporary / "norms.bin", [part.norms for part in segments])
        if len(logs) == len(segments):
            _write_parts(temporary / "log_normalizers.bin", logs)
        elif store == "disk":
            lacking = torch.full((1,), float("nan"), dtype=torch.float32)
            _write_parts(
                temporary / "log_normalizers.bin", [lacking.expand(len(part)) for part in segments]
            )
        trained = memory.write_index(temporary)
        if about is not None:
            write_json(temporary / ABOUT, dict(about), seal=True)
        if ngrams:
            tensors = {name: torch.from_numpy(np.array(counts)) for name, counts in ngrams.items()}
            write_tensors(temporary / NGRAMS, tensors, "hebblm-ngrams")
        manifest = Manifest(
            schema=SCHEMA,
            kind=_kind(memory),
            model_hash=model_hash,
            dictionary_hash=dictionary_hash,
            dtype=cast(Dtype, str(segments[0].keys.dtype).removeprefix("torch.")),
            count=len(memory),
            dim=memory.dim,
            keys="root" if memory.signed_sqrt else "state",
            capacity=settings.get("capacity"),
            flush_at=settings.get("flush_at"),
            index=IndexManifest.of(settings, trained) if "factory" in settings else None,
            store=store,
            settings=_further(settings),
            files={
                path.name: (path.stat().st_size, sha256(path))
                for path in sorted(temporary.iterdir())
            },
        )
        write_json(temporary / NAME, asdict(manifest), seal=True)


def _kind(memory: AnyMemory) -> Kind:
    if memory.kind not in get_args(Kind):
        raise ValueError(
            f"a {type(memory).__name__} cannot be saved: its kind, {memory.kind!r}, is not in Kind "
            "of hebblm/memory/persistence.py"
        )
    return cast(Kind, memory.kind)


# settings that have a field of the manifest, or that its other fields give
_WITH_FIELDS = {"capacity", "flush_at", "store", "factory", "rescore", "nprobe", "index"}


def _further(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a kind that have no field of the manifest."""
    return {name: value for name, value in settings.items() if name not in _WITH_FIELDS}


def check_replaceable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the memory")
    if folder.exists() and any(folder.iterdir()):
        try:
            manifest = read_manifest(folder)
        except UserError as error:
            raise UserError(f"{folder} does not hold a memory; choose another folder") from error
        check_own(folder, {NAME, *manifest.files})


def read_about(folder: Path, name: str = ABOUT) -> dict[str, Any]:
    """Return the record of a saved memory, empty if it has no record.

    It includes ``words``, the new ones after the ``known`` classes of the model.
    """
    if not (folder / name).is_file():
        return {}
    return dict(read_record(About, folder / name, "build the memory again"))


def read_ngrams(folder: Path) -> dict[str, npt.NDArray[np.generic]]:
    """Return the counts of n-grams of a saved memory, empty if it has no counts."""
    if not (folder / NGRAMS).is_file():
        return {}
    return {
        name: tensor.numpy()
        for name, tensor in read_tensors(
            folder / NGRAMS, "hebblm-ngrams", "build the memory again"
        )[0].items()
    }


def read_entries(
    manifest: Manifest, folder: Path, *, mmap: bool, device: torch.device
) -> EntryStore:
    """Return the entries; mapped pages are copied on write, so the files never change."""
    dtype, count = KEY_DTYPES[manifest.dtype], manifest.count
    if manifest.store == "disk":
        return saved_entries(folder, dtype, count, manifest.dim)
    keys = _read_rows(folder / "keys.bin", dtype, count * manifest.dim, mmap=mmap).view(
        count, manifest.dim
    )
    values = _read_rows(folder / "values.bin", torch.int64, count, mmap=False)
    logs = None
    if "log_normalizers.bin" in manifest.files:
        logs = _read_rows(folder / "log_normalizers.bin", torch.float32, count, mmap=False).to(
            device
        )
    return EntryStore.from_tensors(keys.to(device), values.to(device), logs)


def read_index(manifest: Manifest, store: EntryStore, folder: Path) -> TrainedIndex | None:
    """Return the index over a prefix of the entries, None without a trained one; its sha256 was
    checked before.
    """
    index = manifest.index
    if index is None or index.spec is None:
        return None
    path, faiss = folder / INDEX, load_faiss(f"the index of {folder}")
    try:
        if manifest.store == "disk":
            trained: TrainedIndex = open_lists(folder, index.spec, index.trained)
        else:
            trained = TrainedIndex(faiss.read_index(str(path)), index.spec, index.trained)
    except RuntimeError as error:
        raise UserError(
            f"this FAISS ({faiss.__version__}) cannot read {path}; build the memory again"
        ) from error
    if trained.index.d != store.dim or len(trained) > len(store):
        raise UserError(f"{path} does not belong to its keys; build the memory again")
    return trained


def _write_parts(
    path: Path, parts: list[Tensor], release: Callable[[], None] = lambda: None
) -> None:
    with path.open("wb") as stream:
        for rows in (rows for part in parts for rows in torch.split(part, CHUNK)):
            write_rows(stream, rows)
            release()


def _read_rows(path: Path, dtype: torch.dtype, size: int, *, mmap: bool) -> Tensor:
    """Return ``size`` values of a file, mapped copy-on-write or read."""
    if not size:
        return torch.empty(0, dtype=dtype)
    mapped = torch.from_file(str(path), shared=False, size=size, dtype=dtype)
    return mapped if mmap else mapped.clone()
