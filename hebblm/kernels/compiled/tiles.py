"""Dot products of bfloat16 rows by the processor's matrix tiles, with sums in float32.

A tile holds 16 rows of 64 bytes. One instruction multiplies 16 x 32 numbers of A with 32 x 16 of B,
whose numbers lie in pairs: the pairs of 16 rows at one place make a row of the tile.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from hebblm.kernels.compiled import processor
from hebblm.kernels.compiled.arithmetic import FLAGS
from hebblm.kernels.compiled.products import INDEX, at, rows_from

SIZE = 16  # rows of a tile, and 32-bit numbers in one
# of Linux on x86-64: the call by which a process asks for registers, and which ones these are
ARCH_PRCTL, REQUEST, TILES = 158, 0x1023, 18
BYTE, WORD = ir.IntType(8), ir.IntType(32)
LINE = ir.VectorType(WORD, SIZE)


@cache
def are_there() -> bool:
    """Return whether the processor has tiles, and the system lets this process use them."""
    if not (processor.has("amx-bf16") and processor.has("avx512f")):
        return False
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return int(ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST, TILES)) == 0


def _call(builder: Any, name: str, given: list[Any]) -> None:
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), given)


def _number(tile: int) -> Any:
    return ir.Constant(BYTE, tile)


@intrinsic
def _configure(context: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        _call(builder, "ldtilecfg", [at(builder, given[0], BYTE)])
        return context.get_dummy_value()

    return types.void(types.int64), build


@intrinsic
def _release(context: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        _call(builder, "tilerelease", [])
        return context.get_dummy_value()

    return types.void(), build


def _block_of(down: int, across: int) -> Any:
    """Return a function that writes ``down`` times ``across`` tiles of a product."""

    @intrinsic
    def block(
        context: Any, a: Any, a_row: Any, b: Any, b_row: Any, steps: Any, out: Any, out_row: Any
    ) -> Any:
        def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            a, a_row, b, b_row, steps, out, out_row = given
            sixteen = ir.Constant(INDEX, SIZE)
            for tile in range(down * across):
                _call(builder, "tilezero", [_number(tile)])
            left = [_number(4 + i) for i in range(down)]
            right = [_number(6 + j) for j in range(across)]
            with cgutils.for_range(builder, steps, intp=INDEX) as loop:
                corner = builder.add(a, builder.mul(loop.index, ir.Constant(INDEX, 64)))
                rows = rows_from(builder, corner, builder.mul(a_row, sixteen), down)
                for tile, place in zip(left, rows, strict=True):
                    _call(builder, "tileloadd64", [tile, at(builder, place, BYTE), a_row])
                corner = builder.add(b, builder.mul(loop.index, builder.mul(b_row, sixteen)))
                columns = rows_from(builder, corner, ir.Constant(INDEX, 64), across)
                for tile, place in zip(right, columns, strict=True):
                    _call(builder, "tileloadd64", [tile, at(builder, place, BYTE), b_row])
                for i in range(down):
                    for j in range(across):
                        _call(builder, "tdpbf16ps", [_number(across * i + j), left[i], right[j]])
            for i, row in enumerate(rows_from(builder, out, builder.mul(out_row, sixteen), down)):
                for j, place in enumerate(rows_from(builder, row, ir.Constant(INDEX, 64), across)):
                    tile = _number(across * i + j)
                    _call(builder, "tilestored64", [tile, at(builder, place, BYTE), out_row])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), build

    return block


_block, _narrow_block = _block_of(2, 2), _block_of(2, 1)


@intrinsic
def _transpose(context: Any, rows: Any, offset: Any, out: Any, out_row: Any) -> Any:
    """Write 16 x 16 words transposed; ``rows`` is the address of 16 addresses of rows."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        rows, offset, out, out_row = given
        lines = []
        for place in rows_from(builder, rows, ir.Constant(INDEX, 8), SIZE):
            row = builder.load(at(builder, place, INDEX), align=8)
            lines.append(builder.load(at(builder, builder.add(row, offset), LINE), align=4))
        for step in (1, 2, 4, 8):
            # of two lines, those lanes change places whose numbers differ in this bit
            first = [lane if not lane & step else SIZE + lane - step for lane in range(SIZE)]
            second = [lane + step if not lane & step else SIZE + lane for lane in range(SIZE)]
            for i in range(SIZE):
                if not i & step:
                    one, other = lines[i], lines[i + step]
                    lines[i] = builder.shuffle_vector(one, other, ir.Constant(LINE, first))
                    lines[i + step] = builder.shuffle_vector(one, other, ir.Constant(LINE, second))
        for line, place in zip(lines, rows_from(builder, out, out_row, SIZE), strict=True):
            builder.store(line, at(builder, place, LINE), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), build


@njit(**FLAGS)
def products(a, b, places, out, rows, columns, pairs):
    """``out[i, j] = a_i . b_places[j]`` of rows in bfloat16; see :func:`half.products`."""
    a_row = a.shape[1] * 2
    b_row = b.shape[1] * 2
    out_row = out.shape[1] * 4
    steps = a_row // 64
    pairs_row = pairs.shape[1] * 4
    first = a.ctypes.data
    second = b.ctypes.data
    result = out.ctypes.data
    packed = pairs.ctypes.data
    setting = np.zeros(64, np.uint8)
    setting[0] = 1
    for tile in range(8):
        setting[16 + 2 * tile] = 64  # bytes a row
        setting[48 + tile] = SIZE
    addresses = np.zeros(SIZE, np.int64)
    sixteens = (columns + SIZE - 1) // SIZE
    for j in range(sixteens):
        for q in range(SIZE):
            addresses[q] = second + places[min(j * SIZE + q, columns - 1)] * b_row
        where = addresses.ctypes.data
        for d in range(steps):
            _transpose(where, d * 64, packed + d * SIZE * pairs_row + j * 64, pairs_row)
    _configure(setting.ctypes.data)
    for i in range(0, rows, 2 * SIZE):
        for j in range(0, sixteens // 2 * 2, 2):
            _block(
                first + i * a_row, a_row, packed + j * 64, pairs_row, steps,
                result + i * out_row + j * 64, out_row,
            )  # fmt: skip
        if sixteens % 2:
            j = sixteens - 1
            _narrow_block(
                first + i * a_row, a_row, packed + j * 64, pairs_row, steps,
                result + i * out_row + j * 64, out_row,
            )  # fmt: skip
    _release()
