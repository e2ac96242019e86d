"""Matrices in DAPHNE's binary format (``.dbdf``), dense and sparse, in one block or cut into blocks, read in parts and reduced
where they are.

It needs the package ``numpy``.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from . import _sparse
from ._default import default_session
from ._function import function
from ._names import joined
from ._session import Session
from .errors import UsageError
from .partition import combine

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from ._job import Job

#: Version, data type, rows, columns, value type.
_HEADER = struct.Struct("<BBQQB")
#: First row and column; rows, columns, block type.
_BLOCK = struct.Struct("<QQIIB")
_VERSION = 1
_DENSE_MATRIX, _CSR_MATRIX = 1, 2
_OBJECTS = {3: "a Frame"}
_EMPTY, _DENSE = 0, 1
#: Value types as DAPHNE's run-time numbers them, and as its specification does. Of no number are both as long.
_OF_DAPHNE = {0: "i1", 1: "i4", 2: "i8", 3: "u1", 4: "u4", 5: "u8", 6: "f4", 7: "f8"}
_OF_SPECIFICATION = {1: "u1", 2: "u2", 3: "u4", 4: "u8", 5: "i1", 6: "i2", 7: "i4", 8: "i8", 9: "f4", 10: "f8"}
_NUMBERINGS = {"daphne": _OF_DAPHNE, "specification": _OF_SPECIFICATION}
_NAMES = {"i1": "si8", "i4": "si32", "i8": "si64", "u1": "ui8", "u4": "ui32", "u8": "ui64", "f4": "f32", "f8": "f64"}
#: Of numpy's types the names that ``array_stats`` has.
_TYPES = {"u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32", "i4": "i32", "u8": "u64", "i8": "i64"}
_TYPES |= {"f4": "f32", "f8": "f64"}
#: How many values a sparse block says that it has.
_COUNTS = {_sparse.CSR: struct.Struct("<Q"), _sparse.COO: struct.Struct("<I")}
#: Files have no more blocks than this.
_BLOCKS_MAX = 1 << 20


class Block(NamedTuple):
    """A rectangle of a matrix, and where its values are in the file."""

    row: int
    column: int
    rows: int
    columns: int
    offset: int
    """Of its first value, in bytes, or of what stands before the values of a sparse block; 0 of an empty block, all of whose
    values are 0."""
    nonzeros: int | None = None
    """Values of a sparse block, all others of which are 0; None: they all are there."""
    kind: int = _DENSE
    """2: sparse (CSR), 3: ultra-sparse (COO)."""

    @property
    def values(self) -> int:
        """How many it has in all."""
        return self.rows * self.columns


class Matrix:
    """A matrix in a file, of which only the blocks that are asked for are read.

    :param name: a path, or a URL of an export.
    :param session: the session that it works in; by default the one of :func:`diskside.run`.
    :param numbering: how value types are numbered: ``daphne``, ``specification``, or None: as fits the file's length.
    :raises UsageError: the file is no matrix in this format.

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
        if kind not in (_DENSE_MATRIX, _CSR_MATRIX):
            raise self._wrong(f"it is {_OBJECTS.get(kind, f'an object of type {kind}')}; matrices are read")
        self.shape: tuple[int, int] = (rows, columns)
        if numbering is not None and numbering not in _NUMBERINGS:
            raise UsageError(f"numbering: {numbering!r} is none of {', '.join(_NUMBERINGS)}")
        wrong = None
        for name in _NUMBERINGS if numbering is None else [numbering]:
            if code not in _NUMBERINGS[name]:
                continue
            self.dtype = numpy.dtype("<" + _NUMBERINGS[name][code])
            self._of_daphne = name == "daphne"
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
        slack = 1
        while at < self._length and (held < rows * columns or count == 0):
            row, column, block_rows, block_columns, kind = self._read(_BLOCK, at)
            at += _BLOCK.size
            count += 1
            if row + block_rows > rows or column + block_columns > columns or count > _BLOCKS_MAX:
                raise self._wrong(f"a block of {block_rows} × {block_columns} at ({row}, {column}) is not within {rows} × {columns}")
            held += block_rows * block_columns
            block = Block(row, column, block_rows, block_columns, 0)
            if kind == _EMPTY:
                yield block
                continue
            if kind not in (_DENSE, *_sparse.NAMES):
                raise self._wrong(f"a block at ({row}, {column}) is of type {kind}, which is not known")
            found = self._file.read(at, 1)
            if found != bytes([code]):
                raise self._wrong(f"a block at ({row}, {column}) has values of another type")
            at += 1
            if kind == _DENSE:
                yield block._replace(offset=at)
                at += block.values * self.dtype.itemsize
                continue
            (nonzeros,) = self._read(_COUNTS[kind], at)
            at += _COUNTS[kind].size
            if nonzeros > block.values:
                raise self._wrong(f"a block of {block_rows} × {block_columns} at ({row}, {column}) cannot have {nonzeros} values")
            yield block._replace(offset=at, nonzeros=nonzeros, kind=kind)
            at += self._body_len(kind, nonzeros, block)
            if self._of_daphne and kind == _sparse.CSR:
                # It writes room that a matrix had for more values.
                slack = 8 + self.dtype.itemsize
        if held != rows * columns or at > self._length or (self._length - at if slack == 1 else (self._length - at) % slack):
            raise self._wrong(f"its blocks hold {held} values up to byte {at}; it has {rows} × {columns}, and {self._length} bytes")

    def _body_len(self, kind: int, nonzeros: int, block: Block) -> int:
        return _sparse.body_len(kind, nonzeros, block.rows, block.columns, self.dtype.itemsize, self._of_daphne)

    def _begin(self, block: Block) -> Job[memoryview]:
        """Begins to read a sparse block."""
        return self._file.submit_read(block.offset, self._body_len(block.kind, block.nonzeros or 0, block))

    def _nonzeros_of(self, block: Block, data: memoryview) -> _sparse.Nonzeros:
        given = (block.kind, data, block.nonzeros or 0, block.rows, block.columns, self.dtype, self._of_daphne)
        try:
            return _sparse.nonzeros_of(*given)
        except ValueError as error:
            kind = _sparse.NAMES[block.kind]
            raise self._wrong(f"its {kind} block of {block.rows} × {block.columns} at ({block.row}, {block.column}): {error}") from None

    def nonzeros(self) -> _sparse.Nonzeros:
        """Rows, columns and values of what is not 0, in the order of the matrix: three arrays of the same length.

        ``scipy.sparse.coo_array((values, (rows, columns)), shape=matrix.shape)`` takes them.
        """
        begun = [(block, self._begin(block)) for block in self.blocks if block.nonzeros is not None]
        parts = []
        for block, job in begun:
            rows, columns, values = self._nonzeros_of(block, job.result())
            parts.append((rows + block.row, columns + block.column, values))
        for block in self.blocks:
            if block.nonzeros is None and block.offset:
                values = self[block.row : block.row + block.rows, block.column : block.column + block.columns]
                rows, columns, values = _found(values)
                parts.append((rows + block.row, columns + block.column, values))
        empty = (numpy.zeros(0, "i8"), numpy.zeros(0, "i8"), numpy.zeros(0, self.dtype))
        rows, columns, values = (numpy.concatenate(of) for of in zip(empty, *parts, strict=True))
        order = numpy.lexsort((columns, rows))
        return rows[order], columns[order], values[order]

    def __getitem__(self, wanted: Any) -> numpy.ndarray[Any, Any]:
        """Rows and columns, as of a numpy array: slices and numbers. Blocks are read at the same time, each whole."""
        row_of, column_of = wanted if isinstance(wanted, tuple) else (wanted, slice(None))
        rows, columns = _picked(self.shape[0], row_of), _picked(self.shape[1], column_of)
        made = numpy.zeros((rows.size, columns.size), self.dtype)
        rows_flat, columns_flat = numpy.atleast_1d(rows), numpy.atleast_1d(columns)
        begun = []
        sparse = []
        for block in self.blocks:
            here = numpy.flatnonzero((rows_flat >= block.row) & (rows_flat < block.row + block.rows))
            there = numpy.flatnonzero((columns_flat >= block.column) & (columns_flat < block.column + block.columns))
            if block.nonzeros is not None and here.size and there.size:
                sparse.append((block, here, there, self._begin(block)))
            elif block.offset and here.size and there.size:
                row_len = block.columns * self.dtype.itemsize
                for near in _near(rows_flat, here, row_len):
                    # Those between the first and the last that are wanted.
                    first, last = int(rows_flat[near[0]]) - block.row, int(rows_flat[near[-1]]) - block.row
                    job = self._file.submit_read(block.offset + first * row_len, (last - first + 1) * row_len)
                    begun.append((block, first, near, there, job))
        for block, first, near, there, job in begun:
            values = numpy.frombuffer(job.result(), self.dtype).reshape(-1, block.columns)
            picked = numpy.ix_(rows_flat[near] - block.row - first, columns_flat[there] - block.column)
            made[numpy.ix_(near, there)] = values[picked]
        for block, here, there, job in sparse:
            at, across, values = self._nonzeros_of(block, job.result())
            # Nothing becomes dense but the rows and columns that are wanted, each once.
            down, of_rows = numpy.unique(rows_flat[here] - block.row, return_inverse=True)
            right, of_columns = numpy.unique(columns_flat[there] - block.column, return_inverse=True)
            kept = numpy.flatnonzero(numpy.isin(at, down) & numpy.isin(across, right))
            dense = numpy.zeros((down.size, right.size), self.dtype)
            dense[numpy.searchsorted(down, at[kept]), numpy.searchsorted(right, across[kept])] = values[kept]
            made[numpy.ix_(here, there)] = dense[numpy.ix_(of_rows, of_columns)]
        return made.reshape(rows.shape + columns.shape)

    def statistics(self, **options: Any) -> dict[str, Any]:
        """Count, sum, min, max and mean of all values, by ``array_stats`` over the blocks where they are.

        :param options: those of :meth:`diskside.Session.run`.
        """
        run_by = function("array_stats")
        kind = _TYPES[f"{self.dtype.kind}{self.dtype.itemsize}"]
        args = {"type": kind}
        jobs = []
        here = []
        zeros = 0
        for block in self.blocks:
            count = block.values if block.nonzeros is None else block.nonzeros
            zeros += block.values - count if block.offset else block.values
            if not block.offset or not count:
                continue
            start = block.offset
            if block.nonzeros is not None:
                if not (self._of_daphne and block.kind == _sparse.CSR):
                    # Between its values stand their places.
                    here.append((block, self._begin(block)))
                    continue
                start += 8 * (block.rows + 1 + count)
            how: dict[str, Any] = {"range": (start, start + count * self.dtype.itemsize), "split": "whole"}
            jobs.append(self._session.submit(run_by, self._file, args=args, header="none", decompress="none", **how, **options))
        parts = [job.result().bytes for job in jobs]
        parts += [self._row_of(self._nonzeros_of(block, job.result())[2]) for block, job in here]
        if zeros or not parts:
            parts.append(self._of_zeros(zeros))
        row = combine(run_by, parts, session=self._session, **args).rows()[0]
        is_float = self.dtype.kind == "f"
        total, low, high = (row[f"float_{name}" if is_float else name] for name in ("sum", "min", "max"))
        if self.dtype == numpy.dtype("<u8"):
            total, low, high = total % 2**64, low % 2**64, high % 2**64
        count = row["count"]
        # A sum of whole numbers may be more than its 64 bits hold; the rounded one is not.
        exact = total if abs(row["float_sum"]) < 2.0**62 else row["float_sum"]
        return {"count": count, "sum": total, "min": low, "max": high, "mean": exact / count if count else float("nan")}

    def _row_of(self, values: numpy.ndarray[Any, Any]) -> bytes:
        """What ``array_stats`` gives for values that are here, one at least."""
        row = numpy.zeros((), function("array_stats").dtype)
        row["count"], row["is_float"], row["is_unsigned"] = len(values), self.dtype.kind == "f", self.dtype.kind == "u"
        row["float_sum"] = values.sum(dtype="f8")
        if self.dtype.kind == "f":
            row["min"], row["max"] = 2**63 - 1, -(2**63)
            row["float_min"], row["float_max"] = values.min(), values.max()
        else:
            wide = "u8" if self.dtype.kind == "u" else "i8"
            numbers = [values.sum(dtype=wide), values.min(), values.max()]
            row["sum"], row["min"], row["max"] = numpy.array(numbers, wide).view("i8")
            row["float_min"], row["float_max"] = numpy.inf, -numpy.inf
        return row.tobytes()

    def _of_zeros(self, count: int) -> bytes:
        row = numpy.zeros((), function("array_stats").dtype)
        row["count"], row["is_float"], row["is_unsigned"] = count, self.dtype.kind == "f", self.dtype.kind == "u"
        if count == 0:
            row["min"], row["max"] = (-1, 0) if self.dtype.kind == "u" else (2**63 - 1, -(2**63))
            row["float_min"], row["float_max"] = numpy.inf, -numpy.inf
        return row.tobytes()


