"""Spark over files of a server: its answers on the plain files. These need pyspark and Java: ``scripts/python --spark``."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterator

import diskside
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pyspark = pytest.importorskip("pyspark")

import diskside.spark  # noqa: E402
from diskside._condition import Column, NotPushed  # noqa: E402
from pyspark.sql import SparkSession, datasource  # noqa: E402
from test_scan import table  # noqa: E402


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("spark")
    pq.write_table(table().rename_columns([*table().schema.names[:-1], "u"]), directory / "t.parquet", row_group_size=700)
    for year in (2023, 2024):
        (directory / f"sales/year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"price": [1.5, 2.5, None]}), directory / f"sales/year={year}/part.parquet")
    return directory


@pytest.fixture(scope="module")
def url(directory: Path) -> Iterator[str]:
    with diskside.serve(directory, rw=True, engines=2) as server:
        yield server.url


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",
    }
    session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    diskside.spark.register(session)
    yield session
    session.stop()


FILTERS = [
    "n > 3000 and small in (1, 4, -5) and flag and price < 2.5 and price >= -1",
    "small is null and word <=> 'fox' and not (n = 7) and u = 0",
    "f > 0.5 and word like 'the%' and day between date'1994-02-01' and date'1995-02-03'",
    "not (f > 0.5) and word like '%b' and at < timestamp_ntz'2020-01-01 00:50:00.5'",
]


def test_the_rows_are_those_of_spark_on_the_plain_file(spark: SparkSession, url: str, directory: Path) -> None:
    def scanned() -> Any:
        return spark.read.format("diskside").option("target", "64kB").option("filters", "once").load(f"{url}/t.parquet")

    plain = spark.read.parquet(str(directory / "t.parquet"))
    assert scanned().columns == plain.columns
    # One query for all filters: Spark takes a second for each.
    ours, theirs = (
        sorted(str(tuple(row)) for row in _union([frame().filter(text).selectExpr(f"{at} as filter", "*") for at, text in enumerate(FILTERS)]).collect())
        for frame in (scanned, lambda: plain)
    )
    assert ours == theirs and {row[1] for row in ours} == {"0", "1", "2", "3"}


def _union(frames: list[Any]) -> Any:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    return whole


def test_a_frame_is_used_again(spark: SparkSession, url: str) -> None:
    """Spark 4.3 reads with the last filters that it said for a DataFrame, so it is not asked for any, but for one query."""
    frame = spark.read.format("diskside").option("columns", "n, small").load(f"{url}/t.parquet")
    assert frame.filter("n < 5").unionAll(frame.filter("n > 3998")).count() == 6
    assert frame.count() == 4000


def test_types_are_those_of_spark(spark: SparkSession, url: str, directory: Path) -> None:
    at = [datetime.datetime(2020, 1, 1, 12, 0, 0, 5), None]
    columns = {"tz": pa.array(at, pa.timestamp("us", "UTC")), "zone": pa.array(at, pa.timestamp("us", "Europe/Berlin"))}
    columns |= {"u8": pa.array([255, None], pa.uint8()), "u64": pa.array([2**64 - 1, None], pa.uint64()), "list": [[1, None], None]}
    columns |= {"struct": [{"a": 1}, None], "code": pa.array(["x", None]).dictionary_encode(), "bytes": [b"x", None]}
    pq.write_table(pa.table(columns), directory / "types.parquet")
    scanned, plain = spark.read.format("diskside").load(f"{url}/types.parquet"), spark.read.parquet(str(directory / "types.parquet"))
    assert scanned.collect() == plain.collect() and scanned.dtypes == plain.dtypes


def test_options_say_what_spark_does_not(spark: SparkSession, url: str) -> None:
    read = spark.read.format("diskside")
    sums = read.option("aggregate", "sum(n) as total").option("by", "small").option("where", "n > 9").load(f"{url}/t.parquet").filter("small = 3")
    wanted = sum(row["n"] for row in table().to_pylist() if row["small"] == 3 and row["n"] > 9)
    assert [row.asDict() for row in sums.collect()] == [{"small": 3, "total": wanted}]
    sales = spark.read.format("diskside").schema("year int, price double").load(f"{url}/sales").filter("year > 2023 and price > 2")
    assert [tuple(row) for row in sales.collect()] == [(2024, 2.5)]
    with pytest.raises(Exception, match="colums: no such option"):
        spark.read.format("diskside").option("colums", "n").load(f"{url}/t.parquet")


SAID = [
    (datasource.EqualTo(("n",), 5), '"n" = 5'),
    (datasource.Not(datasource.In(("word",), ["a", "it's"])), """not ("word" in ('a', 'it''s'))"""),
    (datasource.GreaterThan(("f",), 0.5), 'not ("f" <= 5.000000e-01)'),
    (datasource.Not(datasource.GreaterThan(("f",), 0.5)), 'not ("f" > 5.000000e-01)'),
    (datasource.EqualNullSafe(("word",), None), '"word" is null'),
    (datasource.StringContains(("word",), "50%"), """"word" like '%50\\%%'"""),
    (datasource.LessThan(("price",), Decimal("2.50")), '"price" < 2.50'),
    (datasource.LessThanOrEqual(("day",), datetime.date(1994, 1, 1)), "\"day\" <= date '1994-01-01'"),
    (datasource.EqualTo(("f",), float("nan")), None),
    (datasource.EqualTo(("absent",), 1), None),
    (datasource.EqualTo(("n", "part"), 1), None),
    (datasource.EqualTo(("n",), "1"), None),
]


@pytest.mark.parametrize(("filter", "text"), SAID, ids=str)
def test_what_is_said_to_a_server(filter: Any, text: str | None) -> None:
    columns = {field.name: Column(field) for field in table().schema}
    if text is None:
        with pytest.raises(NotPushed):
            diskside.spark.condition(filter, columns)
    else:
        assert diskside.spark.condition(filter, columns).wide == text
