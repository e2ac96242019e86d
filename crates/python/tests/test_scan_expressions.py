"""Conditions of scans that are expressions of pyarrow or of Substrait: pyarrow's rows over the plain file."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterator

import deltalake
import diskside
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from diskside._condition import NotPushed
from diskside._substrait_expression import condition
from pyarrow.substrait import serialize_expressions
from test_scan import table

field = pc.field


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("expressions")
    pq.write_table(table(), directory / "t.parquet", row_group_size=700)
    return directory


@pytest.fixture(scope="module")
def session(directory: Path) -> Iterator[diskside.Session]:
    with diskside.serve(directory, rw=True, engines=2) as server, server.connect() as session:
        yield session


DONE = [
    field("n") < 30,
    field("small") == 3,
    field("small") != 3,
    ~(field("f") < 0.5),
    field("f") >= 1.5,
    field("word") == "fox",
    (field("day") >= datetime.date(1994, 3, 1)) & (field("n") > 100),
    (field("at") > datetime.datetime(2020, 1, 1, 0, 50, 3, 7)) | field("small").is_null(),
    field("price").is_valid() & (field("price") <= pa.scalar(Decimal("2.50"), pa.decimal128(15, 2))),
    field("flag") | (field("n") == 4),
    ~field("flag"),
]
#: Such as Substrait, or pyarrow's way to it, does not have.
OF_PYARROW_ALONE = [
    field("small").isin([1, 2, 3]),
    ~field("word").isin(["fox", "it's"]),
    pc.starts_with(field("word"), "the"),
    pc.match_substring(field("word"), "50%"),
]


@pytest.mark.parametrize("expression", [*DONE, *OF_PYARROW_ALONE], ids=str)
def test_an_expression_of_pyarrow_selects_its_rows(session: diskside.Session, expression: Any) -> None:
    scan = session.scan("t.parquet", "n", where=expression)
    assert str(expression) in repr(scan)
    wanted = table().filter(expression)["n"].to_pylist()
    assert scan.arrow()["n"].to_pylist() == wanted
    assert scan.report["rows_selected"] == len(wanted)
    counted = session.scan("t.parquet", where=expression, aggregate="count(*)")
    assert counted.arrow().column(0)[0].as_py() == len(wanted)


@pytest.mark.parametrize("expression", DONE, ids=str)
def test_an_expression_of_substrait_selects_its_rows(session: diskside.Session, expression: Any) -> None:
    sent = expression.to_substrait(table().schema)
    for as_bytes in (sent, bytes(sent), pa.py_buffer(sent)):
        scan = session.scan("t.parquet", ["n"], where=as_bytes)
        assert scan.arrow()["n"].to_pylist() == table().filter(expression)["n"].to_pylist()


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        (field("n") + 1 > 5, "add"),
        (field("n") == field("small"), "another type than"),
        (pc.utf8_upper(field("word")) == "FOX", "utf8_upper"),
        (field("word") == 5, "another type"),
        (field("n").isin([1, None]), "NULL among values"),
        (field("lost") == 1, "lost is no column; it has n, "),
        (field("n"), "not a condition"),
    ],
)
def test_a_part_that_is_not_done_is_named(session: diskside.Session, expression: Any, part: str) -> None:
    scan = session.scan("t.parquet", where=expression)
    with pytest.raises(diskside.UsageError, match=rf"(?s)where: .*: .*({part})"):
        scan.arrow()


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        (field("n") + 1 > 5, "computed"),
        (field("flag") == field("flag"), "computed"),
        (field('my "own" name') == pa.scalar(2, pa.uint8()), "kind 33"),
        (field("n").cast(pa.int32(), safe=False) > 5, "a cast of n"),
    ],
)
def test_a_part_of_substrait_that_is_not_done_is_named(session: diskside.Session, expression: Any, part: str) -> None:
    with pytest.raises(diskside.UsageError, match=rf"where: .*Substrait.*: .*({part})"):
        session.scan("t.parquet", where=expression.to_substrait(table().schema)).arrow()


def test_several_expressions_are_none(session: diskside.Session) -> None:
    schema = table().schema
    both = serialize_expressions([field("n") < 3, field("n") < 4], ["a", "b"], schema)
    with pytest.raises(diskside.UsageError, match="2 expressions"):
        session.scan("t.parquet", where=both).arrow()


@pytest.mark.parametrize("where", [5, ["n < 5"], object()])
def test_what_is_no_condition_is_said(session: diskside.Session, where: Any) -> None:
    with pytest.raises(diskside.UsageError, match="is no condition; write"):
        session.scan("t.parquet", where=where)


def changed(sent: bytes, chance: random.Random) -> bytes:
    """Bytes of which one is another, or is gone, or after which all are gone."""
    found, at = bytearray(sent), chance.randrange(len(sent))
    match chance.randrange(4):
        case 0:
            del found[at:]
        case 1:
            found[at] = chance.randrange(256)
        case 2:
            found[at] ^= 1 << chance.randrange(8)
        case _:
            del found[at]
    return bytes(found)


def test_bytes_that_are_not_whole_are_refused_or_are_a_condition(session: diskside.Session) -> None:
    """pyarrow itself ends the process for some of them, so it is not asked what they mean."""
    schema, chance, taken, refused = table().schema, random.Random(11), set[str](), 0
    for expression in DONE:
        sent = bytes(expression.to_substrait(schema))
        for _ in range(400):
            try:
                taken.add(condition(changed(sent, chance), schema))
            except NotPushed:
                refused += 1
    assert refused > 1000
    for where in sorted(taken):
        # It is one that a scan takes.
        assert session.scan("t.parquet", ["n"], where=where, limit=1).arrow().num_rows <= 1


def test_bytes_that_are_no_expression_are_refused() -> None:
    schema, chance = table().schema, random.Random(5)
    for _ in range(3000):
        with pytest.raises(NotPushed):
            condition(chance.randbytes(chance.randint(0, 60)), schema)


def test_it_is_a_condition_beside_others(session: diskside.Session) -> None:
    few = session.scan("t.parquet", where=field("n") < 40)
    query = session.sql("select count(*) as c from few where small = 2", few=few)
    assert query.arrow()["c"].to_pylist() == [table().filter((field("n") < 40) & (field("small") == 2)).num_rows]
    assert query.scans[0]._wanted["where"].startswith('("n" < 40) and (')


def test_a_table_of_delta_takes_one(session: diskside.Session, directory: Path) -> None:
    few = table(60).select(["n", "word", "small"])
    deltalake.write_deltalake(str(directory / "delta"), few)
    scan = session.scan_delta(str(directory / "delta"), "n", where=(field("n") > 20) & (field("word") == "fox"))
    assert scan.arrow()["n"].to_pylist() == few.filter((field("n") > 20) & (field("word") == "fox"))["n"].to_pylist()
