"""Options of a memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hebblm.runtime.spelling import unknown

DTYPES = ("float32", "float16", "bfloat16")
STORES = ("ram", "disk")
KEYS = ("root", "state")


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
        earlier = {"store": "ram", "keys": "state"}
        return {name: value for name, value in asdict(self).items() if earlier.get(name) != value}
