"""Keys of joins: what is read of a large table that is joined with a few rows of a small one, and that answers stay DataFusion's."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterator

import datafusion
import diskside
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from diskside import _sql_keys
from test_sql import rows

ROWS, KEYS = 60_000, 3000
FIRST_DAY = datetime.date(1992, 1, 1)
FIRST_HOUR = datetime.datetime(2020, 1, 1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys")
    random = numpy.random.default_rng(7)
    keys = [None if row % 97 == 0 else int(key) for row, key in enumerate(random.integers(0, KEYS, ROWS))]
    floats = [float("nan") if row % 50 == 0 else -0.0 if row % 50 == 1 else float(row % 20) for row in range(ROWS)]
    fact = {
        "k": pa.array(keys, pa.int64()),
        "narrow": pa.array([None if key is None else key % 1000 for key in keys], pa.int16()),
        "d": pa.array([None if key is None else Decimal(key) / 8 for key in keys], pa.decimal128(12, 3)),
        "word": [None if key is None else f"it's {key}" for key in keys],
        "day": [None if key is None else FIRST_DAY + datetime.timedelta(key) for key in keys],
        "at": pa.array([None if key is None else FIRST_HOUR + datetime.timedelta(hours=key) for key in keys], pa.timestamp("us")),
        "f": floats,
        "n": range(ROWS),
        "v": random.integers(0, 1 << 62, ROWS),
    }
    pq.write_table(pa.table(fact), directory / "fact.parquet", row_group_size=10_000, compression="none", use_dictionary=False)
    pq.write_table(pa.table(fact), directory / "other.parquet", row_group_size=10_000, compression="none", use_dictionary=False)
    every = range(KEYS)
    dim = {
        "k": pa.array(every, pa.int32()),
        "narrow": pa.array([key % 1000 for key in every], pa.int64()),
        "d": pa.array([Decimal(key) / 4 for key in every], pa.decimal128(10, 2)),
        "word": [f"it's {key}" for key in every],
        "day": [FIRST_DAY + datetime.timedelta(key) for key in every],
        "at": pa.array([FIRST_HOUR + datetime.timedelta(hours=key) for key in every], pa.timestamp("us")),
        "f": [float("nan") if key == 3 else 0.0 if key == 5 else float(key) for key in every],
        "city": [f"city {key % 100}" for key in every],
        "up": pa.array([None if key % 3 == 0 else key // 10 for key in every], pa.int64()),
    }
    pq.write_table(pa.table(dim), directory / "dim.parquet", row_group_size=500)
    pq.write_table(pa.table({"up": range(300), "name": [f"name {up % 10}" for up in range(300)]}), directory / "tiny.parquet")
    return directory


@pytest.fixture(scope="module")
def session(directory: Path) -> Iterator[diskside.Session]:
    with diskside.serve(directory, rw=True, engines=2) as server, server.connect() as session:
        yield session


TABLES = ("fact", "other", "dim", "tiny")


def plainly(directory: Path, query: str) -> pa.Table:
    context = datafusion.SessionContext()
    for name in TABLES:
        context.register_parquet(name, directory / f"{name}.parquet")
    return context.sql(query).to_arrow_table()


def asked(session: diskside.Session, query: str) -> diskside.Query:
    return session.sql(query, **{name: session.scan(f"{name}.parquet", place="device") for name in TABLES})


def in_part(query: diskside.Query) -> set[tuple[str, str]]:
    """Tables, and their columns, that were read by keys."""
    found = set()
    for scan in query.scans:
        for column in ("k", "narrow", "d", "word", "day", "at", "f", "n", "up"):
            if f'"{column}" in (' in (scan._wanted["where"] or ""):
                found.add((scan.name.rpartition("/")[2].partition(".")[0], column))
    return found


CITY = "dim.city in ('city 7', 'city 8')"
SEVEN = "(select * from dim where city = 'city 7') dim"

#: With the tables that are read by keys, and the columns that have these.
QUERIES: list[tuple[str, set[tuple[str, str]]]] = [
    (f"select sum(v), count(*) from fact join dim on fact.k = dim.k where {CITY}", {("fact", "k")}),
    (f"select sum(v), count(*) from dim join fact on fact.k = dim.k where {CITY}", {("fact", "k")}),
    (f"select sum(v), count(*) from fact, dim where fact.k = dim.k and {CITY} and fact.n > 500", {("fact", "k")}),
    (f"select n, city from fact join dim using (k) where {CITY}", {("fact", "k")}),
    (
        f"select city, max(fact.day), count(*) from fact join dim on fact.k = dim.k and fact.n > dim.up where {CITY} group by city",
        {("fact", "k")},
    ),
    # Keys of other types, with the same values.
    (f"select sum(v), count(*) from fact join dim on fact.d = dim.d where {CITY}", {("fact", "d")}),
    (f"select sum(v), count(*) from fact join dim on fact.d = dim.k where {CITY}", {("fact", "d")}),
    (f"select sum(v), count(*) from fact join dim on fact.k = dim.d where {CITY}", {("fact", "k")}),
    (f"select sum(v), count(*) from fact join dim on fact.narrow = dim.narrow where {CITY}", {("fact", "narrow")}),
    (f"select sum(v), count(*) from fact join dim on fact.word = dim.word where {CITY}", {("fact", "word")}),
    (f"select sum(v), count(*) from fact join dim on fact.day = dim.day where {CITY}", {("fact", "day")}),
    (f"select sum(v), count(*) from fact join dim on fact.at = dim.at where {CITY}", {("fact", "at")}),
    # Casts that change values, and what is computed.
    (f"select sum(v), count(*) from fact join dim on cast(fact.d as bigint) = dim.k where {CITY}", set()),
    (f"select sum(v), count(*) from fact join dim on fact.k = cast(dim.d as bigint) where {CITY}", set()),
    (f"select sum(v), count(*) from fact join dim on fact.k = dim.k + 1 where {CITY}", set()),
    # NaN equals NaN for DataFusion.
    ("select sum(v), count(*) from fact join dim on fact.f = dim.f where dim.k in (3, 5, 7)", set()),
    # NULL equals nothing, unless the join says so.
    (f"select sum(v), count(*) from fact join dim on fact.k = dim.up where {CITY}", {("fact", "k")}),
    (f"select sum(v), count(*) from fact join dim on fact.k is not distinct from dim.up where {CITY}", set()),
    # Two columns.
    (f"select sum(v), count(*) from fact join dim on fact.k = dim.k and fact.day = dim.day where {CITY}", {("fact", "k"), ("fact", "day")}),
    # Semi joins.
    (f"select sum(v), count(*) from fact where k in (select k from dim where {CITY})", {("fact", "k")}),
    (f"select sum(v), count(*) from fact where exists (select 1 from dim where dim.k = fact.k and {CITY})", {("fact", "k")}),
    ("select count(*) from dim where city = 'city 3' and k in (select k from fact where n % 7 = 1)", {("fact", "k")}),
    # Anti joins keep rows without a partner.
    (f"select sum(v), count(*) from fact where k not in (select k from dim where {CITY})", set()),
    (f"select sum(v), count(*) from fact where not exists (select 1 from dim where dim.k = fact.k and {CITY})", set()),
    # Outer joins: NULL takes the place of rows of the larger table, or of those of the smaller one.
    ("select dim.k, sum(v), count(n) from dim left join fact on fact.k = dim.k where dim.city = 'city 7' group by 1", {("fact", "k")}),
    ("select dim.k, sum(v), count(n) from fact right join dim on fact.k = dim.k where dim.city = 'city 7' group by 1", {("fact", "k")}),
    (f"select sum(v), count(*), count(city) from fact left join {SEVEN} on fact.k = dim.k", set()),
    (f"select sum(v), count(*), count(city) from fact full join {SEVEN} on fact.k = dim.k", set()),
    # A table that has passed another join.
    (
        f"select sum(fact.v), count(other.n) from fact left join other on fact.n = other.n join dim on fact.k = dim.k where {CITY}",
        {("fact", "k")},
    ),
    (
        "select count(*) from (select * from tiny where up < 5) tiny left join fact on tiny.up = fact.n join dim on fact.k = dim.k "
        "where dim.city = 'city 7'",
        {("fact", "n")},
    ),
    # What is behind a limit, a sum or a union is left alone.
    (f"select count(*) from (select * from fact order by n limit 50000) fact join dim on fact.k = dim.k where {CITY}", set()),
    (f"select sum(c) from (select k, count(*) as c from fact group by k) fact join dim on fact.k = dim.k where {CITY}", set()),
    (f"select count(*) from (select k from fact union all select k from other) fact join dim on fact.k = dim.k where {CITY}", set()),
    (f"select sum(r) from (select k, row_number() over (order by n) as r from fact) fact join dim on fact.k = dim.k where {CITY}", set()),
    # By another name.
    (f"select sum(w) from (select k as key, v as w, n as k from fact) x join dim on x.key = dim.k where {CITY}", {("fact", "k")}),
    # One that is read twice.
    ("select count(*) from fact a join fact b on a.k = b.n where a.n in (5, 6)", set()),
    (f"select count(*) from fact a join dim on a.k = dim.k join fact b on b.k = dim.k where {CITY} and a.n < 900 and b.n < 900", set()),
    (f"select sum(v) from fact join dim on fact.k = dim.k where {CITY} and v > (select avg(v) from fact)", set()),
    # Keys of a table that was itself read by keys.
    (
        "select tiny.name, sum(v) from tiny join dim on tiny.up = dim.up join fact on fact.k = dim.k where tiny.up in (4, 5) group by 1",
        {("fact", "k")},
    ),
    # No key at all.
    ("select sum(v), count(*) from fact join dim on fact.k = dim.k where dim.city = 'nowhere'", set()),
    ("select dim.k, v from dim left join fact on fact.k = dim.k where dim.city = 'nowhere'", set()),
    # All keys, or so many that they leave out little.
    ("select sum(v), count(*) from fact join dim on fact.k = dim.k", set()),
    ("select sum(v), count(*) from fact join dim on fact.k = dim.k where city > 'city 2'", set()),
    ("select sum(fact.v), count(*) from fact join other on fact.n = other.n where other.n < 100", set()),
    (f"select n, city from fact join dim on fact.k = dim.k where {CITY} limit 5", {("fact", "k")}),
]


@pytest.mark.parametrize(("query", "wanted"), QUERIES, ids=[query for query, _ in QUERIES])
def test_answers_are_those_of_all_rows(
    session: diskside.Session, directory: Path, monkeypatch: pytest.MonkeyPatch, query: str, wanted: set[tuple[str, str]]
) -> None:
    with_keys = asked(session, query)
    answer = with_keys.arrow()
    assert in_part(with_keys) == wanted
    monkeypatch.setattr(_sql_keys, "_BYTES_MIN", 1 << 60)
    without = asked(session, query)
    if query.endswith("limit 5"):
        # Any five do.
        assert answer.num_rows == 5 and set(rows(answer, query)) <= set(rows(without_limit(directory, query), query))
        return
    assert rows(answer, query) == rows(without.arrow(), query) == rows(plainly(directory, query), query)
    assert in_part(without) == set()


def without_limit(directory: Path, query: str) -> pa.Table:
    return plainly(directory, query.removesuffix(" limit 5"))


def received(query: diskside.Query) -> int:
    return sum(scan.report["received_bytes"] for scan in query.scans)


def test_rows_without_a_partner_do_not_travel(session: diskside.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"select n, v, city from fact join dim on fact.k = dim.k where {CITY}"
    query = asked(session, text)
    answer = query.arrow()
    few = received(query)
    assert [scan.name.rpartition("/")[2] for scan in query.scans] == ["dim.parquet", "fact.parquet"], "each is read once"
    assert query.scans[1].report["rows_selected"] == answer.num_rows
    monkeypatch.setattr(_sql_keys, "_BYTES_MIN", 1 << 60)
    query = asked(session, text)
    assert query.arrow().num_rows == answer.num_rows
    assert few * 10 < received(query)


def test_no_key_is_no_scan(session: diskside.Session) -> None:
    query = asked(session, "select sum(v) as total, count(*) as n from fact join dim on fact.k = dim.k where dim.city = 'nowhere'")
    assert query.arrow().to_pylist() == [{"total": None, "n": 0}]
    assert [scan.name.rpartition("/")[2] for scan in query.scans] == ["dim.parquet"]


@pytest.mark.parametrize("bound", ["KEYS_MAX", "_KEYS_IN_ALL_MAX", "_TEXT_LEN_MAX", "_KEPT_BYTES_MAX"])
def test_beyond_a_bound_nothing_is_pushed_and_nothing_read_twice(
    session: diskside.Session, directory: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(_sql_keys, bound, 20)
    text = f"select sum(v), count(*) from fact join dim on fact.k = dim.k where {CITY}"
    query = asked(session, text)
    assert rows(query.arrow(), text) == rows(plainly(directory, text), text)
    assert in_part(query) == set()
    assert len(query.scans) == 2
    assert query.scans[0].report["rows_selected"] == 60


def test_rows_that_nobody_takes_do_not_keep_a_scan(session: diskside.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has room for few scans that stand still."""
    monkeypatch.setattr(_sql_keys, "_KEPT_BYTES_MAX", 1)
    for _ in range(6):
        query = asked(session, f"select n, city from fact join dim on fact.k = dim.k where {CITY}")
        with query.batches() as batches:
            batches.read_next_batch()
    assert session.scan("fact.parquet", aggregate="count(*)", place="device").arrow().column(0)[0].as_py() == ROWS


def test_tables_that_are_here_give_keys(session: diskside.Session) -> None:
    wanted = pa.table({"k": pa.array([5, 6, None, 10**9], pa.int64())})
    text = "select count(*) as n, min(fact.k) as least from fact join mine on fact.k = mine.k"
    for table in (wanted, wanted.to_pandas(), wanted.to_batches()[0]):
        query = session.sql(text, fact=session.scan("fact.parquet", place="device"), mine=table)
        (found,) = query.arrow().to_pylist()
        assert found["least"] == 5
        if table is wanted:
            assert query.scans[0].report["rows_selected"] == found["n"] > 0
            assert '"k" in (5, 6, 1000000000)' in query.scans[0]._wanted["where"]


def test_it_says_so(session: diskside.Session) -> None:
    told = asked(session, f"select sum(v) from fact join dim on fact.k = dim.k where {CITY}").explain()
    assert "fact: of k, the values that dim has of k, if these are few" in told
    told = asked(session, "select sum(v) from fact join dim on fact.k = dim.k").explain()
    assert "if these are few" not in told
