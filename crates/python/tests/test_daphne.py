"""Matrices in DAPHNE's binary format: by the bytes of its specification, written, read in parts, reduced."""

from __future__ import annotations

import json
import struct

import diskside
import numpy
import pytest
from diskside import daphne


def test_bytes_are_those_of_the_specification(directory):
    path = directory / "m.dbdf"
    values = numpy.array([[1.5, -2], [3, 4], [5, 6]])
    for numbering, code in [("daphne", 7), ("specification", 10)]:
        daphne.write(path, values, numbering=numbering)
        header = struct.pack("<BBQQB", 1, 1, 3, 2, code)
        body = struct.pack("<QQ", 0, 0) + struct.pack("<IIBB", 3, 2, 1, code)
        assert path.read_bytes() == header + body + values.tobytes() and len(header + body) == 45
        assert json.loads((directory / "m.dbdf.meta").read_text()) == {"numRows": 3, "numCols": 2, "valueType": "f64"}
        assert (daphne.Matrix(path)[:] == values).all(), "which numbering it is, the length says"
        assert (daphne.Matrix(path, numbering=numbering)[1] == values[1]).all()


@pytest.mark.parametrize(
    ("dtype", "block"),
    [(dtype, (7, 5)) for dtype in ["f8", "f4", "i1", "i4", "i8", "u1", "u4", "u8", ">i4"]]
    + [("f8", block) for block in [None, (1, 100), (64, 3)]],
)
def test_what_is_written_is_read(session, dtype, block):
    values = (numpy.random.default_rng(1).normal(size=(40, 23)) * 100).astype("i8").astype(dtype)
    values[14:30, 5:] = 0
    daphne.write("m.dbdf", values, block=block, session=session)
    matrix = daphne.Matrix("m.dbdf", session=session)
    assert matrix.shape == (40, 23) and matrix.dtype == values.dtype.newbyteorder("<")
    for wanted in [numpy.s_[:], numpy.s_[3], numpy.s_[13:17, 4:6], numpy.s_[::-9, 22], numpy.s_[5, 7], numpy.s_[-1:, ::4], numpy.s_[9:9]]:
        assert matrix[wanted].shape == values[wanted].shape and (matrix[wanted] == values[wanted]).all(), wanted
    for place in ["host", "device"]:
        found = matrix.statistics(place=place)
        assert (found["count"], found["min"], found["max"]) == (values.size, values.min(), values.max())
        assert found["sum"] == values.sum(dtype=values.dtype if values.dtype.kind == "u" and values.itemsize == 8 else None)
        # numpy's own mean of large u8 is of rounded numbers, too.
        assert found["mean"] == pytest.approx(values.mean(dtype="f8"), rel=1e-12, abs=1e-12)


def test_only_rows_that_are_wanted_are_read(session, directory):
    values = numpy.arange(4_000_000, dtype="f8").reshape(4000, 1000)
    daphne.write("big.dbdf", values, block=(500, 1000), session=session)
    session.drop_cache()
    matrix = daphne.Matrix("big.dbdf", session=session)
    before = session.cached_bytes
    assert (matrix[1499:1502] == values[1499:1502]).all()
    assert session.cached_bytes - before < 4 << 20 < (directory / "big.dbdf").stat().st_size


def test_empty_matrices_and_blocks(session):
    daphne.write("none.dbdf", numpy.zeros((0, 4)), session=session)
    matrix = daphne.Matrix("none.dbdf", session=session)
    assert matrix[:].shape == (0, 4) and matrix.statistics()["count"] == 0
    daphne.write("zeros.dbdf", numpy.zeros((10, 10), "f4"), block=(4, 4), session=session)
    assert session.stat("zeros.dbdf").size == 19 + 9 * 25
    matrix = daphne.Matrix("zeros.dbdf", session=session)
    assert (matrix[:] == 0).all() and matrix.statistics() == {"count": 100, "sum": 0, "min": 0, "max": 0, "mean": 0}
    daphne.write("minus.dbdf", numpy.array([-0.0]), block=(1, 1), session=session)
    assert numpy.signbit(daphne.Matrix("minus.dbdf", session=session)[0, 0]), "-0.0 is no 0"


