"""Products of small float32 matrices, on one thread: numba's own go to a library with threads.

The inner blocks are written in LLVM's vector instructions, which any processor gets as its own. All
matrices lie in rows; a matrix that is read in vectors has rows padded with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.ir as ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from hebblm.kernels.compiled import processor
from hebblm.kernels.compiled.arithmetic import FLAGS, F

WIDE = 16  # numbers that rows are padded to
BLOCK = 4  # rows that are computed at once; a matrix has room for a multiple of it
# numbers in a register
LANES = 16 if processor.has("avx512f") else 8
DOWN = LANES // 4  # rows of A in a block of A B^T
INDEX, FLOAT = ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
FLAT = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)


def _fused(builder: Any) -> Any:
    kind = ir.FunctionType(VECTOR, [VECTOR, VECTOR, VECTOR])
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")


def _sums(builder: Any, count: int) -> list[Any]:
    """Return places for so many sums, which begin at zero."""
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    places = [cgutils.alloca_once(builder, VECTOR) for _ in range(count)]
    for place in places:
        builder.store(zero, place)
    return places


def at(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def rows_from(builder: Any, address: Any, stride: Any, count: int) -> list[Any]:
    """Return addresses of so many rows, ``stride`` bytes apart."""
    addresses = [address]
    for _ in range(count - 1):
        addresses.append(builder.add(addresses[-1], stride))
    return addresses


def totals(builder: Any, vectors: Sequence[Any], kind: Any) -> Any:
    """Return one vector with the sum of each of as many vectors as it has numbers.

    Two vectors become one whose numbers are sums of neighbours, until one vector is left.
    """
    lanes = kind.count
    index = ir.VectorType(ir.IntType(32), lanes)
    even = ir.Constant(index, list(range(0, 2 * lanes, 2)))
    odd = ir.Constant(index, list(range(1, 2 * lanes, 2)))
    left = list(vectors)
    while len(left) > 1:
        pairs = zip(left[::2], left[1::2], strict=True)
        left = [
            builder.fadd(
                builder.shuffle_vector(one, other, even), builder.shuffle_vector(one, other, odd)
            )
            for one, other in pairs
        ]
    return left[0]


@intrinsic
def _block_transposed(
    context: Any, a: Any, a_row: Any, b: Any, b_row: Any, width: Any, out: Any, out_row: Any
) -> Any:
    """Write the products of DOWN rows of A with 4 rows of B; addresses and lengths in bytes."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        a, a_row, b, b_row, width, out, out_row = given
        fused = _fused(builder)
        sums = _sums(builder, DOWN * 4)
        down, across = rows_from(builder, a, a_row, DOWN), rows_from(builder, b, b_row, 4)
        size = ir.Constant(INDEX, 4 * LANES)
        with cgutils.for_range(builder, builder.udiv(width, size), intp=INDEX) as loop:
            offset = builder.mul(loop.index, size)
            columns = [
                builder.load(at(builder, builder.add(row, offset), VECTOR), align=4)
                for row in across
            ]
            for i in range(DOWN):
                row = builder.load(at(builder, builder.add(down[i], offset), VECTOR), align=4)
                for j in range(4):
                    place = sums[4 * i + j]
                    total = builder.call(fused, [row, columns[j], builder.load(place)])
                    builder.store(total, place)
        whole = totals(builder, [builder.load(place) for place in sums], VECTOR)
        four = ir.VectorType(FLOAT, 4)
        for i, row in enumerate(rows_from(builder, out, out_row, DOWN)):
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), 4), [4 * i + j for j in range(4)])
            builder.store(
                builder.shuffle_vector(whole, whole, lanes), at(builder, row, four), align=4
            )
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), build


def _block_of(down: int, across: int) -> Any:
    """Return a function that writes ``down`` rows and ``across`` vectors of columns of A B."""

    @intrinsic
    def block(
        context: Any, a: Any, a_row: Any, b: Any, b_row: Any, inner: Any, out: Any, out_row: Any
    ) -> Any:
        def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            a, a_row, b, b_row, inner, out, out_row = given
            fused = _fused(builder)
            sums = _sums(builder, down * across)
            rows = rows_from(builder, a, a_row, down)
            step = ir.Constant(INDEX, 4 * LANES)
            with cgutils.for_range(builder, inner, intp=INDEX) as loop:
                offset = builder.mul(loop.index, ir.Constant(INDEX, 4))
                begin = builder.add(b, builder.mul(loop.index, b_row))
                columns = [
                    builder.load(at(builder, place, VECTOR), align=4)
                    for place in rows_from(builder, begin, step, across)
                ]
                for i in range(down):
                    one = builder.load(at(builder, builder.add(rows[i], offset), FLOAT), align=4)
                    empty = ir.Constant(VECTOR, ir.Undefined)
                    single = builder.insert_element(empty, one, ir.Constant(ir.IntType(32), 0))
                    spread = builder.shuffle_vector(single, empty, FLAT)
                    for j in range(across):
                        place = sums[across * i + j]
                        total = builder.call(fused, [spread, columns[j], builder.load(place)])
                        builder.store(total, place)
            for i, row in enumerate(rows_from(builder, out, out_row, down)):
                for j, place in enumerate(rows_from(builder, row, step, across)):
                    value = builder.load(sums[across * i + j])
                    builder.store(value, at(builder, place, VECTOR), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), build

    return block


if LANES == 16:
    ACROSS = 4
else:
    ACROSS = 2  # such a processor has half as many registers
_block = _block_of(BLOCK, ACROSS)
_narrow_block = _block_of(BLOCK, 1)


@njit(**FLAGS)
def times_transposed(a, b, out, rows, columns):
    """``out = A B^T`` of the first rows of A and of B, whose rows are padded to a multiple of 16.

    Both numbers are rounded up to a multiple of 4, for which all three need room.
    """
    a_row = a.shape[1] * 4
    b_row = b.shape[1] * 4
    out_row = out.shape[1] * 4
    first = a.ctypes.data
    second = b.ctypes.data
    result = out.ctypes.data
    for j in range(0, columns, 4):
        for i in range(0, rows, DOWN):
            _block_transposed(
                first + i * a_row,
                a_row,
                second + j * b_row,
                b_row,
                a_row,
                result + i * out_row + j * 4,
                out_row,
            )


@njit(**FLAGS)
def times(a, b, out, rows, inner):
    """``out = A B`` of the first rows of A, with ``inner`` numbers each, and as many rows of B.

    The columns of B and of the result are padded to a multiple of 16; the rows are rounded up to a
    multiple of 4, for which A and the result need room.
    """
    a_row = a.shape[1] * 4
    b_row = b.shape[1] * 4
    columns = b.shape[1]
    first = a.ctypes.data
    second = b.ctypes.data
    result = out.ctypes.data
    wide = columns // (ACROSS * LANES) * (ACROSS * LANES)
    for j in range(0, wide, ACROSS * LANES):
        for i in range(0, rows, BLOCK):
            place = i * b_row + j * 4
            _block(first + i * a_row, a_row, second + j * 4, b_row, inner, result + place, b_row)
    for j in range(wide, columns, LANES):
        for i in range(0, rows, BLOCK):
            place = i * b_row + j * 4
            _narrow_block(
                first + i * a_row, a_row, second + j * 4, b_row, inner, result + place, b_row
            )


@njit(inline="always", **FLAGS)
def padded(count):
    """Return a number of columns rounded up to a multiple of 16."""
    return (count + WIDE - 1) // WIDE * WIDE


__all__ = ["BLOCK", "WIDE", "F", "padded", "times", "times_transposed"]
