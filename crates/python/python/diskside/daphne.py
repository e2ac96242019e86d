"""Matrices in DAPHNE's binary format (``.dbdf``), in one block or cut into blocks, read in parts and reduced where they are.

It needs the package ``numpy``.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from ._function import function
from ._names import joined
from ._session import Session, default_session
from .errors import UsageError
from .partition import combine

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

#: Version, data type, rows, columns, value type.
_HEADER = struct.Struct("<BBQQB")
#: First row and column; rows, columns, block type.
_BLOCK = struct.Struct("<QQIIB")
_VERSION = 1
_DENSE_MATRIX = 1
_OBJECTS = {2: "a CSRMatrix", 3: "a Frame"}
_EMPTY, _DENSE = 0, 1
_BLOCKS = {2: "sparse (CSR)", 3: "ultra-sparse (COO)"}
#: Value types as DAPHNE's run-time numbers them, and as its specification does. Of no number are both as long.
_OF_DAPHNE = {0: "i1", 1: "i4", 2: "i8", 3: "u1", 4: "u4", 5: "u8", 6: "f4", 7: "f8"}
_OF_SPECIFICATION = {1: "u1", 2: "u2", 3: "u4", 4: "u8", 5: "i1", 6: "i2", 7: "i4", 8: "i8", 9: "f4", 10: "f8"}
_NUMBERINGS = {"daphne": _OF_DAPHNE, "specification": _OF_SPECIFICATION}
_NAMES = {"i1": "si8", "i4": "si32", "i8": "si64", "u1": "ui8", "u4": "ui32", "u8": "ui64", "f4": "f32", "f8": "f64"}
#: Of numpy's types the names that ``array_stats`` has.
_TYPES = {"u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32", "i4": "i32", "u8": "u64", "i8": "i64"}
_TYPES |= {"f4": "f32", "f8": "f64"}
#: Files have no more blocks than this.
_BLOCKS_MAX = 1 << 20


class Block(NamedTuple):
    """A rectangle of a matrix, and where its values are in the file."""

    row: int
    column: int
    rows: int
    columns: int
    offset: int
    """Of its first value, in bytes; 0 of an empty block, all of whose values are 0."""


class Matrix:
    """A matrix in a file, of which only the blocks that are asked for are read.

    :param name: a path, or a URL of an export.
    :param session: the session that it works in; by default the one of :func:`diskside.run`.
    :param numbering: how value types are numbered: ``daphne``, ``specification``, or None: as fits the file's length.
    :raises UsageError: the file is no dense matrix in this format.

    >>> Matrix("diskside://server/data/m.dbdf")[10:20, 3]
    """

    def __init__(
        self, name: str | os.PathLike[str], *, session: Session | None = None, numbering: str | None = None
    ) -> None:
        self._session = session or default_session()
        self.name = joined(self._session.url, name)
        self._file = self._session.open(self.name)
        self._length = self._file.size
        version, kind, rows, columns, code = self._read(_HEADER, 0)
        if version != _VERSION:
            raise self._wrong(f"its version is {version}, and {_VERSION} is known")
        if kind != _DENSE_MATRIX:
            raise self._wrong(f"it is {_OBJECTS.get(kind, f'an object of type {kind}')}; dense matrices are read")
        self.shape: tuple[int, int] = (rows, columns)
        tables = [_NUMBERINGS[numbering]] if numbering is not None else list(_NUMBERINGS.values())
        wrong = None
        for table in tables:
            if code not in table:
                continue
            self.dtype = numpy.dtype("<" + table[code])
            try:
                self.blocks: list[Block] = list(self._walk(code))
                return
            except UsageError as error:
                wrong = wrong or error
        raise wrong or self._wrong(f"its value type {code} is none that is known")

    def _wrong(self, why: str) -> UsageError:
        return UsageError(f"{self.name}: it is no matrix of DAPHNE's that can be read: {why}")

    def _read(self, what: struct.Struct, at: int) -> tuple[int, ...]:
        found = self._file.read(at, what.size)
        if len(found) != what.size:
            raise self._wrong(f"it ends at byte {self._length}, within a header at {at}")
        return what.unpack(found)

    def _walk(self, code: int) -> Iterator[Block]:
        at, held = _HEADER.size, 0
        rows, columns = self.shape
        count = 0
        while at < self._length:
            row, column, block_rows, block_columns, kind = self._read(_BLOCK, at)
            at += _BLOCK.size
            count += 1
            if row + block_rows > rows or column + block_columns > columns or count > _BLOCKS_MAX:
                raise self._wrong(f"a block of {block_rows} × {block_columns} at ({row}, {column}) is not within {rows} × {columns}")
            held += block_rows * block_columns
            if kind == _EMPTY:
                yield Block(row, column, block_rows, block_columns, 0)
                continue
            if kind != _DENSE:
                raise self._wrong(f"a block at ({row}, {column}) is {_BLOCKS.get(kind, kind)}; dense and empty blocks are read")
            found = self._file.read(at, 1)
            if found != bytes([code]):
                raise self._wrong(f"a block at ({row}, {column}) has values of another type")
            at += 1
            yield Block(row, column, block_rows, block_columns, at)
            at += block_rows * block_columns * self.dtype.itemsize
        if at != self._length or held != rows * columns:
            raise self._wrong(f"its blocks hold {held} values up to byte {at}; it has {rows} × {columns}, and {self._length} bytes")

    def __getitem__(self, wanted: Any) -> numpy.ndarray[Any, Any]:
        """Rows and columns, as of a numpy array: slices and numbers. Blocks are read at the same time, each whole."""
        row_of, column_of = wanted if isinstance(wanted, tuple) else (wanted, slice(None))
        rows, columns = numpy.arange(self.shape[0])[row_of], numpy.arange(self.shape[1])[column_of]
        made = numpy.zeros((rows.size, columns.size), self.dtype)
        rows_flat, columns_flat = numpy.atleast_1d(rows), numpy.atleast_1d(columns)
        begun = []
        for block in self.blocks:
            here = numpy.flatnonzero((rows_flat >= block.row) & (rows_flat < block.row + block.rows))
            there = numpy.flatnonzero((columns_flat >= block.column) & (columns_flat < block.column + block.columns))
            if block.offset and here.size and there.size:
                # Of a block, the rows between the first and the last that are wanted.
                first, last = rows_flat[here].min() - block.row, rows_flat[here].max() - block.row
                start = block.offset + int(first) * block.columns * self.dtype.itemsize
                length = (int(last) - int(first) + 1) * block.columns * self.dtype.itemsize
                begun.append((block, first, here, there, self._file.submit_read(start, length)))
        for block, first, here, there, job in begun:
            values = numpy.frombuffer(job.result(), self.dtype).reshape(-1, block.columns)
            picked = numpy.ix_(rows_flat[here] - block.row - first, columns_flat[there] - block.column)
            made[numpy.ix_(here, there)] = values[picked]
        return made.reshape(rows.shape + columns.shape)

    def statistics(self, **options: Any) -> dict[str, Any]:
        """Count, sum, min, max and mean of all values, by ``array_stats`` over the blocks where they are.

        :param options: those of :meth:`diskside.Session.run`.
        """
        run_by = function("array_stats")
        kind = _TYPES[f"{self.dtype.kind}{self.dtype.itemsize}"]
        args = {"type": kind}
        jobs = []
        for block in self.blocks:
            if block.offset and block.rows * block.columns:
                end = block.offset + block.rows * block.columns * self.dtype.itemsize
                how: dict[str, Any] = {"range": (block.offset, end), "split": "whole", "header": "none", "decompress": "none"}
                jobs.append(self._session.submit(run_by, self._file, args=args, **how, **options))
        parts = [job.result().bytes for job in jobs]
        zeros = sum(block.rows * block.columns for block in self.blocks if not block.offset)
        if zeros or not parts:
            parts.append(self._of_zeros(zeros))
        row = combine(run_by, parts, session=self._session).rows()[0]
        is_float = self.dtype.kind == "f"
        total, low, high = (row[f"float_{name}" if is_float else name] for name in ("sum", "min", "max"))
        if self.dtype == numpy.dtype("<u8"):
            total, low, high = total % 2**64, low % 2**64, high % 2**64
        count = row["count"]
        # A sum of whole numbers may be more than its 64 bits hold; the rounded one is not.
        exact = total if abs(row["float_sum"]) < 2.0**62 else row["float_sum"]
        return {"count": count, "sum": total, "min": low, "max": high, "mean": exact / count if count else float("nan")}

    def _of_zeros(self, count: int) -> bytes:
        row = numpy.zeros((), function("array_stats").dtype)
        row["count"], row["is_float"], row["is_unsigned"] = count, self.dtype.kind == "f", self.dtype.kind == "u"
        if count == 0:
            row["min"], row["max"] = (-1, 0) if self.dtype.kind == "u" else (2**63 - 1, -(2**63))
            row["float_min"], row["float_max"] = numpy.inf, -numpy.inf
        return row.tobytes()


def write(
    name: str | os.PathLike[str],
    values: Any,
    *,
    block: tuple[int, int] | None = None,
    session: Session | None = None,
    numbering: str = "daphne",
) -> None:
    """Writes a matrix, and beside it ``NAME.meta``, which DAPHNE reads its shape and type from.

    :param values: a numpy array of one or two dimensions, or what becomes one; of one dimension, a column.
    :param block: rows and columns of a block; None: the matrix is one, which is what DAPHNE itself reads.
    :param numbering: how value types are numbered: ``daphne``, as its run-time does, or ``specification``.
    :raises UsageError: its values have no type in this numbering.
    """
    used = session or default_session()
    to = joined(used.url, name)
    matrix = numpy.asarray(values)
    if matrix.ndim == 1:
        matrix = matrix.reshape(-1, 1)
    if matrix.ndim != 2:
        raise UsageError(f"{to}: a matrix has two dimensions, and this has {matrix.ndim}")
    if numbering not in _NUMBERINGS:
        raise UsageError(f"numbering: {numbering!r} is none of {', '.join(_NUMBERINGS)}")
    kind = f"{matrix.dtype.kind}{matrix.dtype.itemsize}"
    code = {kind: code for code, kind in _NUMBERINGS[numbering].items()}.get(kind)
    if code is None:
        raise UsageError(f"{to}: {matrix.dtype} has no number in DAPHNE's format ({numbering})")
    matrix = matrix.astype(matrix.dtype.newbyteorder("<"), copy=False)
    rows, columns = matrix.shape
    high, wide = block or (max(rows, 1), max(columns, 1))
    if not (0 < high < 2**32 and 0 < wide < 2**32):
        raise UsageError(f"{to}: a block of {high} × {wide}: both are from 1 to 2**32 - 1")
    parts = [_HEADER.pack(_VERSION, _DENSE_MATRIX, rows, columns, code)]
    for row in range(0, rows, high):
        for column in range(0, columns, wide):
            part = matrix[row : row + high, column : column + wide]
            is_empty = block is not None and not part.any() and not numpy.signbit(part).any()
            parts.append(_BLOCK.pack(row, column, *part.shape, _EMPTY if is_empty else _DENSE))
            if not is_empty:
                parts += [bytes([code]), part.tobytes()]
    used.write(to, b"".join(parts))
    meta = {"numRows": rows, "numCols": columns, "valueType": _NAMES.get(kind, kind)}
    used.write(f"{to}.meta", json.dumps(meta).encode())
