"""Rates of the machine at best, measured at the sizes of the work they are held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from recipes.bench.timing import MINIMUM_REPEATS, Turn, interleave, stopwatch
from recipes.study.cost.work import Work

MINIMUM_BYTES = 8 << 20  # read at a time; less would measure how long an operation takes to start
MAXIMUM_BYTES = 1 << 30  # more would measure the same
CPU_EXPONENTIALS = 1 << 18  # within the caches, as they are in the work
CUDA_EXPONENTIALS = 1 << 26
PASSES = 4  # over what is read in order, as work comes back to it mini-batch by mini-batch
BAG = 200  # rows that are added up
SQUARE = (512, 512, 512)
WIDTH = 1024  # of the matrix that is read in order


@dataclass(frozen=True, slots=True)
class Rates:
    """Amounts of work that a second is enough for.

    Args:
        streamed: bytes read in order.
        gathered: bytes read row by row.
        operations: of matrix products.
        exponentials: of single numbers.
    """

    streamed: float
    gathered: float
    operations: float
    exponentials: float

    def seconds(self, work: Work) -> float:
        """Return the least time that ``work`` can take: moving bytes or computing, whichever takes longer."""
        moved = work.streamed / self.streamed + work.gathered / self.gathered
        computed = work.operations / self.operations + work.exponentials / self.exponentials
        return max(moved, computed)


@torch.no_grad()
def measure_rates(table: Tensor, products: Sequence[tuple[int, int, int]], *, streamed: float) -> Rates:
    """Measure the machine with the threads that torch has now; medians of five.

    What is read in order is as large as what the work goes through, so that caches which serve the work serve its
    measure too. Where there are several ways to do something, the fastest counts; a large square product is always one
    of those to multiply.

    Args:
        table: (M, D), the rows that the work gathers, float32 or of half that size.
        products: shapes (n, d, m) of the matrix products (n, d) x (d, m) that the work consists of.
        streamed: bytes that the work goes through in order before it comes to the same ones again.
    """
    device, draw = table.device, torch.Generator().manual_seed(0)
    passed = min(max(MINIMUM_BYTES, round(streamed)), MAXIMUM_BYTES)
    matrix = torch.ones(passed // (4 * WIDTH), WIDTH, device=device)
    vector = torch.ones(WIDTH, device=device)
    row_bytes = table.shape[1] * table.element_size()
    count = max(BAG, 2 * MINIMUM_BYTES // row_bytes // BAG * BAG)
    picked = torch.randint(len(table), (count,), generator=draw).to(device)
    size = CUDA_EXPONENTIALS if device.type == "cuda" else CPU_EXPONENTIALS
    numbers = torch.linspace(-8, 0, size, device=device)
    result = torch.empty_like(numbers)

    def turn(call: Callable[[], object], units: int) -> Turn:
        return stopwatch(call, units, device)

    def repeated(call: Callable[[], object]) -> Callable[[], None]:
        def calls() -> None:
            for _ in range(PASSES):
                call()

        return calls

    def add_bags() -> Tensor:
        return torch.nn.functional.embedding_bag(picked.view(-1, BAG), table, mode="sum")

    def copy_rows() -> None:
        for some in torch.split(picked, max(1, CPU_EXPONENTIALS // table.shape[1])):
            table.index_select(0, some)

    turns = {
        "streamed by product": turn(repeated(lambda: torch.mv(matrix, vector)), PASSES * matrix.nbytes),
        "streamed by sum": turn(repeated(matrix.sum), PASSES * matrix.nbytes),
        "gathered by bags": turn(add_bags, count * row_bytes),
        "gathered by copies": turn(copy_rows, count * row_bytes),
        "exponentials": turn(lambda: torch.exp(numbers, out=result), size),
    }
    for number, (n, d, m) in enumerate((*products, SQUARE)):
        left, right = torch.ones(n, d, device=device), torch.ones(d, m, device=device)
        turns[f"operations of {number}"] = turn(partial(torch.matmul, left, right), 2 * n * d * m)
    timings = interleave(turns, MINIMUM_REPEATS)

    def best(kind: str) -> float:
        return max(1000 / timing.milliseconds().median for name, timing in timings.items() if name.startswith(kind))

    return Rates(*(best(kind) for kind in ("streamed", "gathered", "operations", "exponentials")))
