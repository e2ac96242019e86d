"""SQL over scanned tables: the answers of DataFusion over the plain files, and what servers do of them."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterator

import datafusion
import diskside
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_scan import table

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0000))[0]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sql")
    all_rows = table()
    pq.write_table(all_rows, directory / "t.parquet", row_group_size=700)
    pq.write_table(all_rows.slice(0, 0), directory / "empty.parquet")
    names = pa.array(["minus", None, "zero", "one", "two"])
    pq.write_table(pa.table({"small": pa.array([-1, None, 0, 1, 2], pa.int32()), "name": names, "n": range(5)}), directory / "r.parquet")
    floats = [NEGATIVE_NAN, float("-inf"), -1.5, -0.0, 0.0, 0.5, None]
    pq.write_table(pa.table({"f": floats, "g": pa.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, None])}), directory / "floats.parquet")
    great = {"n": [2**62, 2**62, 2**62], "i": pa.array([2**31 - 1, 1, None], pa.int32()), "u": pa.array([2**64 - 1, 0, 1], pa.uint64())}
    pq.write_table(pa.table({**great, "d": pa.array([Decimal(10**37), Decimal(-5), None], pa.decimal128(38, 0))}), directory / "great.parquet")
    return directory


@pytest.fixture(scope="module")
def session(directory: Path) -> Iterator[diskside.Session]:
    with diskside.serve(directory, rw=True, engines=2) as server, server.connect() as session:
        yield session


TABLES = ("t", "r", "empty", "floats", "great")


def plainly(directory: Path, query: str) -> pa.Table:
    context = datafusion.SessionContext()
    for name in TABLES:
        context.register_parquet(name, directory / f"{name}.parquet")
    return context.sql(query).to_arrow_table()


def rows(of: pa.Table, query: str) -> list[str]:
    # NaN equals nothing, but is shown alike; -0.0 and 0.0 are one number, and either may stand for their group.
    shown = [str(tuple(row.values())).replace("-0.0", "0.0") for row in of.to_pylist()]
    return shown if "order by" in query.rpartition(")")[2] else sorted(shown)


#: With what is told to servers: ``sums``, ``first`` for the first rows in an order, a condition, or None.
QUERIES = [
    ("select count(*) from t", "sums"),
    ("select count(small), count(*), min(small), max(n), sum(small), avg(small), avg(n) from t", "sums"),
    ("select sum(price), avg(price), min(price), max(price), count(price) from t where price < 2.5", "sums"),
    ("select sum(price * small), sum(price * (1 - price) + 2) from t where small <> 3", "sums"),
    ("select min(word), max(word), min(day), max(day), min(at), max(at) from t", "sums"),
    ("select sum(f), avg(f) from t where f < 1.5 and f > -3", None),
    ("select sum(f), avg(f), count(f) from t where n > 10 and f = 1.5", "sums"),
    ("select max(g), min(g) from floats", None),
    ("select sum(small * 2 + n), sum(small + small), sum(\"my \"\"own\"\" name\") from t where not flag", "sums"),
    ("select small, count(*), sum(price) from t group by small", "sums"),
    ("select word, flag, day, count(*) c, avg(price) from t where small in (1, 2, 3, 4, -5) group by 1, 2, 3", "sums"),
    ("select small as s, sum(price) p from t group by small having sum(n) > 700000 order by p desc, s limit 3 offset 1", "sums"),
    ("select price, count(*) + 1, sum(n) * 2 from t group by price order by price nulls first limit 7", "sums"),
    ("select x.small, max(x.word) from t x where x.n between 5 and 3000 group by x.small", "sums"),
    ("select distinct word, small from t", "sums"),
    ("select f, count(*) from t group by f", None),
    ("select count(distinct small) from t where n > 7", "sums"),
    ("select flag, count(distinct word), sum(n), max(price) from t group by flag", "sums"),
    ("select count(distinct word), count(distinct small) from t where n < 900", None),
    ("select count(distinct f) from t", None),
    ("select small, count(*) c from (select small, word, sum(n) s from t group by 1, 2) x where s > 9000 group by 1 order by c desc, small limit 4", "sums"),
    ("select s + 1 from (select small, sum(n) s from t group by small) t order by s desc limit 3", "sums"),
    ("select avg(s), max(word) from (select word, sum(price) as s from t group by word) x", "sums"),
    # A product that is used twice is computed in a step of its own, as in the first query of TPC-H.
    ("select word, sum(price * (1 - price)), sum(price * (1 - price) * (1 + small)), avg(price) from t where n > 9 group by word", "sums"),
    ("select sum(x), min(m), count(m), count(*) from (select n * 2 as x, small as m from t where n > 5) y", "sums"),
    ("select k, sum(x + 1) from (select word as k, n - small as x from t) y group by k", "sums"),
    ("select sum(small) from (select n as small, small as n from t) y", None),
    ("select k, count(*) from (select n % 7 as k from t where small > 0) y group by k", None),
    ("select sum(x) from (select f * 2 as x from t where n > 3 and f = 1.5) y", "sums"),
    ("select n, small, price from t order by n desc limit 7", "first"),
    ("select n, small from t order by small, n limit 9", "first"),
    # NULL comes first here, and last in a scan.
    ("select n from t order by small desc, n limit 9", None),
    ("select n, word from t where word is not null and n > 30 order by word desc, n limit 5 offset 3", "first"),
    ("select n, small from t where small > 2 order by small desc nulls last, n limit 5", "first"),
    ("select price as n, n as m from t order by m limit 4", "first"),
    ("select n from (select n, price from t order by n limit 10) x order by price, n limit 3", "first"),
    ("select max(n) from (select n from t order by n limit 10) x", None),
    ("select n from t where f < 0.5 order by n limit 3", '(not ("f" >= 5.000000e-01))'),
    ("select n from t order by f, n limit 5", None),
    ("select n * 2 as y from t order by y limit 2", None),
    ("select n from t order by n limit 70000", None),
    ("select small % 3, count(*) from t where n > 100 group by 1", '("n" > 100)'),
    ("select sum(n) filter (where flag), count(*) from t where n > 3990", '("n" > 3990)'),
    ("select first_value(n order by n desc) from t where n < 20", '("n" < 20)'),
    ("select grouping(small), small, sum(n) from t group by rollup(small)", None),
    ("select sum(n), sum(price), count(*), min(word) from empty", "sums"),
    ("select small, sum(n) from empty group by small", "sums"),
    ("select * from empty", None),
    ("select n, word from t where word like '%fox' and n < 100", """("n" < 100) and ("word" like '%fox')"""),
    ("select n from t where word not like 'a_b' and word is not null and n > 3000", None),
    ("select n from t where word ilike 'FOX' and small is null", '("small" is null)'),
    ("select n from t where day >= date '1994-01-01' + interval '1' year and day < date '1995-02-01'", None),
    ("select n from t where at > timestamp '2020-01-01 01:00:00.5' and flag", None),
    ("select n from t where f < 0.5 order by n", '(not ("f" >= 5.000000e-01))'),
    ("select n from t where not (f < 0.5 or f > 1) or small = 2", None),
    ("select n from t where f in (0.0, 1.5, 2.5, 3.5, 4.5) or f is null", None),
    ("select n from t where small not in (1, 2, 3, 4) and word in ('fox', 'it''s')", None),
    ("select n from t where small not in (1, null)", None),
    ("select n from t where n * 2 > 7990 and price between 0.05 and 5", None),
    ("select n + 1, upper(word), price / 3 from t where \"my \"\"own\"\" name\" = 2 and n < 50", None),
    ("select n, row_number() over (partition by small order by n) from t where n < 30", '("n" < 30)'),
    ("select a.n from t a join t b on a.n = b.n + 1 where a.small = 2 and b.n > 3000", """(("small" = 2)) or (("n" > 3000))"""),
    ("select t.n, r.name from t left join r on t.small = r.small where t.n < 40 and r.n is not null", '("n" < 40)'),
    ("select name, sum(price) from t join r on t.small = r.small where t.n > 5 group by name", None),
    ("select n from t where small = (select max(small) from t where n < 10) and n < 99", None),
    ("select n from t where exists (select 1 from r where r.small = t.small and r.name = 'two') and n > 3900", '("n" > 3900)'),
    ("select n from t where n < 3 union all select n from t where n > 3997", '(("n" < 3)) or (("n" > 3997))'),
    ("with x as (select small, sum(n) s from t group by small) select max(s) from x where small > 0", "sums"),
    ("select count(*) from t where flag is true", None),
    ("select count(*) from floats where f < 1", None),
    ("select sum(g) from floats where f >= 0", None),
    # Without NaN the condition is NULL, not false: such rows were not taken for rows in doubt.
    ("select count(*), sum(n) from t where f > 0 or small < -5", None),
    ("select small, count(*) from t where f < 0.5 and f = -2.25 group by small", "sums"),
    ("select sum(g), count(*) from floats where f <> 0.0", "sums"),
    ("select g from floats where f <= 0.0 or f > 0.25", None),
    ("select sum(n) from great", None),
    ("select sum(i), sum(i + 0), sum(u) from great", None),
    ("select sum(i * i) from great", None),
    ("select sum(d), max(d), min(u), max(u), avg(i) from great", "sums"),
    ("select sum(n) from great where n > 5", '("n" > 5)'),
    ("select unnest([n, small]) from t where n < 3", '("n" < 3)'),
    ("with recursive x as (select 1 as i union all select i + 1 from x where i < 5) select t.n from t join x on t.n = i where t.n > 2", None),
    ("select v.i, t.n from (values (1), (2)) v(i) left join t on t.n = v.i and t.small > -4", None),
    ("select n, l.name from t, lateral (select name from r where r.small = t.small) l where n < 50", '("n" < 50)'),
    ("select n from t where n < 9 intersect select n from r", '("n" < 9)'),
    ("select 1 + 1", None),
]


@pytest.mark.parametrize(("query", "pushed"), QUERIES, ids=[query for query, _ in QUERIES])
def test_an_answer_is_that_of_the_plain_files(session: diskside.Session, directory: Path, query: str, pushed: str | None) -> None:
    asked = session.sql(query, **{name: f"{name}.parquet" for name in TABLES})
    answer, wanted = asked.arrow(), plainly(directory, query)
    assert rows(answer, query) == rows(wanted, query)
    assert answer.schema.names == wanted.schema.names
    # Text that is read of plain files is of another type there.
    as_text = [pa.string() if kind == pa.string_view() else kind for kind in wanted.schema.types]
    assert answer.schema.types == as_text
    is_summed = [scan._wanted["aggregate"] is not None for scan in asked.scans]
    assert pushed == "first" or not any(scan._wanted["order"] for scan in asked.scans)
    if pushed == "sums":
        assert is_summed and all(is_summed)
    elif pushed == "first":
        assert asked.scans[-1]._wanted["order"]
    elif pushed is not None:
        assert pushed in [scan._wanted["where"] for scan in asked.scans]


def great(directory: Path) -> int:
    """A file of 3 M numbers that do not compress; gives its length."""
    path = directory / "long.parquet"
    numbers = numpy.random.default_rng(1).integers(0, 1 << 62, (2, 1_500_000))
    pq.write_table(pa.table({"n": numbers[0], "m": numbers[1]}), path, row_group_size=50_000, compression="none", use_dictionary=False)
    return path.stat().st_size


def test_what_is_not_wanted_does_not_travel(session: diskside.Session, directory: Path) -> None:
    length = great(directory)
    asked = session.sql("select sum(n), count(*) from x where m > 0", x="long.parquet")
    with pytest.raises(diskside.UsageError, match="more digits than a result holds"):
        # 1.5 M numbers of 62 bits: a scan says that their sum does not fit, and DataFusion keeps its lowest bits.
        session.scan("long.parquet", aggregate="sum(n)").arrow()
    assert asked.arrow().to_pylist() == plainly_of(directory, "long.parquet", asked.query)
    asked = session.sql("select min(n), max(m), count(*) from x where m > 0", x="long.parquet")
    assert asked.arrow().to_pylist() == plainly_of(directory, "long.parquet", asked.query)
    assert sum(scan.report["received_bytes"] for scan in asked.scans) < length / 1000
    asked = session.sql(f"select n from x where m < {1 << 54} order by n", x="long.parquet")
    assert asked.arrow().to_pylist() == plainly_of(directory, "long.parquet", asked.query)
    assert sum(scan.report["received_bytes"] for scan in asked.scans) < length / 20
    asked = session.sql("select m, n from x order by n desc, m limit 10", x="long.parquet")
    assert asked.arrow().to_pylist() == plainly_of(directory, "long.parquet", asked.query)
    assert sum(scan.report["received_bytes"] for scan in asked.scans) < length / 1000


def plainly_of(directory: Path, name: str, query: str) -> list[dict[str, Any]]:
    # With several partitions the first rows would be those of any.
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    context.register_parquet("x", directory / name)
    return context.sql(query).to_arrow_table().to_pylist()


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("select m, n from x limit 7", 7),
        ("select n + 1 as y from x where m > 5 limit 3 offset 2", 5),
        ("select n from x where m % 2 = 0 limit 3", None),
    ],
)
def test_a_limit_ends_the_scan(session: diskside.Session, directory: Path, query: str, limit: int | None) -> None:
    great(directory)
    asked = session.sql(query, x=session.scan("long.parquet", place="device"))
    assert asked.arrow().to_pylist() == plainly_of(directory, "long.parquet", query)
    (scan,) = asked.scans
    assert scan._wanted["limit"] == limit
    with pytest.raises(diskside.UsageError, match="read to its end"):
        _ = scan.report


def test_an_order_of_the_first_rows_is_of_these_alone(session: diskside.Session, directory: Path) -> None:
    """DataFusion takes any 100 rows for the first ones of a file."""
    great(directory)
    asked = session.sql("select n from (select * from x limit 100) y order by n desc limit 3", x="long.parquet")
    wanted = sorted(pq.read_table(directory / "long.parquet")["n"][:100].to_pylist())[:-4:-1]
    assert asked.arrow()["n"].to_pylist() == wanted


def test_a_scan_as_a_table_says_why_it_fails(session: diskside.Session) -> None:
    """DataFusion read it, and its own error, `External error`, was what came out."""
    ordered = session.scan("t.parquet", order="n", limit=70_000)
    with pytest.raises(diskside.UsageError, match="65,?536"):
        session.sql("select count(*) from x", x=ordered).arrow()


def test_tables_are_files_scans_and_tables(session: diskside.Session, directory: Path) -> None:
    (directory / "prices.txt").write_text("fox;0010;2.50\nhen;0020;10.00\nowl;;0.25\n")
    prices = session.scan("prices.txt", header=False, delimiter=";", types="column1 text, column2 decimal(15, 2)", where="column0 <> 'hen'")
    names = pa.table({"column0": ["fox", "hen"], "Name": ["Renard", "Poule"]})
    query = 'select "Name", column2 from prices join names using (column0)'
    joined = session.sql(query, prices=prices, names=names)
    assert joined.arrow().to_pylist() == [{"Name": "Renard", "column2": Decimal("2.50")}]
    assert joined.polars().to_dicts() == pa.table(joined).to_pylist() == joined.pandas().to_dict("records")
    summed = session.sql("select sum(column2) as total from prices where column0 <> 'owl'", prices=prices)
    assert summed.arrow().to_pylist() == [{"total": Decimal("2.50")}]
    assert summed.scans[0]._wanted["where"] == "(column0 <> 'hen') and ((\"column0\" <> 'owl'))"
    first = session.sql("select count(*) as n from first", first=session.scan("t.parquet", limit=5))
    assert first.arrow().to_pylist() == [{"n": 5}]
    for part in ("a", "b"):
        (directory / f"parts/part={part}").mkdir(parents=True, exist_ok=True)
        pq.write_table(table(50), directory / f"parts/part={part}/x.parquet")
    parts = session.sql('select part, count(*) as n from "Parts" where n < 10 group by part order by part desc', Parts="parts")
    assert parts.arrow().to_pylist() == [{"part": "b", "n": 10}, {"part": "a", "n": 10}]
    assert session.sql('select n from "Parts" where part = \'b\' and n < 2', Parts="parts").arrow()["n"].to_pylist() == [0, 1]


def test_it_says_what_it_does(session: diskside.Session) -> None:
    asked = session.sql("select small, sum(n) from t where n > 5 group by small", t="t.parquet")
    told = asked.explain()
    assert "t.parquet, where='(\"n\" > 5)', aggregate=" in told and "TableScan: t" in told
    assert asked.scans == []
    told = session.sql("select n, upper(word) from t where n > 5 and f < 1", t="t.parquet").explain()
    assert "columns=['n', 'f', 'word'], where=" in told
    now = session.sql("select n from t where at < now() and n < 3", t="t.parquet")
    assert now.arrow().num_rows == 3 and now.scans[0]._wanted["where"] is None, "time passes between plan and query"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select", "sql: .*Expected"),
        ("select missing from t", "sql: .*missing"),
        ("select n from absent", "sql: .*absent"),
        ("create table x as select 1", "sql: .*DDL"),
        ("copy (select 1) to '/tmp/x.csv'", "sql: .*DML|sql: .*not supported"),
        ("set datafusion.execution.batch_size = 3", "sql: .*SetVariable|sql: .*not supported"),
        ("select 1 / (n - n) from t", "sql: .*[Dd]ivide by zero"),
        ("select n from t where n = 'x'", "Cannot cast string 'x'"),
    ],
)
def test_what_is_wrong_is_said(session: diskside.Session, query: str, message: str) -> None:
    with pytest.raises(diskside.UsageError, match=message):
        session.sql(query, t="t.parquet").arrow()


def test_what_is_no_table_is_said(session: diskside.Session, directory: Path) -> None:
    with pytest.raises(diskside.UsageError, match="t: 5 is no table"):
        session.sql("select 1", t=5)
    with pytest.raises(FileNotFoundError):
        session.sql("select 1 from t", t="absent.parquet").arrow()
    great(directory)
    damaged = bytearray((directory / "long.parquet").read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 200_000] = bytes(200_000)
    (directory / "damaged.parquet").write_bytes(damaged)
    with pytest.raises(diskside.DisksideError, match="damaged.parquet"):
        session.sql("select n, m from t where n % 3 <> 5", t=session.scan("damaged.parquet")).arrow()


def test_an_interrupt_is_none_of_the_query_s_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while rows came was a ``UsageError``, which is a ``ValueError``: a loop that catches those did not end."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt
        yield

    import diskside._sql_rows

    pq.write_table(table(10), tmp_path / "t.parquet")
    monkeypatch.setattr(diskside._sql_rows.Rows, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        diskside.sql("select n + 1 from t", t=tmp_path / "t.parquet").arrow()


@pytest.mark.parametrize("other", ["public.t", "datafusion.public.t", '"t"'])
@pytest.mark.parametrize(
    "query",
    [
        "select * from (select count(*) c from t where n < 5 union all select count(*) from {}) order by c",
        "select count(*), sum(t.n) from t where t.n < 7 and t.n > (select avg(n) - 1999 from {})",
        "select a.n, b.n from (select * from t where n < 3) a left join {} b on a.n = b.n + 3990 order by 1, 2",
    ],
)
def test_a_table_is_the_same_by_any_of_its_names(tmp_path: Path, query: str, other: str) -> None:
    """The condition of what was called ``t`` was the one of ``public.t``, too, of which rows were missing then."""
    pq.write_table(table(), tmp_path / "t.parquet")
    context = datafusion.SessionContext()
    context.register_parquet("t", str(tmp_path / "t.parquet"))
    wanted = context.sql(query.format(other)).to_pylist()
    assert diskside.sql(query.format(other), t=tmp_path / "t.parquet").arrow().to_pylist() == wanted


@pytest.mark.parametrize("name", ["r", "t"])
def test_what_a_recursive_query_found_is_no_table(tmp_path: Path, name: str) -> None:
    """A table of its name was taken for it, so rows were missing that a later round would have found."""
    # So large that it is read by keys of others.
    rows = {"k": range(100_000), "n": range(1, 100_001), "x": numpy.random.default_rng(1).random(100_000)}
    pq.write_table(pa.table(rows), tmp_path / "b.parquet")
    pq.write_table(table(), tmp_path / "t.parquet")
    query = f"with recursive {name} as (select 0 as n, 0 as c union all select b.n, c + 1 from {name} join b on b.k = {name}.n and b.k < 30) select count(*), max(c) from {name}"
    tables = {"b": tmp_path / "b.parquet", "r": pa.table({"n": [1, 2]}), "t": tmp_path / "t.parquet"}
    assert diskside.sql(query, **tables).arrow().to_pylist() == [{"count(*)": 31, f"max({name}.c)": 30}]


@pytest.mark.parametrize(
    "query",
    [
        "select cast(0 as real) x from t where n = 1 union all select f from t where n < 9 order by 1",
        "select case when n < 5 then cast(n as real) else n / 3.0 end x from t where n < 9 order by 1",
        "select max(x) m from (select cast(0 as real) x from t union all select n / 3.0e0 from t)",
        "select day x from t where n = 1 union all select at from t where n < 4 order by 1",
        "select small x from t where n < 3 union all select n * 3000000000 from t where n < 3 order by 1",
        "select cast(n as tinyint) x from t where n < 0 union all select n from t where n < 300 order by 1",
    ],
)
def test_a_column_has_the_type_of_all_its_parts(tmp_path: Path, query: str) -> None:
    """It had that of the first part: numbers were rounded, times became days, and large numbers were an error."""
    pq.write_table(table(), tmp_path / "t.parquet")
    context = datafusion.SessionContext()
    context.register_parquet("t", str(tmp_path / "t.parquet"))
    wanted = context.sql(query).to_arrow_table()
    found = diskside.sql(query, t=tmp_path / "t.parquet").arrow()
    assert found.schema.types == wanted.schema.types
    assert str(found.to_pylist()) == str(wanted.to_pylist())