def test_what_is_no_matrix_is_said(directory):
    path = directory / "m.dbdf"
    daphne.write(path, numpy.arange(12, dtype="f8").reshape(3, 4), block=(2, 2))
    whole = path.read_bytes()

    def changed(at, byte):
        return whole[:at] + bytes([byte]) + whole[at + 1 :]

    for data, why in [
        (b"", "it ends at byte 0, within a header at 0"),
        (whole[:10], "within a header at 0"),
        (changed(0, 2), "its version is 2"),
        (changed(1, 3), "it is a Frame; matrices are read"),
        (changed(1, 9), "an object of type 9"),
        (changed(18, 99), "its value type 99 is none"),
        (changed(19 + 24, 9), "is of type 9, which is not known"),
        (changed(19 + 24, 2), "its rows do not begin one behind another"),
        (changed(19 + 25, 6), "has values of another type"),
        (changed(19 + 16, 200), "is not within 3 × 4"),
        (whole[:-1], "and 2"),
        (whole + b"x", "up to byte"),
    ]:
        path.write_bytes(data)
        with pytest.raises(diskside.UsageError, match=why):
            daphne.Matrix(path)[:]
    for values, how, why in [
        (numpy.zeros((2, 2, 2)), {}, "a matrix has two dimensions, and this has 3"),
        (numpy.zeros(2, "c16"), {}, "complex128 has no number"),
        (numpy.zeros(2, "i2"), {}, "int16 has no number in DAPHNE's format \\(daphne\\)"),
        (numpy.zeros(2), {"block": (0, 1)}, "a block of 0 × 1"),
        (numpy.zeros(2), {"numbering": "mine"}, "'mine' is none of daphne, specification"),
    ]:
        with pytest.raises(diskside.UsageError, match=why):
            daphne.write(path, values, **how)


@pytest.mark.parametrize("numbering", ["daphne", "specification"])
def test_sparse_bytes_are_those_of_daphne_and_its_specification(directory, numbering):
    path = directory / "s.dbdf"
    values = numpy.array([[0, 7.5, 0], [0, 0, 0], [-1, 0, 2]])
    code = {"daphne": 7, "specification": 10}[numbering]
    start = struct.pack("<QQ", 0, 0) + struct.pack("<II", 3, 3)
    daphne.write(path, values, sparse="csr", numbering=numbering)
    if numbering == "daphne":
        body = struct.pack("<Q4Q3Q3d", 3, 0, 1, 1, 3, 1, 0, 2, 7.5, -1, 2)
    else:
        body = struct.pack("<QIIdIIIdId", 3, 1, 1, 7.5, 0, 2, 0, -1, 2, 2)
    assert path.read_bytes() == struct.pack("<BBQQB", 1, 2, 3, 3, code) + start + bytes([2, code]) + body
    meta = json.loads((directory / "s.dbdf.meta").read_text())
    assert meta == {"numRows": 3, "numCols": 3, "valueType": "f64", "numNonZeros": 3}
    assert (daphne.Matrix(path)[:] == values).all()
    daphne.write(path, values, sparse="coo", numbering=numbering)
    body = struct.pack("<IIIdIIdIId", 3, 0, 1, 7.5, 2, 0, -1, 2, 2, 2)
    assert path.read_bytes() == struct.pack("<BBQQB", 1, 1, 3, 3, code) + start + bytes([3, code]) + body
    assert (daphne.Matrix(path)[:] == values).all()
    daphne.write(path, values[:, 1], sparse="coo", numbering=numbering)
    assert path.read_bytes()[19 + 16 :] == struct.pack("<IIBBIId", 3, 1, 3, code, 1, 0, 7.5), "of one column, rows alone"
    assert (daphne.Matrix(path)[:, 0] == values[:, 1]).all()


def test_room_that_daphne_leaves_behind_a_sparse_matrix_is_no_part_of_it(directory):
    path = directory / "s.dbdf"
    values = numpy.eye(4)
    daphne.write(path, values, sparse="csr")
    path.write_bytes(path.read_bytes() + bytes(3 * 16))
    assert (daphne.Matrix(path)[:] == values).all()
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(diskside.UsageError, match="and 2"):
        daphne.Matrix(path)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "i4", "u8", ">i8"])
@pytest.mark.parametrize(("sparse", "block"), [("csr", None), ("csr", (7, 5)), ("coo", (7, 5)), ("coo", (9, 1)), ("shortest", (6, 6))])
@pytest.mark.parametrize("numbering", ["daphne", "specification"])
def test_what_is_written_sparse_is_read(session, dtype, sparse, block, numbering):
    random = numpy.random.default_rng(3)
    values = random.integers(1, 100, (40, 23)).astype(dtype)
    values[random.random((40, 23)) < 0.9] = 0
    values[:6, :6] = 5
    values[12:30] = 0
    daphne.write("s.dbdf", values, block=block, sparse=sparse, session=session, numbering=numbering)
    matrix = daphne.Matrix("s.dbdf", session=session, numbering=numbering)
    assert matrix.shape == values.shape and matrix.dtype == values.dtype.newbyteorder("<")
    for wanted in [numpy.s_[:], numpy.s_[3], numpy.s_[13:17, 4:6], numpy.s_[::-9, 22], numpy.s_[5, 7], numpy.s_[-1:, ::4], numpy.s_[9:9]]:
        assert matrix[wanted].shape == values[wanted].shape and (matrix[wanted] == values[wanted]).all(), wanted
    rows, columns, found = matrix.nonzeros()
    there = numpy.nonzero(values)
    assert (rows == there[0]).all() and (columns == there[1]).all() and (found == values[there]).all()
    for place in ["host", "device"]:
        told = matrix.statistics(place=place)
        assert (told["count"], told["min"], told["max"]) == (values.size, values.min(), values.max())
        assert told["sum"] == values.sum() and told["mean"] == pytest.approx(values.mean(dtype="f8"), rel=1e-12)


