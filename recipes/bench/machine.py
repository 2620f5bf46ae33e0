"""Description of the machine that measures, and the memory in use."""

from __future__ import annotations

import platform
import resource
import sys
from pathlib import Path

import torch

from hebblm.memory import faiss_index


def cpu_name() -> str:
    """Return the processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def use_threads(threads: int | None) -> int:
    """Give torch and FAISS so many threads, None for as many as torch takes; return the number."""
    if threads is not None:
        torch.set_num_threads(threads)
    count = torch.get_num_threads()
    if faiss_index.is_installed():
        faiss_index.load_faiss().omp_set_num_threads(count)
    return count


def resident_bytes() -> int | None:
    """Return the resident memory of this process, None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    return int(lines["VmRSS"].split()[0]) * 1024


def peak_resident_bytes() -> int:
    """Return the largest resident memory that this process had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
