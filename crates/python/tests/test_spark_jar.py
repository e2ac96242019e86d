"""The data source of Spark's Java side: what it pushes, and Spark's answers on the plain files. See ``scripts/python --spark``."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import time
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterator

import diskside
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pyspark = pytest.importorskip("pyspark")
if "DISKSIDE_SPARK_JAR" not in os.environ:
    # Spark may have been left in this Python by an earlier run with it.
    pytest.skip("scripts/python --spark builds the jar", allow_module_level=True)

import diskside.spark  # noqa: E402
from pyspark.sql import DataFrame, SparkSession, functions  # noqa: E402
from test_scan import table  # noqa: E402

#: A name and a text that end quotes, conditions and commands where they are not quoted.
NAME, TEXT = "it's \"a\" n\u00e4me; --x", "x' or 1=1 --\u00e9\"%_\\"


def hard() -> pa.Table:
    """More columns that are hard: moments with zones, bytes, dictionaries, wide decimals, hostile names and texts."""
    found = table().drop_columns(['my "own" name'])
    rows = found.num_rows
    at = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999) + datetime.timedelta(hours=row) for row in range(rows)]
    more = {
        "zone": pa.array([None if row % 23 == 0 else one for row, one in enumerate(at)], pa.timestamp("us", "UTC")),
        "wide": pa.array([None if row % 29 == 0 else Decimal(10**27 - row).scaleb(-6) for row in range(rows)], pa.decimal128(30, 6)),
        "code": pa.array([["x", "y", None][row % 3] for row in range(rows)]).dictionary_encode(),
        "bytes": pa.array([bytes([row % 256]) for row in range(rows)]),
        "real": pa.array([None if row % 3 == 0 else row / 8 for row in range(rows)], pa.float32()),
        "list": pa.array([[row, None] for row in range(rows)]),
        "byte": pa.array([row % 200 - 100 for row in range(rows)], pa.int8()),
        NAME: pa.array([TEXT if row % 5 == 0 else str(row % 3) for row in range(rows)]),
    }
    for name, column in more.items():
        found = found.append_column(name, column)
    return found


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("spark-jar")
    pq.write_table(hard(), directory / "t.parquet", row_group_size=700)
    big = [2**63 - 1, 1, None, 5]
    decimals = [Decimal(10**38 - 1), Decimal(1), None, Decimal(-1)]
    unsigned = [2**64 - 1, 2**64 - 2, None, 5]
    hard_sums = {"big": pa.array(big, pa.int64()), "unsigned": pa.array(unsigned, pa.uint64()), "most": pa.array(decimals, pa.decimal128(38, 0))}
    pq.write_table(pa.table(hard_sums), directory / "big.parquet")
    for year, more in [(2023, {}), (2024, {"note": ["a", None, "c"]})]:
        (directory / f"sales/year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"price": [1.5, 2.5, None], **more}), directory / f"sales/year={year}/part.parquet")
    return directory


@pytest.fixture(scope="module")
def url(directory: Path) -> Iterator[str]:
    with diskside.serve(directory, rw=True, engines=2) as server:
        yield server.url


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.jars": diskside.spark.jar(),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.adaptive.enabled": "false",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    # The source in Python does not replace the other one.
    diskside.spark.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def frames(spark: SparkSession, url: str, directory: Path) -> tuple[DataFrame, DataFrame]:
    """The table at the server, in three parts, and as a plain file."""
    size = (directory / "t.parquet").stat().st_size
    scanned = spark.read.format("diskside").option("target", str(size // 3 + 1)).load(f"{url}/t.parquet")
    return scanned, spark.read.parquet(str(directory / "t.parquet"))


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def pushed(frame: DataFrame) -> str:
    """The scans that a plan has."""
    return "\n".join(re.findall(r"diskside scan .*", plan(frame)))


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(tuple(row)) for row in frame.collect())


FILTERS = [
    "n > 3000 and small in (1, 4, null) and flag and price < 2.5 and price >= -1",
    "small is null and word <=> 'fox' and not (n = 7)",
    "f > 0.5 and word like 'the%' and day between date'1994-02-01' and date'1995-02-03'",
    "not (f > 0.5) and word like '%b'",
    "f >= 1.5",
    "f = 0.0 and real < 12.5",
    "f <> 1.5 or flag is null",
    "at < timestamp_ntz'2020-01-01 00:50:00.5' and at >= timestamp_ntz'2020-01-01 00:49:00'",
    "zone > timestamp'1969-12-31 19:59:59' and zone <= timestamp'1970-01-02 00:00:00'",
    "price <= small and wide > 999999999999999999999.9",
    "price < n - 3000",
    "code <> 'x' and not flag",
    "word > 'a_' and word <= 'fox' and word not in ('50%')",
    f"`{NAME}` = '{TEXT}'".replace("x' or", "x\\' or").replace('\\"', '"').replace("_\\'", "_\\\\'"),
    "small = 3 or not (price > 1 and n < 100)",
    "byte < 3 and byte > -4",
    "contains(word, '%') or endswith(word, \"'s\") or startswith(word, 'a \"')",
]


def test_rows_and_filters_are_those_of_spark_on_the_plain_file(frames: tuple[DataFrame, DataFrame]) -> None:
    scanned, plain = frames
    assert scanned.dtypes == plain.dtypes
    assert rows(scanned) == rows(plain)
    unions = []
    # In one part: each filter of each part is a command.
    for frame in (scanned.sparkSession.read.format("diskside").load(_url(scanned)), plain):
        whole = None
        # One query for all filters: each costs Spark a quarter of a second.
        for at, text in enumerate(FILTERS):
            one = frame.filter(text).selectExpr(f"{at} as filter", "*")
            whole = one if whole is None else whole.unionAll(one)
        unions.append(rows(whole))
    assert unions[0] == unions[1]
    # None of them is of no row.
    assert {int(re.findall(r"\d+", row)[0]) for row in unions[0]} == set(range(len(FILTERS)))


def test_what_is_left_to_spark(frames: tuple[DataFrame, DataFrame]) -> None:
    scanned, _ = frames
    # Casts that lose digits, functions, NaN, and types that a scan does not compare.
    for text in ["upper(word) = 'FOX'", "cast(price as int) = 1", "f > double('NaN')", "bytes = x'01'", "n % 2 = 0", "n + 1 = 7"]:
        frame = scanned.filter(text)
        assert "Filter (" in plan(frame), text
    narrow = scanned.filter("n = 5").select("word")
    assert "Filter (" not in plan(narrow) and "--columns '\"word\"'" in pushed(narrow)


AGGREGATES = [
    ([], ["count(*)", "count(price)", "sum(price)", "min(price)", "max(wide)", "sum(n)", "sum(small)", "min(day)", "max(at)", "max(zone)", "min(word)"]),
    (["flag", "code"], ["count(*)", "sum(price * (1 - price))", "max(n)", "min(byte)"]),
    (["small"], ["avg(price)", "avg(byte)", "count(f)", "sum(cast(small as bigint))"]),
    (["word", "day", "price", NAME], ["count(*)"]),
]


def test_aggregates_are_those_of_spark(frames: tuple[DataFrame, DataFrame]) -> None:
    scanned, plain = frames
    for by, sums in AGGREGATES:
        for where in ["n > 100 and price is not null", "n < 0"]:
            keys, values = [f"`{name}`" for name in by], [functions.expr(text) for text in sums]
            mine, theirs = (frame.filter(where).groupBy(*keys).agg(*values) for frame in frames)
            assert mine.dtypes == theirs.dtypes
            assert rows(mine) == rows(theirs), (by, sums, where)
            # How many groups there are is guessed of the first rows.
            few = not by or (by != ["word", "day", "price", NAME] and where != "n < 0")
            assert ("--aggregate" in pushed(mine)) == few, (by, where)
    # Their order, and their order of NaN, is Spark's; distinct values are not counted at servers.
    for text in ["sum(f)", "max(f)", "count(distinct small)", "avg(n)", "sum(n + small)"]:
        left = scanned.selectExpr(text)
        assert "--aggregate" not in pushed(left) and str(left.collect()) == str(plain.selectExpr(text).collect()), text
    off = scanned.sparkSession.read.format("diskside").option("aggregates", "false").load(_url(scanned))
    assert "--aggregate" not in pushed(off.selectExpr("count(*)"))


def _url(frame: DataFrame) -> str:
    found = re.search(r"diskside://\S+?\.parquet", plan(frame))
    assert found
    return found.group()


def test_groups_that_do_not_fit_a_server_are_made_here(spark: SparkSession, url: str, directory: Path) -> None:
    """The first rows had few groups, so all were to be made at the server, which has room for fewer: the query failed."""
    schema = pa.schema([("key", pa.int64())])
    with pq.ParquetWriter(directory / "groups.parquet", schema) as writer:
        writer.write_table(pa.table({"key": [0] * 1000}, schema))
        writer.write_table(pa.table({"key": range(300_000)}, schema))
    read = spark.read.format("diskside")
    with pytest.raises(Exception, match="the aggregates do not fit"):
        read.option("place", "device").load(f"{url}/groups.parquet").groupBy("key").count().collect()
    groups = read.option("place", "auto").load(f"{url}/groups.parquet").groupBy("key").count()
    assert "--by" in pushed(groups)
    assert groups.selectExpr("count(*)", "sum(count)").collect() == [(300_000, 301_000)]


def test_groups_are_made_at_the_server_whatever_rows_come_first(spark: SparkSession, url: str, directory: Path) -> None:
    """A filter ruled out the first row group of a sorted file, in which groups were to be counted, and all rows travelled."""
    pq.write_table(pa.table({"n": range(5000), "key": [n % 7 for n in range(5000)]}), directory / "sorted.parquet", row_group_size=500)
    frame = spark.read.format("diskside").load(f"{url}/sorted.parquet")
    for where in ["n < 700", "n >= 700", "n >= 4600", "n between 2300 and 2600"]:
        groups = frame.filter(where).groupBy("key").count()
        assert "--by" in pushed(groups), where
        assert groups.selectExpr("sum(count)").collect() == [(frame.filter(where).count(),)]


def test_nested_columns_of_many_batches(spark: SparkSession, url: str, directory: Path) -> None:
    """Spark closes the columns of a batch before the next one: a struct had no members then, and the query failed."""
    found = [{"a": n, "b": [str(n)], "c": {"d": n / 2}} for n in range(150_000)]
    pq.write_table(pa.table({"n": range(150_000), "nested": found}), directory / "nested.parquet", row_group_size=70_000)
    mine, theirs = spark.read.format("diskside").load(f"{url}/nested.parquet"), spark.read.parquet(str(directory / "nested.parquet"))
    assert mine.dtypes == theirs.dtypes
    for text in ["sum(nested.a)", "max(nested.b[0])", "sum(nested.c.d)", "count(nested)"]:
        assert mine.filter("n > 10").selectExpr(text).collect() == theirs.filter("n > 10").selectExpr(text).collect(), text


def test_sums_at_the_border_are_those_of_spark(spark: SparkSession, url: str, directory: Path) -> None:
    """Spark's sums of 64 bits wrap, or fail in ANSI mode, and its decimals have 38 digits."""
    mine, theirs = spark.read.format("diskside").load(f"{url}/big.parquet"), spark.read.parquet(str(directory / "big.parquet"))
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for text in ["sum(big)", "sum(most)", "avg(big)", "sum(unsigned)", "avg(unsigned)", "max(unsigned)"]:
            answers = []
            for frame in (mine, theirs):
                try:
                    answers.append(str(frame.selectExpr(text).collect()))
                except Exception as error:
                    answers.append("overflow" if re.search("overflow|OUT_OF_RANGE|more digits", str(error)) else str(error))
            assert answers[0] == answers[1] or (text, ansi) == ("sum(most)", "false"), (text, ansi, answers)
    spark.conf.set("spark.sql.ansi.enabled", "true")