def test_sparse_matrices_are_written_without_making_them_dense(session):
    class Coo:
        """What a matrix of scipy.sparse has."""

        ndim, shape = 2, (10**9, 10**9)

        def __init__(self, dtype="f8"):
            self.row, self.col = numpy.array([5, 0, 999_999_999]), numpy.array([7, 3, 999_999_999])
            self.data = numpy.array([1, 2, 3], dtype)
            self.dtype = self.data.dtype

        def tocoo(self):
            return self

        def sum_duplicates(self):
            pass

        def astype(self, dtype, copy=True):
            return Coo(dtype)

    daphne.write("huge.dbdf", Coo(), sparse="coo", session=session)
    matrix = daphne.Matrix("huge.dbdf", session=session)
    assert [of.tolist() for of in matrix.nonzeros()] == [[0, 5, 999_999_999], [3, 7, 999_999_999], [2, 1, 3]]
    assert matrix[5, 5:9].tolist() == [0, 0, 1, 0]
    # All between them became dense, and so did the numbers of all rows.
    assert matrix[[999_999_999, 5, 5], [7, -1]].tolist() == [[0, 3], [1, 0], [1, 0]]
    found = matrix.statistics()
    assert (found["count"], found["sum"], found["max"]) == (10**18, 6, 3)


def test_rows_that_are_far_apart_are_read_apart(session, monkeypatch):
    """All rows between them were read, too."""
    values = numpy.arange(300 * 4000).reshape(300, 4000).astype("f8")
    daphne.write("d.dbdf", values, session=session)
    matrix = daphne.Matrix("d.dbdf", session=session)
    lens = []
    read = matrix._file.submit_read
    monkeypatch.setattr(matrix._file, "submit_read", lambda offset, length: lens.append(length) or read(offset, length))
    for wanted in [[299, 0, 1, 0, -300], [[4, 299], [2]], numpy.s_[::60, ::9], numpy.array([False] * 299 + [True])]:
        wanted = numpy.ix_(*wanted) if isinstance(wanted, list) and isinstance(wanted[0], list) else wanted
        index = tuple(one.ravel() for one in wanted) if isinstance(wanted, tuple) and not isinstance(wanted[0], slice) else wanted
        assert (matrix[index] == values[wanted]).all(), wanted
    assert sum(lens[:2]) == 3 * 32000 and max(lens) < 5 * 32000, lens
    for wanted in [300, -301, [0, 300], [0.5], "row", [True, False], [[1, 2]]]:
        with pytest.raises(IndexError):
            matrix[wanted]


def test_sparse_blocks_that_cannot_be_are_said(directory):
    path = directory / "s.dbdf"
    values = numpy.eye(4)
    at = 19 + 26

    def with_bytes(sparse, numbering, place, data):
        daphne.write(path, values, sparse=sparse, numbering=numbering)
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + data + whole[place + len(data) :])

    for sparse, numbering, place, data, why in [
        ("csr", "daphne", at, struct.pack("<Q", 17), "cannot have 17 values"),
        ("csr", "daphne", at, struct.pack("<Q", 5), "up to byte"),
        ("csr", "daphne", at + 16, struct.pack("<Q", 9), "do not begin one behind another"),
        ("csr", "daphne", at + 48, struct.pack("<Q", 4), "a value is at \\(3, 4\\) or beyond"),
        ("csr", "daphne", at + 48, struct.pack("<Q", 2**63), "a value is in column 9223372036854775808"),
        ("csr", "specification", at + 8, struct.pack("<I", 9), "its rows up to row 0 have more than 4 values"),
        ("csr", "specification", at + 12, struct.pack("<I", 4), "a value is at \\(3, 4\\) or beyond"),
        ("coo", "daphne", at, struct.pack("<I", 17), "cannot have 17 values"),
        ("coo", "daphne", at + 4, struct.pack("<I", 4), "a value is at \\(4, 3\\) or beyond"),
        ("coo", "daphne", at + 20, struct.pack("<II", 0, 0), "two values have the same place"),
    ]:
        with_bytes(sparse, numbering, place, data)
        with pytest.raises(diskside.UsageError, match=why):
            daphne.Matrix(path, numbering=numbering)[:]
    for how, why in [({"sparse": "yes"}, "'yes' is none of csr, coo, shortest"), ({"numbering": "mine"}, "'mine' is none of")]:
        with pytest.raises(diskside.UsageError, match=why):
            daphne.write(path, values, **how)
    with pytest.raises(diskside.UsageError, match="are more than the 1048576"):
        daphne.write(path, numpy.zeros((2000, 2000)), block=(1, 1))
    with pytest.raises(diskside.UsageError, match="'mine' is none of"):
        daphne.Matrix(path, numbering="mine")
