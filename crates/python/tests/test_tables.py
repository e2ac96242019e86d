"""Delta Lake tables, in exports and here: the answers of deltalake and pyarrow on the same tables."""

from __future__ import annotations

import datetime
import json
import os
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any, Callable, Iterator

import deltalake
import diskside
import diskside.polars
import diskside.pyarrow
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from diskside._scan_parts import parts

#: Gives what a table is scanned by: the directory at the server, and here.
Places = Callable[[str], list[Any]]
DAY = datetime.date(2024, 2, 29)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake"


@pytest.fixture
def session(lake: Path) -> Iterator[diskside.Session]:
    with diskside.serve(lake, rw=True, engines=2) as server, server.connect() as session:
        yield session


@pytest.fixture
def places(lake: Path, session: diskside.Session) -> Places:
    return lambda name: [name, lake / name, DeltaTable(lake / name)]


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


def sales(first: int, count: int = 100) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "price": pa.array([Decimal(number % 50) / 4 for number in numbers], pa.decimal128(9, 2)),
            "shop": [f"0{number % 3}" if number % 4 else None for number in numbers],
        }
    )


def test_rows_are_those_of_the_table(lake: Path, session: diskside.Session, places: Places) -> None:
    at = lake / "sales"
    write_deltalake(at, sales(0))
    write_deltalake(at, sales(100), mode="append")
    DeltaTable(at).delete("n % 10 = 3")
    write_deltalake(at, sales(500, 7), mode="append")
    DeltaTable(at).update({"shop": "'x'"}, predicate="n = 4")
    assert len(list(at.glob("*.parquet"))) > len(DeltaTable(at).file_uris())
    theirs = DeltaTable(at).to_pyarrow_table()
    for place in places("sales"):
        scan = session.scan_delta(place)
        assert scan.schema == scan.arrow().schema and scan.schema.names == theirs.column_names
        assert ordered(scan.arrow()) == ordered(theirs)
        some = session.scan_delta(place, "shop, n", where="price < 1 and shop = '02'").arrow()
        kept = theirs.filter((pc.field("price") < Decimal("1.00")) & (pc.field("shop") == "02"))
        assert ordered(some) == ordered(kept.select(["shop", "n"])) and kept.num_rows > 0
        sums = session.scan_delta(place, by="shop", aggregate="sum(n) as total, count(*) as rows").arrow()
        asked = duckdb.sql("select shop, sum(n)::bigint as total, count(*) as rows from theirs group by shop")
        assert ordered(sums) == ordered(asked.to_arrow_table())
        assert session.scan_delta(place, "n", limit=5).arrow().num_rows == 5
        assert session.scan_delta(place, "n", order="n desc", limit=2).arrow().column("n").to_pylist() == [506, 505]
    assert diskside.scan_delta(at).arrow().num_rows == theirs.num_rows
    batches = pa.ipc.open_stream(b"".join(session.scan_delta("sales").ipc()))
    assert ordered(batches.read_all()) == ordered(theirs)


def test_a_version_that_was_is_scanned(lake: Path, session: diskside.Session) -> None:
    at = lake / "sales"
    write_deltalake(at, sales(0))
    for first in range(100, 1300, 100):
        write_deltalake(at, sales(first), mode="append")
        if first == 700:
            DeltaTable(at).create_checkpoint()
    write_deltalake(at, sales(0, 3), mode="overwrite")
    for place in ("sales", at):
        for version, rows in [(0, 100), (3, 400), (7, 800), (9, 1000), (12, 1300), (13, 3), (None, 3)]:
            assert session.scan_delta(place, aggregate="count(*)", version=version).arrow().to_pydict() == {"count(*)": [rows]}
        with pytest.raises(diskside.UsageError, match="there is no version 14 of the table: the last one is 13"):
            session.scan_delta(place, version=14)
    assert session.scan_delta(DeltaTable(at, version=2)).arrow().num_rows == 300
    kept = session.scan_delta("sales")
    write_deltalake(at, sales(7), mode="append")
    assert kept.arrow().num_rows == 3 and session.scan_delta("sales").arrow().num_rows == 103


