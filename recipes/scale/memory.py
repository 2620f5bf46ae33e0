"""Cost of a memory on disk, by its entries: memory, recall, and time a token, cold and warm.

Keys are hidden states of a model that read a text, as fp16, as far as the text goes; further ones
are those states with noise of a share of each dimension's spread. Queries are states of another
text. Every stage runs in a process of its own, so that resident memory is its own; what is there
already is not measured again.

Usage: python -m recipes.scale.memory --folder DIR [--entries 1000000 3000000 10000000] [--json
FILE]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import hebblm
from hebblm.evaluation.training_text import Segments
from hebblm.io.files import atomic_path, read_json, write_json
from hebblm.io.provenance import provenance
from hebblm.memory import FlatMemory, MemoryConfig, build_memory, load_memory, save_memory
from hebblm.memory.disk import saved_entries
from hebblm.text import resolve
from recipes.bench.machine import cpu_name, peak_resident_bytes, use_threads

OWNER = {"model_hash": "scale", "dictionary_hash": "scale"}
NOISE = 0.5  # standard deviation of what perturbs a state, in those of its dimension
CHUNK = 1 << 16
QUERIES, BATCH, K = 1_000, 100, 200
SLACK = 1e-5  # relative rounding of a distance


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="for states and memories; 20 GB at 10 million"
    )
    parser.add_argument(
        "--entries", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000]
    )
    parser.add_argument("--model", default="llama-wt2-small")
    parser.add_argument("--corpus", default="wt2")
    parser.add_argument("--real", type=int, default=1_000_000, help="states that are read, at most")
    parser.add_argument("--nprobe", type=int)
    parser.add_argument("--rescore", type=int, default=MemoryConfig().rescore)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parents[1] / "results" / "bench" / "disk.json"
    )
    options = parser.parse_args()
    config = MemoryConfig(
        dtype="float16", store="disk", nprobe=options.nprobe, rescore=options.rescore
    )
    real = options.folder / "train.npy"
    if not real.is_file():
        alone(
            options.threads,
            read_states,
            options.model,
            options.corpus,
            options.real,
            options.folder,
        )
    rows: list[dict[str, Any]] = []
    for entries in options.entries:
        place = options.folder / f"{entries}"
        row = {"entries": entries, "real": min(entries, len(np.load(real, mmap_mode="r")))}
        stages = {
            "pieces": (read_pieces, real, entries, place),
            "fill": (fill, place, config),
            "search": (search, options.folder, place),
            "compare": (compare, options.folder, place),
        }
        for name, stage in stages.items():
            done = options.folder / f"{entries}-{name}.json"
            if not done.is_file():
                write_json(done, alone(options.threads, *stage))
            row |= read_json(done)
        rows.append(row)
        command = "python -m recipes.scale.memory " + " ".join(sys.argv[1:])
        made = {
            **provenance(command, device="cpu", seed=0),
            "cpu": cpu_name(),
            "threads": options.threads,
        }
        source = {"model": options.model, "corpus": options.corpus, "noise": NOISE}
        settings = {"k": K, "batch": BATCH, "queries": QUERIES, **source}
        write_json(options.json, {"provenance": made, "settings": settings, "rows": rows})
    return 0


def alone(threads: int, stage: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return the measurements of a stage, run in a process of its own."""
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), use_threads, (threads,)
    ) as pool:
        return pool.submit(stage, *arguments).result()


def read_states(model: str, corpus: str, count: int, folder: Path) -> dict[str, Any]:
    """Write the states of a model over a corpus: ``train.npy`` (n, D) fp16 and, of the validation
    text, queries.
    """
    lm = hebblm.load(model, device="cpu")
    sources = resolve(corpus).sources
    for split, wanted in (("valid", QUERIES), ("train", count)):
        text = "\n".join(sources[split].lines())
        ids = np.array(
            [lm.vocabulary.start, *lm.vocabulary.encode(text, include=False).ids][: wanted + 1]
        )
        keys = torch.cat([segment.keys for segment in lm.model.segments(ids)])[:wanted]
        with atomic_path(folder / f"{split}.npy") as temporary, temporary.open("wb") as stream:
            np.save(stream, (keys.half() if split == "train" else keys).numpy())
    return {}


