"""Powers of two and logarithms of float32, which numba turns into vector code.

``FLAGS`` let a sum be taken in any order. They promise nothing about NaN and infinity, which go
through as they do in torch.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import njit, types
from numba.extending import intrinsic

FLAGS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    "error_model": "numpy",
    "boundscheck": False,
    "nogil": True,
}
"""Options of every kernel."""
F = np.float32
I = np.int32  # noqa: E741 - the pair of F
BITS = F(1.44269504088896341)  # log2 e: logits in nats times this are in bits
NATS = F(0.69314718055994531)
SMALLEST = F(1.2e-38)  # a normal number
# Exponents that are told apart: what is smaller times a weight is still a normal number, for others
# take a hundred times as long.
LOW, HIGH = F(-100), F(127)


@intrinsic
def as_int(context: Any, value: Any) -> Any:
    """Return the bits of a float32 as an int32."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.bitcast(given[0], ir.IntType(32))

    return types.int32(types.float32), build


@intrinsic
def as_float(context: Any, value: Any) -> Any:
    """Return the float32 that has the bits of an int32."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.bitcast(given[0], ir.FloatType())

    return types.float32(types.int32), build


@njit(inline="always", **FLAGS)
def power_of_two(x):
    """``2^x`` within 3e-7 of its size, of x between -100 and 127, else of the nearer one; NaN
    stays.
    """
    # A comparison with NaN is false, so that NaN passes both limits.
    x = LOW if x < LOW else x
    x = HIGH if x > HIGH else x
    # Adding 1.5 * 2^23 rounds to a whole number, which is then in the lowest bits.
    shifted = as_int(x + F(12582912.0))
    whole = I(shifted - I(0x4B400000))
    rest = x - F(whole)
    # 2^rest by a polynomial fitted on -1/2 .. 1/2
    power = F(1.5403530e-4)
    power = power * rest + F(1.3333558e-3)
    power = power * rest + F(9.6181291e-3)
    power = power * rest + F(5.5504109e-2)
    power = power * rest + F(2.4022651e-1)
    power = power * rest + F(6.9314718e-1)
    power = power * rest + F(1)
    return power * as_float(I((whole + I(127)) << I(23)))


@njit(inline="always", **FLAGS)
def logarithm(x):
    """``log x`` in nats of a normal x above 0."""
    bits = as_int(x)
    # the mantissa is between 1/sqrt 2 and sqrt 2
    exponent = I((bits - I(0x3F3504F3)) >> I(23))
    mantissa = as_float(I(bits - (exponent << I(23))))
    ratio = (mantissa - F(1)) / (mantissa + F(1))
    square = ratio * ratio
    series = F(1) + square * (
        F(1 / 3) + square * (F(1 / 5) + square * (F(1 / 7) + square * F(1 / 9)))
    )
    return F(exponent) * NATS + F(2) * ratio * series


@njit(inline="always", **FLAGS)
def dot(a, b):
    """Return ``a . b`` of two rows."""
    total = F(0)
    for d in range(len(a)):
        total += a[d] * b[d]
    return total
