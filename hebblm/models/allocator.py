"""Keeping freed memory for the next step instead of handing it back to the system."""

from __future__ import annotations

import ctypes

# Of glibc's malloc.h. The threshold is the largest that glibc accepts on 64-bit machines.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_THRESHOLD = 32 << 20  # bytes
NEVER = (1 << 31) - 1  # bytes


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed; return whether there was a glibc to ask.

    A step of training or of evaluation frees tens of megabytes, and the next one asks for as many; pages that were
    given back have to be mapped and cleared anew. The process grows to its largest step and stays there.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    kept = [mallopt(M_MMAP_THRESHOLD, LARGEST_THRESHOLD), mallopt(M_TRIM_THRESHOLD, NEVER)]
    return all(kept)
