"""Functions written in Python: the same answers as numpy, here and at a server; errors at the line; what is refused."""

from __future__ import annotations

import inspect
import math
import pickle
import sys

import diskside
import numba
import numpy
import pytest
from diskside import _diskside

FACTOR = 3


def add(acc, part):
    acc.count += part.count
    acc.cents += part.cents


@diskside.function(records={"shop": "u4", "cents": "u4"}, result={"count": "u8", "cents": "u8"}, combine=add)
def dear(out, sales):
    for sale in sales:
        if sale.cents > 100:
            out.count += 1
            out.cents += FACTOR * sale.cents


def fold(acc, part):
    acc.count += part.count
    acc.sum += part.sum
    acc.low = min(acc.low, part.low)
    for bin in range(8):
        acc.bins[bin] += part.bins[bin]


@numba.njit
def bin_of(value):
    return least(int(abs(value)), 7)


def least(a, b):
    return a if a < b else b


ROW = {"count": "u8", "sum": "f8", "low": "f8", "bins": ("u4", 8), "odd": "i2"}


@diskside.function(records={"key": "i2", "x": "f8"}, result=ROW, args={"bound": ("f8", -1.5), "keys": "2i2"}, combine=fold)
def above(out, rows, args, call):
    out.low = math.inf
    for row in rows:
        if row.x > args.bound and row.key != args.keys[1]:
            out.count += 1
            out.sum += math.sqrt(abs(row.x)) / 3
            out.low = min(out.low, row.x)
            out.bins[bin_of(row.x)] += 1
    if call.flags & 1:
        out.odd = -7 // 2


@diskside.function(records="f4", result="f8", combine="concatenate")
def squares(out, values):
    rows = 0
    for value in values:
        if value > 0:
            out[rows] = value * value
            rows += 1
    return rows


@pytest.fixture
def table(directory):
    """Of which no page is a whole number of rows."""
    rows = numpy.zeros(100_000, numpy.dtype([("key", "i2"), ("x", "f8")], align=True))
    random = numpy.random.default_rng(1)
    rows["key"], rows["x"] = random.integers(-5, 5, len(rows)), random.normal(scale=3, size=len(rows))
    rows.tofile(directory / "table")
    return rows


@pytest.mark.parametrize("place", ["host", "device"])
def test_numbers_are_those_of_numpy(session, table, place):
    result = session.run(above, "table", bound=0.25, keys=[0, 3], place=place, chunk=64_000)
    chosen = table["x"][(table["x"] > 0.25) & (table["key"] != 3)]
    assert (result.count, result.low, result.odd) == (len(chosen), chosen.min(), -4)
    assert result.sum == pytest.approx((numpy.sqrt(chosen) / 3).sum(), rel=1e-12)
    assert result.bins == numpy.bincount(numpy.minimum(chosen.astype(int), 7), minlength=8).tolist()
    assert result.numpy().dtype == numpy.dtype([(name, kind) if isinstance(kind, str) else (name, *kind) for name, kind in ROW.items()], align=True)


@pytest.mark.parametrize("place", ["host", "device"])
def test_rows_stand_in_order(session, directory, place):
    values = numpy.random.default_rng(2).normal(size=50_001).astype("f4")
    values.tofile(directory / "x.f4")
    result = session.run(squares, "x.f4", place=place, chunk=4000)
    assert (result.numpy()["value"] == values[values > 0] ** 2).all(), "a product of two f4 is an f4"


def test_whole_numbers_need_no_compiler_but_numbas(session, directory, monkeypatch):
    numpy.arange(10_000, dtype="u4").tofile(directory / "sales")
    monkeypatch.setattr(_diskside, "has_lowering", lambda: False)
    made = diskside.function(
        dear_again, records={"shop": "u4", "cents": "u4"}, result={"count": "u8", "cents": "u8"}, combine=add
    )
    for function in [made, dear]:
        result = session.run(function, "sales")
        assert (result.count, result.cents) == (4950, 3 * sum(range(101, 10_000, 2)))
    with pytest.raises(diskside.NoCompilerError, match="halves: floating-point numbers.* are compiled by diskside-llvm, which is not"):
        diskside.function(halves, records="f8", result="f8")


