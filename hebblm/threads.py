"""Waiting policy of OpenMP's threads: brief, so that a busy machine does not stand still."""

from __future__ import annotations

import os
import sys

SPINS = "1000"
CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def wait_briefly() -> None:
    """Let a thread that waits give its processor away soon, unless the user chose how threads wait.

    By default libgomp, the OpenMP runtime that torch and FAISS bring along, lets a thread that has nothing to do look
    for work 300,000 times before it sleeps. Where another process needs the processor, those turns keep it from just
    the thread that is waited for. A thousand turns bridge the gaps between two products as well on a quiet machine
    (``recipes/results/bench/busy.json``), where going to sleep at once, as a passive policy does, takes longer.

    The runtime reads the environment when it is loaded, so this must come before torch; where the caller has imported
    torch already, nothing is done. The AWD-LSTM port, which stands alone, leaves the choice to whoever imports it.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in CHOICES):
        os.environ["OMP_WAIT_POLICY"] = "passive"  # for every runtime; to libgomp the next line goes first
        os.environ["GOMP_SPINCOUNT"] = SPINS