def ordered(text: str) -> list[Any]:
    sorts = []
    for one in text.split(", "):
        column = functions.col(one.split()[0])
        sorts.append(column.desc() if " desc" in one else column.asc_nulls_last() if "nulls last" in one else column.asc())
    return sorts


def test_limits_and_first_rows(frames: tuple[DataFrame, DataFrame]) -> None:
    scanned, plain = frames
    assert "--limit 5" in pushed(scanned.filter("n > 7").limit(5)) and scanned.filter("n > 7").limit(5).count() == 5
    for order, is_pushed in [
        ("price desc, n desc", True),
        ("n asc", False),
        ("f desc", False),
        ("word asc nulls last, n desc", True),
    ]:
        mine, theirs = (frame.orderBy(*ordered(order)).limit(9).select("n") for frame in (scanned, plain))
        if "f " not in order:
            assert mine.collect() == theirs.collect(), order
        assert ("--order" in pushed(mine)) == is_pushed, order
    known = scanned.filter("n >= 10").orderBy("n").limit(3)
    assert "--order" in pushed(known) and [row.n for row in known.collect()] == [10, 11, 12]


def test_a_frame_is_used_again(frames: tuple[DataFrame, DataFrame]) -> None:
    """The source in Python was read with the last filters that Spark said for a DataFrame, also where it was used without them."""
    scanned, _ = frames
    few = scanned.select("n", "small")
    assert few.filter("n < 5").unionAll(few.filter("n > 3998")).count() == 6
    assert few.count() == 4000
    assert few.alias("a").join(few.filter("n < 3").alias("b"), "n").count() == 3