def dear_again(out, sales):
    for i in range(len(sales)):
        if sales[i].cents > 100:
            out.count += 1
            out.cents += FACTOR * sales[i].cents


def halves(out, values):
    for i in range(len(values)):
        out[i] = values[i] / 2
    return len(values)


def test_records_are_lines_bytes_or_so_many_bytes(session):
    def longest(out, text):
        length = 0
        for character in text:
            length = 0 if character == 10 else length + 1
            out[0].length = max(out[0].length, length)

    def longer(acc, part):
        acc.length = max(acc.length, part.length)

    whole = diskside.function(longest, result={"length": "u8"})
    assert not whole.combines and session.run(whole, "a.log").length == 19

    def longest_of(out, text):
        length = 0
        for character in text:
            length = 0 if character == 10 else length + 1
            out.length = max(out.length, length)

    cut = diskside.function(longest_of, records="lines", result={"length": "u8"}, combine=longer)
    assert cut.combines and session.run(cut, "a.log", chunk=16).length == 19

    def ends(out, rows):
        for i in range(len(rows)):
            out[i] = rows[i, 0] + 256 * rows[i, 1]
        return len(rows)

    made = diskside.function(ends, records=8, result="u2", combine="concatenate")
    assert (session.run(made, "n.u64", chunk=800).numpy()["value"] == numpy.arange(100_000) % 65536).all()


def test_it_pickles_and_is_the_same_again(session):
    again = pickle.loads(pickle.dumps(dear))
    assert again == dear and again.columns == ["count", "cents"]
    assert repr(above) == "<diskside.Function read/above(bound, keys)>"
    assert [(one["name"], one["default"]) for one in above.arguments] == [("bound", "-1.5"), ("keys", None)]
    made = diskside.function(dear_again, records={"shop": "u4", "cents": "u4"}, result={"count": "u8", "cents": "u8"}, combine=add)
    assert made == diskside.function(
        dear_again, records={"shop": "u4", "cents": "u4"}, result={"count": "u8", "cents": "u8"}, combine=add
    )


@pytest.mark.parametrize("place", ["host", "device"])
def test_a_trap_names_the_line(session, place):
    def beyond(out, values):
        total = 0
        for i in range(len(values)):
            total += values[i + 1]
        out[0] = total

    made = diskside.function(beyond, records="u8", result="u8")
    with pytest.raises(diskside.TrapError) as caught:
        session.run(made, "n.u64", place=place)
    trap = caught.value.trap
    assert (trap.file, trap.line, trap.text) == ("test_python.py", line_of(beyond, 3), "total += values[i + 1]")
    assert (trap.region, trap.offset, trap.bound) == ("input", 800_000, 800_000)


def test_what_raises_returns_an_error(session):
    def odd(out, values):
        if len(values) % 2 == 0:
            raise ValueError("even")
        out[0] = 1

    with pytest.raises(diskside.ReturnedError, match="returned -22"):
        session.run(diskside.function(odd, records="u8", result="u8"), "n.u64")


def line_of(function, below: int) -> int:
    return inspect.getsourcelines(function)[1] + below


def lists(out, values):
    found = [1, 2]
    found.append(3)
    out[0] = len(found)


def arrays(out, values):
    out[0] = numpy.zeros(10)[3]


def expressions(out, values):
    out[0] = (values * 2).sum()


def text(out, values):
    out[0] = len("a" + str(len(values)))


def prints(out, values):
    print(values[0])


def sets(out, values):
    out[0] = len({1, 2})


def changes(out, values):
    values[0] = 1


def unknown(out, values):
    out[0] = nothing_is_called_so  # noqa: F821


def opens(out, values):
    with open("x"):
        pass


def exponential(out, values):
    out[0] = math.exp(values[0])