def test_a_directory_of_a_table_is_not_scanned_as_files(lake: Path, session: diskside.Session) -> None:
    """Rows that were deleted came back without a word."""
    write_deltalake(lake / "sales", sales(0))
    DeltaTable(lake / "sales").delete("n % 10 = 3")
    for name, source in [("", "sales"), ("", lake / "sales"), ("sales below ", lake), ("sales below ", ".")]:
        with pytest.raises(diskside.UsageError, match=f"{name}it is a Delta table, .*: scan_delta of the Python package reads it"):
            session.scan(source, aggregate="count(*)").arrow()
    # As the message says.
    assert session.scan("sales/**/*.parquet", aggregate="count(*)").arrow().to_pydict() == {"count(*)": [190]}
    assert session.scan_delta("sales").arrow().num_rows == 90


DAYS = [datetime.datetime(2020, 1, day) for day in (1, 2, 3, 4)]
MOMENTS = [datetime.datetime(2020, 1, 1, 1, 2, 3, 456), None, datetime.datetime(1960, 1, 1), *DAYS]
MONEY = [None if text is None else Decimal(text) for text in ("1.50", None, "2.25", "0.00", "12345678.99", "7.00", "8.00")]
MORNING = datetime.datetime(2020, 1, 1, 1)
VALUES = {
    "text": pa.array(["01", "a/b =%*?[x]{y}'\"", None, "ü b:c", "2024-02-29", "__HIVE", "x\\y"]),
    "whole": pa.array([1, -2, None, 2**62, 0, 7, 8], pa.int64()),
    "small": pa.array([1, -2, None, 127, 0, 7, 8], pa.int8()),
    "day": pa.array([DAY, None, datetime.date(1960, 1, 1), DAY, DAY, DAY, datetime.date(2200, 1, 1)]),
    "float": pa.array([1.5, None, -0.25, 1e20, 0.1, float("inf"), 3.0]),
    "yes": pa.array([True, False, None, True, True, False, False]),
    "money": pa.array(MONEY, pa.decimal128(10, 2)),
    "at": pa.array(MOMENTS, pa.timestamp("us")),
    "utc": pa.array(MOMENTS, pa.timestamp("us", "UTC")),
}
CONDITIONS = {
    "text": [("text = '01'", pc.field("text") == "01"), ("text like 'a/b%'", pc.starts_with(pc.field("text"), "a/b"))],
    "whole": [("whole < 1", pc.field("whole") < 1)],
    "small": [("small in (1, 127)", pc.field("small").isin([1, 127]))],
    "day": [("day = date '2024-02-29'", pc.field("day") == DAY)],
    "float": [("float >= 1.5", pc.field("float") >= 1.5)],
    "yes": [("not yes", ~pc.field("yes"))],
    "money": [("money between 1.5 and 8", (pc.field("money") >= Decimal("1.50")) & (pc.field("money") <= Decimal("8.00")))],
    "at": [("at > timestamp '2020-01-01 01:00:00'", pc.field("at") > pa.scalar(MORNING, pa.timestamp("us")))],
    "utc": [("utc > timestamp '2020-01-01 01:00:00'", pc.field("utc") > pa.scalar(MORNING, pa.timestamp("us", "UTC")))],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_partitions_are_those_of_the_log(lake: Path, session: diskside.Session, places: Places, name: str) -> None:
    rows = pa.table({"n": pa.array(range(7), pa.int64()), name: VALUES[name]})
    write_deltalake(lake / "t", rows, partition_by=[name])
    theirs = DeltaTable(lake / "t").to_pyarrow_table()
    assert ordered(theirs) == ordered(rows)
    for place in places("t"):
        found = session.scan_delta(place).arrow()
        assert found.schema.field(name).type == VALUES[name].type
        assert ordered(found) == ordered(rows)
        for where, condition in [*CONDITIONS[name], (f"{name} is null", pc.field(name).is_null())]:
            scan = session.scan_delta(place, where=where)
            wanted = rows.filter(condition)
            assert ordered(scan.arrow()) == ordered(wanted), where
            # The other files are not opened.
            assert scan.report["files_found"] - scan.report["files_pruned"] == len(wanted.group_by(name).aggregate([]))
        if name != "float":
            groups = session.scan_delta(place, by=name, aggregate="sum(n) as n").arrow()
            assert groups.schema.field(name).type == VALUES[name].type
            assert ordered(groups) == ordered(rows.group_by(name).aggregate([("n", "sum")]).rename_columns([name, "n"]))


def test_several_partition_columns_and_a_column_in_both(lake: Path, session: diskside.Session) -> None:
    rows = sales(0, 20).append_column("day", pa.array([DAY, None] * 10))
    write_deltalake(lake / "t", rows, partition_by=["day", "shop"])
    # Some write these columns into files, too; the log holds.
    for file in (lake / "t").rglob("*.parquet"):
        written = pq.read_table(file, partitioning=None)
        pq.write_table(written.append_column("shop", pa.array(["wrong"] * len(written))), file)
    for place in ("t", lake / "t"):
        assert ordered(session.scan_delta(place).arrow()) == ordered(rows.select(DeltaTable(lake / "t").schema().to_arrow().names))
        assert session.scan_delta(place, where="shop = 'wrong'").arrow().num_rows == 0
        assert session.scan_delta(place, aggregate="count(shop)").arrow().column(0).to_pylist() == [15]


def test_columns_that_files_lack_are_null(lake: Path, session: diskside.Session, places: Places) -> None:
    at = lake / "t"
    write_deltalake(at, sales(0, 5))
    more = [("new", pa.int32()), ("list", pa.list_(pa.int64())), ("bytes", pa.binary()), ("small", pa.float32())]
    DeltaTable(at).alter.add_columns([deltalake.Field.from_arrow(pa.field(*one)) for one in more])
    for place in places("t"):
        found = session.scan_delta(place).arrow()
        assert [(field.name, field.type) for field in found.schema][3:] == more
        assert all(found.column(name).null_count == 5 for name, _ in more)
        sums = session.scan_delta(place, aggregate="sum(new) as s, count(new) as c, max(small) as m").arrow()
        assert sums.to_pylist() == [{"s": None, "c": 0, "m": None}]
        assert session.scan_delta(place, where="new = 1").arrow().num_rows == 0
        groups = session.scan_delta(place, where="new is null", by="new", aggregate="count(*) as c").arrow()
        assert groups.to_pylist() == [{"new": None, "c": 5}]
    added = sales(5, 5).append_column("new", pa.array([1, 2, 3, 4, None], pa.int32()))
    write_deltalake(at, added, mode="append", schema_mode="merge")
    theirs = DeltaTable(at).to_pyarrow_table()
    for place in places("t"):
        assert ordered(session.scan_delta(place).arrow()) == ordered(theirs)
        assert session.scan_delta(place, aggregate="sum(new)").arrow().column(0).to_pylist() == [10]


def test_a_table_without_rows_has_its_columns(lake: Path, session: diskside.Session, places: Places) -> None:
    write_deltalake(lake / "t", sales(0, 5).append_column("f", pa.array([1.5] * 5, pa.float32())), partition_by=["shop"])
    DeltaTable(lake / "t").delete()
    assert DeltaTable(lake / "t").file_uris() == []
    for place in places("t"):
        scan = session.scan_delta(place)
        assert scan.arrow().num_rows == 0 and scan.arrow().schema == scan.schema
        assert [str(field.type) for field in scan.schema] == ["int64", "decimal128(9, 2)", "string", "float"]
        counted = session.scan_delta(place, where="n > 3", aggregate="count(*) as c, sum(n) as s").arrow()
        assert counted.to_pylist() == [{"c": 0, "s": None}]
        assert session.scan_delta(place, by="shop", aggregate="count(*)").arrow().num_rows == 0
        (part,) = parts(scan, 1000)
        assert part.server is None and list(part.rows(scan.schema)) == []
    DeltaTable.create(lake / "new", schema=deltalake.Schema.from_arrow(pa.schema([("a", pa.string())])))
    assert session.scan_delta("new").arrow().to_pydict() == {"a": []}


def test_engines_read_tables(lake: Path, session: diskside.Session) -> None:
    rows = sales(0, 90).append_column("small", pa.array([number % 5 for number in range(90)], pa.int8()))
    write_deltalake(lake / "t", rows, partition_by=["shop", "small"])
    scan = session.scan_delta("t")
    lazy = diskside.polars.scan_parquet(scan)
    assert lazy.collect_schema()["small"] == pl.Int8
    found = lazy.filter((pl.col("shop") == "01") & (pl.col("small") > 2)).select("n", "small").collect()
    assert ordered(found.to_arrow()) == ordered(rows.filter((pc.field("shop") == "01") & (pc.field("small") > 2)).select(["n", "small"]))
    assert lazy.select(pl.len()).collect().item() == 90
    dataset = diskside.pyarrow.dataset(scan)
    assert dataset.count_rows() == 90 and dataset.scanner(filter=ds.field("shop").is_null()).count_rows() == 23
    assert dataset.to_table(columns=["small"], filter=ds.field("shop") == "02").schema == pa.schema([("small", pa.int8())])
    assert duckdb.sql("select sum(n) from dataset where small = 3 and shop is null").fetchall()[0] == (
        sum(row["n"] for row in rows.to_pylist() if row["small"] == 3 and row["shop"] is None),
    )
    for query in [
        "select shop, small, count(*) as c, sum(price) as s, min(small) as m from t group by shop, small",
        "select n from t where small = 3 and shop like '0%'",
        "select max(small) as m, count(shop) as c from t",
    ]:
        theirs = diskside.sql(query, t=rows).arrow()
        ours = diskside.sql(query, t=scan).arrow()
        assert ours.schema == theirs.schema and ordered(ours) == ordered(theirs)
    with pytest.raises(diskside.UsageError, match="no table of rows"):
        diskside.polars.scan_parquet(session.scan_delta("t", aggregate="count(*)"))


def test_parts_and_dask_read_tables(lake: Path, session: diskside.Session) -> None:
    import dask
    import diskside.dask

    rows = sales(0, 60)
    write_deltalake(lake / "t", rows, partition_by=["shop"])
    scan = session.scan_delta("t", "shop, n", where="n >= 10")
    cut = pickle.loads(pickle.dumps(parts(scan, 1)))
    assert len(cut) == 4 and all(part.server == session.url.split("/")[2] for part in cut)
    found = pa.Table.from_batches([batch for part in cut for batch in part.rows(scan.schema)], scan.schema)
    assert ordered(found) == ordered(rows.slice(10).select(["shop", "n"]))
    with dask.config.set(scheduler="threads"):
        frame = diskside.dask.read(scan, target=1)
        assert frame.npartitions == 4 and frame["n"].sum().compute() == sum(range(10, 60))
    with pytest.raises(diskside.UsageError, match="the scan has them already"):
        diskside.dask.read(scan, where="n > 3")


def test_a_file_that_is_not_there_is_named(lake: Path, session: diskside.Session, places: Places) -> None:
    at = lake / "t"
    write_deltalake(at, sales(0, 5))
    write_deltalake(at, sales(5, 5), mode="overwrite")
    DeltaTable(at).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    first = (at / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    (gone,) = [json.loads(line)["add"]["path"] for line in first if '"add"' in line]
    assert not (at / gone).exists()
    for place in ("t", at, DeltaTable(at, version=0)):
        scan = session.scan_delta(place, version=None if isinstance(place, DeltaTable) else 0)
        with pytest.raises(FileNotFoundError, match=gone):
            scan.arrow()
    assert session.scan_delta("t").arrow().num_rows == 5


def test_what_files_alone_do_not_tell_is_refused(lake: Path, session: diskside.Session) -> None:
    def made(name: str, change: Callable[[dict[str, Any]], object]) -> str:
        """A table whose first commit is another."""
        write_deltalake(lake / name, sales(0, 5))
        log = lake / name / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            change(action)
        log.write_text("\n".join(json.dumps(action) for action in actions))
        return name

    def with_feature(*names: str, **configuration: str) -> Callable[[dict[str, Any]], object]:
        def change(action: dict[str, Any]) -> None:
            if "protocol" in action:
                features = {"readerFeatures": list(names), "writerFeatures": list(names)}
                action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
            if "metaData" in action:
                action["metaData"]["configuration"] = configuration

        return change

    def with_deleted_rows(action: dict[str, Any]) -> None:
        with_feature("deletionVectors")(action)
        if "add" in action:
            vector = {"storageType": "u", "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA", "offset": 1, "sizeInBytes": 36, "cardinality": 2}
            action["add"]["deletionVector"] = vector

    def with_other_names(action: dict[str, Any]) -> None:
        with_feature("columnMapping", **{"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"})(action)
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"], 1):
                field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            action["metaData"]["schemaString"] = json.dumps(schema)

    refused = [
        (made("vectors", with_deleted_rows), "deletion vectors"),
        (made("mapped", with_other_names), "other names in files"),
        (made("unknown", with_feature("somethingNew")), "somethingNew"),
    ]
    write_deltalake(lake / "bytes", pa.table({"n": [1], "b": [b"\xff"]}), partition_by=["b"])
    refused.append(("bytes", "partitioned by `b`, which is of type binary"))
    (lake / "none").mkdir()
    refused += [("none", "no table of Delta Lake"), ("nowhere", "no table of Delta Lake")]
    for name, told in refused:
        for place in (name, lake / name):
            with pytest.raises(diskside.UsageError, match=told):
                session.scan_delta(place).arrow()
    fine = made("fine", with_feature("deletionVectors"))
    assert session.scan_delta(fine).arrow().num_rows == session.scan_delta(lake / fine).arrow().num_rows == 5
    for options, told in [({"version": "x"}, "is no version"), ({"columns": "nothing"}, "no column `nothing`; it has n, price, shop")]:
        with pytest.raises(diskside.UsageError, match=told):
            session.scan_delta("fine", **options).schema
    with pytest.raises(diskside.UsageError, match="open at one already"):
        session.scan_delta(DeltaTable(lake / "fine"), version=0)
    with pytest.raises(diskside.UsageError, match="neither here nor in an export"):
        session.scan_delta("s3://bucket/table")


def test_files_of_another_type_are_refused(lake: Path, session: diskside.Session) -> None:
    write_deltalake(lake / "t", sales(0, 5))
    (file,) = (lake / "t").glob("*.parquet")
    pq.write_table(sales(0, 5).set_column(0, "n", pa.array(range(5), pa.int32())), file)
    for place in ("t", lake / "t"):
        with pytest.raises(diskside.UsageError, match="column `n` is of type int32 in files, and of type int64 in the table"):
            session.scan_delta(place).arrow()


def test_files_with_names_in_other_letters_are_refused(lake: Path, session: diskside.Session) -> None:
    write_deltalake(lake / "t", sales(0, 5))
    (file,) = (lake / "t").glob("*.parquet")
    pq.write_table(sales(0, 5).rename_columns(["N", "price", "shop"]), file)
    for place in ("t", lake / "t"):
        with pytest.raises(diskside.UsageError, match="column `n` of the table is called `N` in"):
            session.scan_delta(place, aggregate="sum(n)").arrow()
        assert session.scan_delta(place, aggregate="sum(price)").arrow().num_rows == 1


def test_times_in_96_bits_are_those_that_were_written(lake: Path, session: diskside.Session) -> None:
    """As Spark writes them. Read as nanoseconds of 64 bits, year 9999 was another: first that was refused."""
    times = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)]
    for name, zone in (("local", None), ("utc", "UTC")):
        rows = pa.table({"n": [1, 2], "at": pa.array(times, pa.timestamp("us", zone))})
        write_deltalake(lake / name, rows)
        (file,) = (lake / name).glob("*.parquet")
        pq.write_table(rows, file, use_deprecated_int96_timestamps=True, store_schema=False)
    for of_lake in (lambda name: name, lambda name: lake / name):
        assert session.scan_delta(of_lake("local")).arrow().column("at").to_pylist() == times
        early = {"where": "at < timestamp '2000-01-01 00:00:00'"}
        assert session.scan_delta(of_lake("local"), "n", **early).arrow().column(0).to_pylist() == [1]
        # Such a file does not say that its times are instants.
        with pytest.raises(diskside.UsageError, match=r"column `at` is of type timestamp\[us\] in files"):
            session.scan_delta(of_lake("utc")).arrow()
        assert session.scan_delta(of_lake("utc"), aggregate="sum(n)").arrow().column(0).to_pylist() == [3]


