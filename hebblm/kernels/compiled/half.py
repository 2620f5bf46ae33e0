"""Dot products of bfloat16 rows with sums in float32, by the processor's own instruction.

torch's product of bfloat16 rounds its result to bfloat16, which loses what a probability needs.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from hebblm.kernels.compiled import processor, tiles
from hebblm.kernels.compiled.arithmetic import FLAGS, F, as_float, as_int
from hebblm.kernels.compiled.arithmetic import I as Int
from hebblm.kernels.compiled.products import INDEX, at, rows_from, totals

STEP = 32  # numbers that one instruction takes of a row; rows are padded to a multiple of it
INSTRUCTION = "llvm.x86.avx512bf16.dpbf16ps.512"


def has_instruction() -> bool:
    """Return whether the processor multiplies bfloat16 and adds in float32."""
    return tiles.are_there() or processor.has("avx512bf16")


class _Bfloat16(ir.types._BaseFloatType):
    """The type that llvmlite has no name for."""

    null = "0.0"
    intrinsic_name = "bf16"

    def __str__(self) -> str:
        return "bfloat"

    def format_constant(self, value: object) -> str:
        raise NotImplementedError("no constant of this type is written")


_Bfloat16._create_instance()
SUMS = ir.VectorType(ir.FloatType(), 16)
PAIRS = ir.VectorType(_Bfloat16(), STEP)


@intrinsic
def _block(
    context: Any, a: Any, a_row: Any, b0: Any, b1: Any, b2: Any, b3: Any, width: Any, out: Any,
    out_row: Any,
) -> Any:  # fmt: skip
    """Write the products of 4 rows of A with 4 rows anywhere; addresses and lengths in bytes."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        a, a_row, b0, b1, b2, b3, width, out, out_row = given
        kind = ir.FunctionType(SUMS, [SUMS, PAIRS, PAIRS])
        multiply = cgutils.get_or_insert_function(builder.module, kind, INSTRUCTION)
        zero = ir.Constant(SUMS, [0.0] * 16)
        sums = [cgutils.alloca_once(builder, SUMS) for _ in range(16)]
        for place in sums:
            builder.store(zero, place)
        down = rows_from(builder, a, a_row, 4)
        size = ir.Constant(INDEX, 2 * STEP)
        with cgutils.for_range(builder, builder.udiv(width, size), intp=INDEX) as loop:
            offset = builder.mul(loop.index, size)
            columns = [
                builder.load(at(builder, builder.add(row, offset), PAIRS), align=2)
                for row in (b0, b1, b2, b3)
            ]
            for i in range(4):
                row = builder.load(at(builder, builder.add(down[i], offset), PAIRS), align=2)
                for j in range(4):
                    place = sums[4 * i + j]
                    total = builder.call(multiply, [builder.load(place), row, columns[j]])
                    builder.store(total, place)
        whole = totals(builder, [builder.load(place) for place in sums], SUMS)
        four = ir.VectorType(ir.FloatType(), 4)
        for i, row in enumerate(rows_from(builder, out, out_row, 4)):
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), 4), [4 * i + j for j in range(4)])
            builder.store(
                builder.shuffle_vector(whole, whole, lanes), at(builder, row, four), align=4
            )
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9), build


@njit(inline="always", **FLAGS)
def rounded(x):
    """Return the bits of the bfloat16 nearest to a float32."""
    bits = as_int(x)
    return Int((bits + Int(0x7FFF) + ((bits >> Int(16)) & Int(1))) >> Int(16))


@njit(**FLAGS)
def _by_instruction(a, b, places, out, rows, columns, pairs):
    a_row = a.shape[1] * 2
    b_row = b.shape[1] * 2
    out_row = out.shape[1] * 4
    first = a.ctypes.data
    second = b.ctypes.data
    result = out.ctypes.data
    for j in range(0, columns, 4):
        b0 = second + places[j] * b_row
        b1 = second + places[j + 1] * b_row
        b2 = second + places[j + 2] * b_row
        b3 = second + places[j + 3] * b_row
        for i in range(0, rows, 4):
            _block(
                first + i * a_row, a_row, b0, b1, b2, b3, a_row,
                result + i * out_row + j * 4, out_row,
            )  # fmt: skip


@njit(**FLAGS)
def by_loop(a, b, places, out, rows, columns, pairs):
    """The same in plain arithmetic, for a processor without the instruction."""
    for i in range(rows):
        for j in range(columns):
            x = a[i]
            y = b[places[j]]
            total = F(0)
            for d in range(len(x)):
                one = as_float(Int(Int(x[d]) << Int(16)))
                total += one * as_float(Int(Int(y[d]) << Int(16)))
            out[i, j] = total


if tiles.are_there():
    products = tiles.products
elif has_instruction():
    products = _by_instruction
else:
    products = by_loop
# products(a, b, places, out, rows, columns, pairs) writes ``out[i, j] = a_i . b_places[j]`` of rows
# in bfloat16, as int16 bits, padded to 32 numbers. The rows are rounded up to a multiple of 32, the
# columns to one of 16, for which A and the result have room. ``pairs``
# is room for as many columns of half a row of 32-bit words.