def remainder(out, values):
    out[0] = values[0] % 3.0


def fraction(out, values):
    return 1.5


@pytest.mark.parametrize(
    ("function", "line", "why"),
    [
        (lists, 1, "this needs Python's runtime: lists, dictionaries, sets, text and arrays"),
        (arrays, 1, "this needs Python's runtime"),
        (expressions, 1, "this needs Python's runtime"),
        (text, 1, "this needs Python's runtime"),
        (prints, 1, "this needs Python's runtime"),
        (sets, 1, "this needs Python's runtime"),
        (changes, 1, "the records cannot be changed"),
        (unknown, 1, "name 'nothing_is_called_so' is not defined"),
        (opens, None, "context manager"),
        (exponential, 1, "there is no `exp` of floating-point numbers"),
        (remainder, 1, "there is no remainder of floating-point numbers"),
        (fraction, 0, "it returns float64; it returns the number of its rows, or nothing"),
    ],
)
def test_what_cannot_be_is_refused_at_its_line(function, line, why):
    with pytest.raises(diskside.CompileError) as caught:
        diskside.function(function, records="f8", result="f8")
    said = str(caught.value)
    assert why in said
    if line is not None:
        assert f"test_python.py:{line_of(function, line)}:" in said


def misspelt(out, values):
    for value in values:
        out.cuont += value.price


def misspelt_part(acc, part):
    acc.count += part.cuont


def counts(out, values):
    out.count += len(values)


def adds(acc, part):
    acc.count += part.count


def test_a_member_that_is_not_there_is_named():
    """It was `KeyError: 'cuont'`, out of the middle of numba."""
    asked = {"records": {"price": "u4"}, "result": {"count": "u8"}}
    with pytest.raises(diskside.CompileError, match="no member `cuont`: out has count; values has price") as caught:
        diskside.function(misspelt, combine=adds, **asked)
    assert f"test_python.py:{line_of(misspelt, 2)}:" in str(caught.value)
    with pytest.raises(diskside.CompileError, match="no member `cuont`: acc has count; part has count"):
        diskside.function(counts, combine=misspelt_part, **asked)


def test_what_is_wrong_is_said():
    usage = diskside.UsageError
    with pytest.raises(usage, match="of a function of Python's, result= says what it gives"):
        diskside.function(halves)
    with pytest.raises(usage, match="there is no reslut; there are source, name, result"):
        diskside.function(halves, reslut="f8")
    with pytest.raises(usage, match="result, records is for functions of Python's"):
        diskside.function("stats64", result="f8", records="f8")
    with pytest.raises(usage, match="halves: records: >f8 is big-endian"):
        diskside.function(halves, records=">f8", result="f8")
    with pytest.raises(usage, match="'nothing' is no type of numpy's"):
        diskside.function(halves, records="nothing", result="f8")
    with pytest.raises(usage, match="has no fixed length"):
        diskside.function(halves, records="f8", result="O")
    with pytest.raises(usage, match="halves: combine is a function of \\(acc, part\\), or 'concatenate'; this is 'sum'"):
        diskside.function(halves, records="f8", result="f8", combine="sum")
    with pytest.raises(usage, match="halves has no third parameter to take its arguments bound"):
        diskside.function(halves, records="f8", result="f8", args={"bound": "f8"})
    with pytest.raises(usage, match="'<lambda>' is no name of a function"):
        diskside.function(lambda out: None, records="f8", result="f8")
    with pytest.raises(usage, match="line_of_three has 3 parameters; it takes 2"):
        diskside.function(above_function, records="f8", result="f8", combine=line_of_three)
    with pytest.raises(usage, match="halves: result: part: functions have no complex128: there are numbers"):
        diskside.function(halves, records="f8", result={"part": "c16"})


def above_function(out, values):
    out.value = 1


def line_of_three(acc, part, third):
    pass


def test_without_numba_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(diskside.NoCompilerError, match="functions written in Python need numba .*: pip install 'numba>="):
        diskside.function(halves, records="f8", result="f8")