def test_times_in_nanoseconds_that_a_table_does_not_have_are_refused(lake: Path, session: diskside.Session) -> None:
    rows = pa.table({"n": [1, 2], "at": pa.array([datetime.datetime(2020, 1, 1)] * 2, pa.timestamp("us", "UTC"))})
    write_deltalake(lake / "t", rows)
    (file,) = (lake / "t").glob("*.parquet")
    pq.write_table(rows.cast(pa.schema([("n", pa.int64()), ("at", pa.timestamp("ns", "UTC"))])), file)
    for place in ("t", lake / "t"):
        with pytest.raises(diskside.UsageError, match="times of column `at` are kept in nanoseconds"):
            session.scan_delta(place).arrow()
        assert session.scan_delta(place, aggregate="sum(n)").arrow().column(0).to_pylist() == [3]


def test_a_table_is_read_where_its_files_were_taken(lake: Path, session: diskside.Session) -> None:
    write_deltalake(lake / "a b%", sales(0, 5), partition_by=["shop"])
    os.rename(lake / "a b%", lake / "c d%")
    for place in ("c d%25", lake / "c d%", DeltaTable(lake / "c d%")):
        assert session.scan_delta(place, aggregate="count(*)").arrow().column(0).to_pylist() == [5]
    moved = session.scan_delta(DeltaTable(lake / "c d%"), root="c d%25")
    assert moved.arrow().num_rows == 5 and moved.report["place"] in ("device", "host")
    assert moved.name.startswith("diskside://")