#: Bytes between rows that are read with them, which takes less time than another request.
_GAP_MAX = 64 << 10


def _near(rows: numpy.ndarray[Any, Any], wanted: numpy.ndarray[Any, Any], row_len: int) -> list[numpy.ndarray[Any, Any]]:
    """Which of the wanted are read together, in the order of their rows."""
    order = wanted[numpy.argsort(rows[wanted], kind="stable")]
    gaps = (numpy.diff(rows[order]) - 1) * row_len
    return numpy.split(order, numpy.flatnonzero(gaps > _GAP_MAX) + 1)


def _picked(count: int, wanted: Any) -> numpy.ndarray[Any, Any]:
    """Which of so many rows or columns are meant."""
    if isinstance(wanted, slice):
        return numpy.arange(*wanted.indices(count))
    if wanted is Ellipsis:
        return numpy.arange(count)
    at = numpy.asarray(wanted)
    if at.dtype == bool:
        if at.shape != (count,):
            raise IndexError(f"there are {count}, and the mask has the shape {at.shape}")
        return numpy.flatnonzero(at)
    if at.ndim > 1 or at.size and at.dtype.kind not in "iu":
        raise IndexError(f"{wanted!r} picks no rows or columns: give a number, a slice, numbers or a mask")
    if at.size and not (-count <= int(at.min()) and int(at.max()) < count):
        raise IndexError(f"there are {count}, and number {at.max() if at.max() >= count else at.min()} is wanted")
    at = at.astype("i8")
    return numpy.asarray(numpy.where(at < 0, at + count, at))


