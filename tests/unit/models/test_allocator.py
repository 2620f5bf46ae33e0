"""Freed memory is kept where the C library can be told to; elsewhere nothing happens."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import hebblm
from hebblm.cli.eval import main
from hebblm.models.device import keep_freed_memory

# Left alone, glibc learns from what is freed, and may come to the same.
GIVING_BACK = {
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "OMP_NUM_THREADS": "1",
}
FAULTS = """
import resource, sys, torch
from hebblm.models.device import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    return [torch.zeros(6 << 20) for _ in range(3)]  # 24 MiB each
for _ in range(6):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator is told")
def test_pages_of_a_step_serve_the_next_one() -> None:
    faults = {
        mode: int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, mode],
                check=True,
                capture_output=True,
                text=True,
                env={**os.environ, **GIVING_BACK},
            ).stdout
        )
        for mode in ("keep", "leave")
    }
    assert faults["leave"] > 10_000
    assert faults["keep"] < faults["leave"] / 10


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()


def test_only_a_command_asks_for_it_not_an_evaluation_from_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("Call frobnitz with two arguments .\n" * 3)
    asked: list[tuple[int, int]] = []
    told = SimpleNamespace(mallopt=lambda *values: asked.append(values) is None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: told)
    hebblm.evaluate("tiny-pydoc-raw", tmp_path / "a.txt", methods="lstm")
    assert not asked
    assert main(["--checkpoint", "tiny-pydoc-raw", "--text", str(tmp_path / "a.txt"), "--methods", "lstm"]) == 0
    assert len(asked) == 2