def test_directories(spark: SparkSession, url: str, directory: Path) -> None:
    plain = spark.read.option("mergeSchema", "true").parquet(str(directory / "sales"))
    for target in ("1", "1MiB"):
        sales = spark.read.format("diskside").option("target", target).load(f"{url}/sales")
        assert sales.rdd.getNumPartitions() == (2 if target == "1" else 1)
        wanted = ["year", "price", "note"]
        for where in ["true", "year > 2023 and price > 2", "note is null", "note = 'c'"]:
            assert rows(sales.filter(where).select(wanted)) == rows(plain.filter(where).select(wanted)), (target, where)
        assert rows(sales.selectExpr("count(*)", "max(year)")) == ["(6, 2024)"]
        assert rows(sales.groupBy("year").count()) == rows(plain.groupBy("year").count())


def test_sizes_choose_joins(frames: tuple[DataFrame, DataFrame]) -> None:
    """A small side of a join is sent to all, as Spark does with small plain files."""
    scanned, _ = frames
    assert "BroadcastHashJoin" in plan(scanned.join(scanned.select("n", "word").withColumnRenamed("word", "w"), "n"))


def test_a_filtered_table_prunes_the_one_that_it_is_joined_with(spark: SparkSession, url: str, directory: Path) -> None:
    """All rows of the large table travelled, to be left out by the join: Spark sees no filter that a source does itself."""
    keys = [[row % 40, f"k{row % 40}", Decimal(row % 40).scaleb(-1), datetime.date(2020, 1, 1) + datetime.timedelta(row % 40)] for row in range(8000)]
    types = [pa.int32(), pa.string(), pa.decimal128(9, 1), pa.date32()]
    names = ["number", "text", "decimal", "day"]
    columns = {name: pa.array(values, kind) for name, kind, values in zip(names, types, zip(*keys))}
    pq.write_table(pa.table({**columns, "value": range(8000)}), directory / "facts.parquet", row_group_size=1000)
    few = pa.table({name: column[:40] for name, column in columns.items()}).append_column("kind", pa.array([row % 8 for row in range(40)]))
    pq.write_table(few, directory / "kinds.parquet")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "20000")
    try:
        frames = {}
        for name in ["scanned", "plain"]:
            for table in ["facts", "kinds"]:
                read = spark.read.format("diskside").load(f"{url}/{table}.parquet") if name == "scanned" else spark.read.parquet(str(directory / f"{table}.parquet"))
                read.createOrReplaceTempView(f"{name}_{table}")
        for key in names:
            query = f"select f.value, k.kind from NAME_facts f join NAME_kinds k on f.{key} = k.{key} where k.kind = 3"
            frames = {name: spark.sql(query.replace("NAME", name)) for name in ["scanned", "plain"]}
            found = rows(frames["scanned"])
            assert found == rows(frames["plain"]) and len(found) == 1000, key
            assert output_rows(frames["scanned"], f"--columns '\"{key}\",\"value\"'") == 1000, key
        (directory / "parts").mkdir()
        for part in range(4):
            pq.write_table(pq.read_table(directory / "facts.parquet").slice(2000 * part, 2000), directory / "parts" / f"{part}.parquet")
        spark.read.format("diskside").load(f"{url}/parts").createOrReplaceTempView("scanned_parts")
        parts = spark.sql("select f.value, k.kind from scanned_parts f join scanned_kinds k on f.number = k.number where k.kind = 3")
        assert rows(parts) == rows(spark.sql(query.replace("NAME", "plain"))) and output_rows(parts, "--columns '\"number\",\"value\"'") == 1000
        # Few rows do not wait for keys.
        narrow = spark.sql("select f.value from scanned_facts f join scanned_kinds k on f.number = k.number where k.kind = 3 and f.day = date '2020-01-04'")
        assert "dynamicpruning" not in plan(narrow) and narrow.count() == 200
        wide = spark.sql("select f.value from scanned_facts f join scanned_kinds k on f.number = k.number where k.kind = 3 and f.day < date '2020-01-21'")
        assert "dynamicpruning" in plan(wide) and wide.count() == 600
        # Keys whose characters have several bytes are as long as their bytes: a command failed with "Argument list too long".
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "200000")
        wide = pa.table({"key": [chr(0x4E00 + row % 3500) * 12 for row in range(7000)], "value": range(7000)})
        pq.write_table(wide, directory / "wide.parquet")
        pq.write_table(wide.slice(0, 3500), directory / "keys.parquet")
        for table in ["wide", "keys"]:
            spark.read.format("diskside").load(f"{url}/{table}.parquet").createOrReplaceTempView(table)
        assert spark.sql("select count(*) from wide join keys on wide.key = keys.key where keys.value >= 0").collect()[0][0] == 7000
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "20000")
        # A table in two places of a plan has the keys in one of them.
        twice = "select a.value from NAME_facts a join NAME_kinds k on a.number = k.number where k.kind = 3 union all select value from NAME_facts where value < 7"
        assert rows(spark.sql(twice.replace("NAME", "scanned"))) == rows(spark.sql(twice.replace("NAME", "plain")))
        # Nothing is pruned where rows without a partner are wanted, or the filter takes no row.
        for query in ["NAME_facts f left join (select * from NAME_kinds where kind = 3) k on f.number = k.number", "NAME_facts f join NAME_kinds k on f.number = k.number where k.kind = 99"]:
            counts = [spark.sql(f"select count(*) from {query.replace('NAME', name)}").collect() for name in ["scanned", "plain"]]
            assert counts[0] == counts[1], query
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def output_rows(frame: DataFrame, words: str) -> int:
    """The rows that came from the scan whose command has these words."""
    node = frame._jdf.queryExecution().executedPlan()
    waiting, found = [node], []
    while waiting:
        node = waiting.pop()
        children = node.children()
        waiting += [children.apply(at) for at in range(children.size())]
        if children.size() == 0 and words in node.toString():
            found.append(node.metrics().apply("numOutputRows").value())
    assert len(found) == 1, (words, plan(frame))
    return int(found[0])


