"""Sums, products and maxima of arrays in eight lanes, as vector instructions; sums of two arrays.

Strict rules of arithmetic forbid a compiler to add up in another order than is written, so that a
plain loop adds one number at a time.  Here the order is that of eight lanes, on any processor:
number q is in lane q mod 8, and the lanes are added in pairs.  Sizes are multiples of LANES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit

#: Arrays are treated so many numbers at a time: their sizes are a multiple.
LANES = 8
_INT, _LANE = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


def _add(b: Any, x: Any, y: Any) -> Any:
    return b.fadd(x, y)


def _larger(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _reduction(start: float, combine: Callable[..., Any]) -> Callable[..., Any]:
    """Machine code: combine the products of the arrays' numbers lane by lane, then the lanes."""

    def generate(context: Any, b: Any, signature: Any, arrays: Any) -> Any:
        assert all(t.layout == "C" for t in signature.args)
        kinds = zip(signature.args, arrays, strict=True)
        views = [context.make_array(t)(context, b, x) for t, x in kinds]
        so_far = cgutils.alloca_once_value(b, ir.Constant(_VECTOR, [start] * LANES))
        size = b.extract_value(views[0].shape, 0)
        with cgutils.for_range_slice(b, _INT(0), size, _INT(LANES), _INT) as (q, _):
            term = None
            for view in views:
                x = b.load(b.bitcast(b.gep(view.data, [q]), _VECTOR.as_pointer()))
                x.align = 8
                term = x if term is None else b.fmul(term, x)
            b.store(combine(b, b.load(so_far), term), so_far)
        lanes = b.load(so_far)
        parts = [b.extract_element(lanes, _LANE(k)) for k in range(LANES)]
        while len(parts) > 1:
            parts = [combine(b, x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return generate


def _add_to(context: Any, b: Any, signature: Any, args: Any) -> Any:
    """Machine code: add whole numbers to some of a row, lane by lane."""
    out, x = (context.make_array(signature.args[k])(context, b, args[k]) for k in (0, 3))
    _, row, first, _ = args
    vector = ir.VectorType(_INT, LANES).as_pointer()
    to = b.gep(out.data, [b.add(b.mul(row, b.extract_value(out.shape, 1)), first)])
    size = b.extract_value(x.shape, 0)
    with cgutils.for_range_slice(b, _INT(0), size, _INT(LANES), _INT) as (q, _):
        place = b.bitcast(b.gep(to, [q]), vector)
        old, more = b.load(place), b.load(b.bitcast(b.gep(x.data, [q]), vector))
        old.align = more.align = 8
        b.store(b.add(old, more), place, align=8)
    return context.get_dummy_value()


def _moved(add: bool) -> Callable[..., Any]:
    """Machine code: copy numbers of one array to another, or add them, lane by lane."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        out, x = (context.make_array(signature.args[k])(context, b, args[k]) for k in (0, 2))
        to, source, vector = b.gep(out.data, [args[1]]), b.gep(x.data, [args[3]]), _VECTOR
        with cgutils.for_range_slice(b, _INT(0), args[4], _INT(LANES), _INT) as (q, _):
            place = b.bitcast(b.gep(to, [q]), vector.as_pointer())
            more = b.load(b.bitcast(b.gep(source, [q]), vector.as_pointer()))
            more.align = 8
            if add:
                old = b.load(place)
                old.align = 8
                more = b.fadd(old, more)
            b.store(more, place, align=8)
        return context.get_dummy_value()

    return generate


def _with_rows(context: Any, b: Any, signature: Any, args: Any) -> Any:
    """Machine code: numbers times those of rows of a table, which stay in registers meanwhile."""
    start, table, index, out = (
        context.make_array(t)(context, b, x) for t, x in zip(signature.args, args, strict=True)
    )
    size, vector = b.extract_value(out.shape, 0), _VECTOR.as_pointer()
    row_size, n = b.extract_value(table.shape, 1), b.extract_value(index.shape, 0)
    so_far = cgutils.alloca_once(b, _VECTOR)
    with cgutils.for_range_slice(b, _INT(0), size, _INT(LANES), _INT) as (q, _):
        first = b.load(b.bitcast(b.gep(start.data, [q]), vector))
        first.align = 8
        b.store(first, so_far)
        with cgutils.for_range(b, n) as loop:
            row = b.sext(b.load(b.gep(index.data, [loop.index])), _INT)
            at = b.gep(table.data, [b.add(b.mul(row, row_size), q)])
            x = b.load(b.bitcast(at, vector))
            x.align = 8
            b.store(b.fmul(b.load(so_far), x), so_far)
        b.store(b.load(so_far), b.bitcast(b.gep(out.data, [q]), vector), align=8)
    return context.get_dummy_value()


def _with_numbers(context: Any, b: Any, signature: Any, args: Any) -> Any:
    """Machine code: rows of LANES numbers times numbers, whose sum stays in registers."""
    x, table, out = (
        context.make_array(t)(context, b, a) for t, a in zip(signature.args, args, strict=True)
    )
    vector = _VECTOR.as_pointer()
    so_far = cgutils.alloca_once_value(b, ir.Constant(_VECTOR, [0.0] * LANES))
    with cgutils.for_range(b, b.extract_value(x.shape, 0)) as loop:
        one = b.insert_element(
            ir.Constant(_VECTOR, ir.Undefined), b.load(b.gep(x.data, [loop.index])), _LANE(0)
        )
        zeros = ir.Constant(ir.VectorType(_LANE, LANES), [0] * LANES)
        each = b.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)
        row = b.load(b.bitcast(b.gep(table.data, [b.mul(loop.index, _INT(LANES))]), vector))
        row.align = 8
        b.store(b.fadd(b.load(so_far), b.fmul(each, row)), so_far)
    b.store(b.load(so_far), b.bitcast(out.data, vector), align=8)
    return context.get_dummy_value()


@intrinsic
def _sum_of_rows(typing: Any, x: Any, table: Any, out: Any) -> Any:
    assert all(t.layout == "C" for t in (x, table, out))
    return types.void(x, table, out), _with_numbers


@intrinsic
def _times_rows(typing: Any, start: Any, table: Any, index: Any, out: Any) -> Any:
    assert all(x.layout == "C" for x in (start, table, index, out))
    return types.void(start, table, index, out), _with_rows


@intrinsic
def _copy(typing: Any, out: Any, to: Any, x: Any, first: Any, n: Any) -> Any:
    assert out.layout == x.layout == "C"
    return types.void(out, types.int64, x, types.int64, types.int64), _moved(add=False)


@intrinsic
def _append(typing: Any, out: Any, to: Any, x: Any, first: Any, n: Any) -> Any:
    assert out.layout == x.layout == "C"
    return types.void(out, types.int64, x, types.int64, types.int64), _moved(add=True)


@intrinsic
def _increase(typing: Any, out: Any, row: Any, first: Any, x: Any) -> Any:
    assert out.layout == x.layout == "C"
    return types.void(out, types.int64, types.int64, x), _add_to


@intrinsic
def _total(typing: Any, x: Any) -> Any:
    return types.float64(x), _reduction(0.0, _add)


@intrinsic
def _dot(typing: Any, x: Any, y: Any) -> Any:
    return types.float64(x, y), _reduction(0.0, _add)


@intrinsic
def _largest(typing: Any, x: Any) -> Any:
    return types.float64(x), _reduction(-np.inf, _larger)


@jit
def increase(out: Ints, row: int, first: int, x: Ints) -> None:
    """Add x to the whole numbers ``out[row, first : first + x.size]``.

    The loop that says so is turned into vector instructions too, but for 16 numbers or more at a
    time; sums by node are shorter.
    """
    _increase(out, row, first, x)


@jit
def copy(out: Floats, to: int, x: Floats, first: int, n: int) -> None:
    """``out[to : to + n] = x[first : first + n]``, of arrays seen as flat.

    Loops over slices take some times as long as this where n is small.
    """
    _copy(out, to, x, first, n)


@jit
def add(out: Floats, to: int, x: Floats, first: int, n: int) -> None:
    """``out[to : to + n] += x[first : first + n]``, of arrays seen as flat."""
    _append(out, to, x, first, n)


@jit
def times_rows(start: Floats, table: Floats, index: Any, out: Floats) -> None:
    """``out = start * product of the rows table[index]``."""
    _times_rows(start, table, index, out)


@jit
def sum_of_rows(x: Floats, table: Floats, out: Floats) -> None:
    """``out = x @ table`` for a table of LANES columns, of the first rows."""
    _sum_of_rows(x, table, out)


@jit
def total(x: Floats) -> float:
    """Sum."""
    return _total(x)


@jit
def dot(x: Floats, y: Floats) -> float:
    """Sum of products."""
    return _dot(x, y)


@jit
def largest(x: Floats) -> float:
    """The largest number."""
    return _largest(x)