def write(
    name: str | os.PathLike[str],
    values: Any,
    *,
    block: tuple[int, int] | None = None,
    sparse: str | None = None,
    session: Session | None = None,
    numbering: str = "daphne",
) -> None:
    """Writes a matrix, and beside it ``NAME.meta``, which DAPHNE reads its shape and type from.

    :param values: a numpy array of one or two dimensions, or what becomes one; of one dimension, a column. Or a matrix of
        ``scipy.sparse``, whose blocks are written sparse.
    :param block: rows and columns of a block; None: the matrix is one, which is what DAPHNE itself reads.
    :param sparse: ``csr`` or ``coo``: blocks hold the values that are not 0, with their places; ``shortest``: each block is what
        takes the fewest bytes; None: dense, or of a sparse matrix ``csr``.
    :param numbering: how value types are numbered, and CSR is laid out: ``daphne``, as its run-time does, or ``specification``.
    :raises UsageError: its values have no type in this numbering.
    """
    used = session or default_session()
    to = joined(used.url, name)
    if hasattr(values, "tocoo"):
        coo = values.tocoo()
        coo.sum_duplicates()
        matrix, sparse = coo, sparse or "csr"
    else:
        matrix = numpy.asarray(values)
    if sparse not in (None, "csr", "coo", "shortest"):
        raise UsageError(f"sparse: {sparse!r} is none of csr, coo, shortest")
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
    if rows and columns and -(-rows // high) * -(-columns // wide) > _BLOCKS_MAX:
        raise UsageError(f"{to}: blocks of {high} × {wide} are more than the {_BLOCKS_MAX} that there may be")
    of_daphne = numbering == "daphne"
    of_all = _found(matrix) if sparse else None
    data_type = _CSR_MATRIX if sparse == "csr" else _DENSE_MATRIX
    parts = [_HEADER.pack(_VERSION, data_type, rows, columns, code)]
    for row in range(0, rows, high):
        for column in range(0, columns, wide):
            shape = (min(high, rows - row), min(wide, columns - column))
            if of_all is None:
                part = matrix[row : row + high, column : column + wide]
                is_empty = block is not None and not part.any() and not numpy.signbit(part).any()
                made = _EMPTY if is_empty else _DENSE
                body = b"" if is_empty else part.tobytes()
            else:
                made, body = _sparse_block(_within(of_all, row, column, shape), shape, str(sparse), of_daphne)
            parts.append(_BLOCK.pack(row, column, *shape, made))
            if made != _EMPTY:
                parts += [bytes([code]), body]
    used.write(to, b"".join(parts))
    meta = {"numRows": rows, "numCols": columns, "valueType": _NAMES.get(kind, kind)}
    if of_all is not None:
        meta["numNonZeros"] = len(of_all[0])
    used.write(f"{to}.meta", json.dumps(meta).encode())


def _found(matrix: Any) -> _sparse.Nonzeros:
    """What is not 0; -0.0 is none."""
    if hasattr(matrix, "tocoo"):
        rows, columns, values = matrix.row.astype("i8"), matrix.col.astype("i8"), matrix.data
    else:
        rows, columns = numpy.nonzero((matrix != 0) | numpy.signbit(matrix) if matrix.dtype.kind == "f" else matrix)
        values = matrix[rows, columns]
    order = numpy.lexsort((columns, rows))
    return rows[order], columns[order], values[order]


def _within(found: _sparse.Nonzeros, row: int, column: int, shape: tuple[int, int]) -> _sparse.Nonzeros:
    """Those of a block, with their places in it."""
    rows, columns, values = found
    # They are in the order of their rows.
    first, end = numpy.searchsorted(rows, [row, row + shape[0]])
    kept = numpy.flatnonzero((columns[first:end] >= column) & (columns[first:end] < column + shape[1])) + first
    return rows[kept] - row, columns[kept] - column, values[kept]


def _sparse_block(
    found: _sparse.Nonzeros, shape: tuple[int, int], sparse: str, of_daphne: bool
) -> tuple[int, bytes]:
    """The type of a block, and what is behind its value type."""
    if sparse != "shortest":
        kind = _sparse.CSR if sparse == "csr" else _sparse.COO
        return kind, _sparse.bytes_of(kind, found, *shape, of_daphne)
    count, value_len = len(found[0]), found[2].dtype.itemsize
    if count == 0:
        return _EMPTY, b""
    lens = {kind: _sparse.body_len(kind, count, *shape, value_len, of_daphne) for kind in _sparse.NAMES}
    lens[_sparse.CSR] += 4
    lens[_DENSE] = shape[0] * shape[1] * value_len - 4
    kind = min(lens, key=lambda kind: lens[kind])
    if kind != _DENSE:
        return kind, _sparse.bytes_of(kind, found, *shape, of_daphne)
    dense = numpy.zeros(shape, found[2].dtype)
    dense[found[0], found[1]] = found[2]
    return _DENSE, dense.tobytes()
