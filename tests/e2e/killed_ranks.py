"""``hebblm-eval`` as ``torchrun`` starts it for a test: saves often, and each time but the last one
rank is killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys

import torch
from torch import Tensor

from hebblm.cli.eval import main
from hebblm.evaluation import checkpoint
from hebblm.online import layout as layouts
from hebblm.runtime.ranks import Ranks, rank, size

KILLS = 2


def kill_at(exchange: int) -> None:
    gather, left = Ranks.all_gather_rows, iter(range(exchange))

    def counted(self: Ranks, rows: Tensor) -> list[Tensor]:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return gather(self, rows)

    Ranks.all_gather_rows = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    torch.set_num_threads(1)
    checkpoint.EVERY, layouts.READ_AHEAD = 0.0, 20
    seed, restarts = int(sys.argv[1]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    draw = random.Random(f"{seed} {restarts}")  # the same on all ranks
    if restarts < KILLS and draw.randrange(size()) == rank():
        kill_at(draw.randint(8, 20))
    del sys.argv[1]
    sys.exit(main())
