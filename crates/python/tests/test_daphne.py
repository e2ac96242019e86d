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
        (changed(1, 2), "it is a CSRMatrix; dense matrices are read"),
        (changed(1, 3), "it is a Frame"),
        (changed(1, 9), "an object of type 9"),
        (changed(18, 99), "its value type 99 is none"),
        (changed(19 + 24, 2), "is sparse \\(CSR\\); dense and empty blocks are read"),
        (changed(19 + 25, 6), "has values of another type"),
        (changed(19 + 16, 200), "is not within 3 × 4"),
        (whole[:-1], "and 2"),
        (whole + b"x", "within a header at"),
    ]:
        path.write_bytes(data)
        with pytest.raises(diskside.UsageError, match=why):
            daphne.Matrix(path)
    for values, how, why in [
        (numpy.zeros((2, 2, 2)), {}, "a matrix has two dimensions, and this has 3"),
        (numpy.zeros(2, "c16"), {}, "complex128 has no number"),
        (numpy.zeros(2, "i2"), {}, "int16 has no number in DAPHNE's format \\(daphne\\)"),
        (numpy.zeros(2), {"block": (0, 1)}, "a block of 0 × 1"),
        (numpy.zeros(2), {"numbering": "mine"}, "'mine' is none of daphne, specification"),
    ]:
        with pytest.raises(diskside.UsageError, match=why):
            daphne.write(path, values, **how)
