"""Options of a memory."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hebblm.runtime.spelling import unknown

DTYPES = ("float32", "float16", "bfloat16")
STORES = ("ram", "disk")
KEYS = ("root", "state")

# Names in the cache date from when a memory had these options alone. An option that came later is
# left out of them at the value that was fixed before: its default, unless it is listed here.
_FIRST = ("index", "capacity", "dtype", "nprobe", "rescore")
_FIXED_BEFORE = {"keys": "state"}


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """Options of keeping and searching entries.

    Args:
        index: "exact"; "auto", which is exact on a GPU, without FAISS, or below 20,000 entries, and
            else a trained index with exact re-scoring; or any FAISS factory string.
        capacity: number of latest entries to keep (Hebb-250, Hebb-500); None keeps all.
        dtype: type of the stored keys: "float32", or at half the size "float16" (3 decimal digits
            up to 65,504) or "bfloat16" (2 digits, the range of float32).
        nprobe: inverted lists visited by a search; None for one in 32, at least 32.
        rescore: candidates for each neighbour that a trained index proposes.
        keys: "root", the signed square root of every number of a hidden state, so that no dimension
            outweighs the others; or "state", as published.
        store: "ram", or "disk" for more entries than fit into memory: arrays and inverted lists in
            files, which several processes may read.
    """

    index: str = "auto"
    capacity: int | None = None
    dtype: str = "float32"
    nprobe: int | None = None
    rescore: int = 5
    store: str = "ram"
    keys: str = "root"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("dtype", self.dtype, DTYPES),
            ("store", self.store, STORES),
            ("keys", self.keys, KEYS),
        ):
            if value not in known:
                raise unknown(f"memory.{name}", value, known, f"use one of {', '.join(known)}")

    def identity(self) -> dict[str, object]:
        """Return the options that tell memories of the same entries apart, without those fixed in
        earlier versions.
        """
        identity = {}
        for option in fields(self):
            value = getattr(self, option.name)
            before = _FIXED_BEFORE.get(option.name, option.default)
            if option.name in _FIRST or value != before:
                identity[option.name] = value
        return identity