def entries_of(real: Path, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ``count`` keys (M, D) and labels (M,): the real ones once, then real ones with
    noise.
    """
    found = torch.from_numpy(np.load(real))
    spread = found[:: max(1, len(found) // CHUNK)].float().std(0)  # (D,)
    for begin in range(0, count, CHUNK):
        places = torch.arange(begin, min(begin + CHUNK, count))
        keys = found[places % len(found)].float()
        noise = torch.randn(keys.shape, generator=torch.Generator().manual_seed(begin))
        keys += (places >= len(found))[:, None] * NOISE * spread * noise
        yield keys, places


def read_pieces(real: Path, count: int, place: Path) -> dict[str, Any]:
    """Write the finished pieces of a memory, as ``hebblm-memory build`` leaves them if it is killed
    after the last.
    """
    for index, (keys, labels) in enumerate(entries_of(real, count)):
        pieces_of(place).save(index, {"keys": keys.half(), "labels": labels})
    return {}


def fill(place: Path, config: MemoryConfig) -> dict[str, Any]:
    """Build and save a memory of finished pieces.

    Returns:
        Seconds until their entries are in the memory, and an interruption costs all of them again;
        seconds of the index and the files; bytes on disk, and of resident memory.
    """
    started, pieces = time.perf_counter(), pieces_of(place)
    count = pieces.finished()
    memory = build_memory(pieces.load(0)["keys"].shape[1], config, work=pieces.folder)
    for index in range(count):
        part = pieces.load(index)
        memory.fill(part["keys"], part["labels"])
    filled = time.perf_counter()
    save_memory(memory, place, **OWNER)
    shutil.rmtree(pieces.folder)
    return {
        "add_seconds": filled - started,
        "index_seconds": time.perf_counter() - filled,
        "bytes": {path.name: path.stat().st_size for path in sorted(place.iterdir())},
        "build_resident_bytes": peak_resident_bytes(),
    }


def pieces_of(place: Path) -> Segments:
    """Return the parts of a memory."""
    return Segments(place.with_name(f"{place.name}.parts"))


def search(folder: Path, place: Path) -> dict[str, Any]:
    """Search a saved memory, first with nothing of it in the system's cache; keep the distances
    that are found.
    """
    for path in place.glob("*.bin"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    queries = torch.from_numpy(np.load(folder / "valid.npy")).split(BATCH)
    opened = time.perf_counter()
    memory = load_memory(place, **OWNER)
    opened = time.perf_counter() - opened

    def seconds(some: Tensor) -> float:
        started = time.perf_counter()
        memory.search(some, K)
        return (time.perf_counter() - started) / len(some)

    cold = seconds(queries[0])
    first = [seconds(some) for some in queries[1:]]  # the cache fills
    distances = torch.cat([memory.search(some, K).distances for some in queries])
    warm = [seconds(some) for some in queries]
    with atomic_path(folder / "found.npy") as temporary, temporary.open("wb") as stream:
        np.save(stream, distances.numpy())
    return {
        "memory": memory.describe(),
        "open_seconds": opened,
        "cold_ms": 1000 * cold,
        "filling_ms": 1000 * float(np.median(first)),
        "warm_ms": 1000 * float(np.median(warm)),
        "resident_bytes": peak_resident_bytes(),
    }


def compare(folder: Path, place: Path) -> dict[str, Any]:
    """Return the share of the nearest entries that were found, against comparing with every
    entry.
    """
    queries = torch.from_numpy(np.load(folder / "valid.npy"))
    count = (place / "values.bin").stat().st_size // 8
    dim = queries.shape[1]
    exact = FlatMemory(dim, dtype=torch.float16).over(
        saved_entries(place, torch.float16, count, dim)
    )
    limit = exact.nearest(queries, K).distances[:, -1:]
    found = torch.from_numpy(np.load(folder / "found.npy"))
    near = found <= limit + SLACK * (limit.abs() + queries.square().sum(1, keepdim=True))
    return {"recall": float(near.float().mean())}


if __name__ == "__main__":
    sys.exit(main())
