"""Several processes read what one reads: the same streams, the same scores of every token by every
method.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hebblm.runtime.ranks import ALONE

from . import over_ranks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def alone() -> dict[str, np.ndarray]:
    rows = over_ranks.layouts.ROWS
    try:
        return over_ranks.everything(ALONE)
    finally:
        over_ranks.layouts.ROWS = rows


@pytest.mark.parametrize("processes", [3])
def test_processes_read_what_one_reads(
    processes: int, alone: dict[str, np.ndarray], tmp_path: Path
) -> None:
    place = tmp_path / "scores.npz"
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *start, "-m", "tests.parity.over_ranks", str(place)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(processes), "gloo"]  # once
    with np.load(place) as found:
        assert set(found) == set(alone)
        for name, nll in alone.items():
            np.testing.assert_allclose(found[name], nll, rtol=0, atol=1e-6, err_msg=name)
