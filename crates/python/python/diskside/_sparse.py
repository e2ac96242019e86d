"""Blocks of DAPHNE's format that hold only the values that are not 0: as bytes, and as rows, columns and values."""

from __future__ import annotations

from typing import Any

import numpy

#: Of each value its row or column in the block.
Places = numpy.ndarray[Any, Any]
#: Rows, columns and values, in the order of the matrix.
Nonzeros = tuple[Places, Places, numpy.ndarray[Any, Any]]

#: Block types.
CSR, COO = 2, 3
NAMES = {CSR: "sparse (CSR)", COO: "ultra-sparse (COO)"}


def body_len(kind: int, count: int, rows: int, columns: int, value_len: int, of_daphne: bool) -> int:
    """Bytes behind the number of values.

    :param of_daphne: CSR as DAPHNE's run-time writes it, which is not what the specification says.
    """
    if kind == COO:
        return count * (4 * (1 + (columns > 1)) + value_len)
    if of_daphne:
        return 8 * (rows + 1) + count * (8 + value_len)
    return 4 * rows + count * (4 + value_len)


def nonzeros_of(
    kind: int, data: memoryview, count: int, rows: int, columns: int, dtype: numpy.dtype[Any], of_daphne: bool
) -> Nonzeros:
    """The values of a block.

    :raises ValueError: what in it cannot be.
    """
    if kind == COO:
        at, across, values = _coo(data, columns, dtype)
    elif of_daphne:
        at, across, values = _csr_of_daphne(data, count, rows, dtype)
    else:
        at, across, values = _csr(data, count, rows, dtype)
    if at.size and (at.max() >= rows or across.max() >= columns):
        raise ValueError(f"a value is at ({at.max()}, {across.max()}) or beyond")
    order = numpy.lexsort((across, at))
    at, across, values = at[order], across[order], values[order]
    if ((at[1:] == at[:-1]) & (across[1:] == across[:-1])).any():
        raise ValueError("two values have the same place")
    return at, across, values


def _coo(data: memoryview, columns: int, dtype: numpy.dtype[Any]) -> Nonzeros:
    """Of one column there are no columns."""
    names = ["row", "column", "value"] if columns > 1 else ["row", "value"]
    found = numpy.frombuffer(data, [(name, dtype if name == "value" else "<u4") for name in names])
    across = found["column"] if columns > 1 else numpy.zeros(len(found), "<u4")
    return found["row"].astype("i8"), across.astype("i8"), found["value"]


def _csr(data: memoryview, count: int, rows: int, dtype: numpy.dtype[Any]) -> Nonzeros:
    """Row by row how many values it has, and of each its column before it."""
    one = numpy.dtype([("column", "<u4"), ("value", dtype)])
    found = numpy.empty(count, one)
    counts = numpy.zeros(rows, "i8")
    at = done = 0
    for row in range(rows):
        held = int.from_bytes(data[at : at + 4], "little")
        if held > count - done:
            raise ValueError(f"its rows up to row {row} have more than {count} values")
        counts[row] = held
        if held:
            found[done : done + held] = numpy.frombuffer(data, one, held, at + 4)
        at += 4 + held * one.itemsize
        done += held
    if done != count:
        raise ValueError(f"its rows have {done} values, and it says {count}")
    return numpy.repeat(numpy.arange(rows), counts), found["column"].astype("i8"), found["value"]


def _csr_of_daphne(data: memoryview, count: int, rows: int, dtype: numpy.dtype[Any]) -> Nonzeros:
    """Where each row begins, all columns, all values."""
    starts = numpy.frombuffer(data, "<u8", rows + 1)
    across = numpy.frombuffer(data, "<u8", count, 8 * (rows + 1))
    values = numpy.frombuffer(data, dtype, count, 8 * (rows + 1 + count))
    if starts[0] != 0 or starts[-1] != count or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"its rows do not begin one behind another, from 0 to {count}")
    if across.size and across.max() >= 2**32:
        raise ValueError(f"a value is in column {across.max()}")
    return numpy.repeat(numpy.arange(rows), numpy.diff(starts.astype("i8"))), across.astype("i8"), values


def bytes_of(kind: int, found: Nonzeros, rows: int, columns: int, of_daphne: bool) -> bytes:
    """A block, from the number of values on."""
    at, across, values = found
    if kind == COO:
        names = ["row", "column", "value"] if columns > 1 else ["row", "value"]
        made = numpy.empty(len(at), [(name, values.dtype if name == "value" else "<u4") for name in names])
        made["row"], made["value"] = at, values
        if columns > 1:
            made["column"] = across
        return len(at).to_bytes(4, "little") + made.tobytes()
    counts = numpy.bincount(at, minlength=rows)
    count = len(at).to_bytes(8, "little")
    if of_daphne:
        starts = numpy.concatenate([[0], numpy.cumsum(counts)]).astype("<u8")
        return count + starts.tobytes() + across.astype("<u8").tobytes() + values.tobytes()
    one = numpy.empty(len(at), [("column", "<u4"), ("value", values.dtype)])
    one["column"], one["value"] = across, values
    ends = numpy.cumsum(counts)
    parts = [int(held).to_bytes(4, "little") + one[end - held : end].tobytes() for held, end in zip(counts, ends, strict=True)]
    return count + b"".join(parts)