def test_errors_name_the_file(spark: SparkSession, url: str, directory: Path) -> None:
    with pytest.raises(Exception, match="absent.parquet"):
        spark.read.format("diskside").load(f"{url}/absent.parquet")
    with pytest.raises(Exception, match="colums: no such option"):
        spark.read.format("diskside").option("colums", "n").load(f"{url}/t.parquet")
    with pytest.raises(Exception, match="cannot start /absent/diskside"):
        spark.read.format("diskside").option("command", "/absent/diskside").load(f"{url}/t.parquet")
    damaged = bytearray((directory / "t.parquet").read_bytes())
    damaged[100:4000] = bytes(3900)
    (directory / "damaged.parquet").write_bytes(damaged)
    with pytest.raises(Exception, match=r"damaged\.parquet: row group 0"):
        spark.read.format("diskside").load(f"{url}/damaged.parquet").collect()


def test_a_file_that_changes_after_planning_fails(spark: SparkSession, url: str, directory: Path) -> None:
    """Rows of two versions would be mixed: each part says which one it was planned for."""
    pq.write_table(pa.table({"a": [1, 2, 3]}), directory / "changing.parquet")
    frame = spark.read.format("diskside").load(f"{url}/changing.parquet").filter("a > 1")
    assert "a" in plan(frame)
    pq.write_table(pa.table({"a": [7, 8, 9, 10]}), directory / "changing.parquet")
    with pytest.raises(Exception, match=r"changing\.parquet changed since"):
        frame.collect()
    # The next query sees the file as it is.
    assert spark.read.format("diskside").load(f"{url}/changing.parquet").filter("a > 1").count() == 4


def test_sums_of_a_file_of_other_types_are_refused(spark: SparkSession, url: str, directory: Path) -> None:
    """Spark took the sum of decimals with three digits behind the point for one with two: ten times as much."""
    path, read = directory / "typed.parquet", spark.read.format("diskside")
    pq.write_table(pa.table({"k": [Decimal("1.50")], "n": [1]}, schema=pa.schema([("k", pa.decimal128(15, 2)), ("n", pa.int64())])), path)
    frame = read.load(f"{url}/typed.parquet")
    assert frame.agg({"k": "sum"}).collect()[0][0] == Decimal("1.50")
    pq.write_table(pa.table({"k": [Decimal("1.500")], "n": [1]}, schema=pa.schema([("k", pa.decimal128(15, 3)), ("n", pa.int64())])), path)
    for of in ({"k": "sum"}, {"k": "avg"}, {"k": "max"}):
        with pytest.raises(Exception, match=r"column `k` was DECIMAL\(15,2\) when the table was loaded, and is DECIMAL\(15,3\) now"):
            frame.agg(of).collect()
    assert read.load(f"{url}/typed.parquet").agg({"k": "sum"}).collect()[0][0] == Decimal("1.500")
    # Of the same types it is read as it is now.
    frame = read.load(f"{url}/typed.parquet")
    pq.write_table(pa.table({"k": [Decimal("2.500")], "n": [3]}, schema=pa.schema([("k", pa.decimal128(15, 3)), ("n", pa.int64())])), path)
    assert frame.agg({"k": "sum"}).collect()[0][0] == Decimal("2.500")


def children() -> list[str]:
    listed = subprocess.run(["ps", "-eo", "pid,args"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "diskside scan" in line and "t.parquet" in line]


def test_nothing_is_left_behind(frames: tuple[DataFrame, DataFrame]) -> None:
    scanned, _ = frames
    assert len(scanned.take(3)) == 3
    ended = time.monotonic() + 5
    while (left := children()) and time.monotonic() < ended:
        time.sleep(0.05)
    assert not left
