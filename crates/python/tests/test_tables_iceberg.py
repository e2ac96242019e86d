"""Apache Iceberg tables, in exports and here: the answers of pyiceberg on the same tables."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any, Callable, Iterator

import diskside
import diskside.polars
import diskside.pyarrow
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IntegerType, ListType, LongType, NestedField, StringType, StructType

DAY = datetime.date(2024, 2, 29)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pyiceberg", "ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake"


@pytest.fixture
def catalog(lake: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("tests", uri=f"sqlite:///{lake.parent}/catalog.db", warehouse=f"file://{lake}")
    catalog.create_namespace("shop")
    yield catalog
    catalog.close()


@pytest.fixture
def session(lake: Path) -> Iterator[diskside.Session]:
    with diskside.serve(lake, rw=True, engines=2) as server, server.connect() as session:
        yield session


def sales(first: int, count: int = 100) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "price": pa.array([Decimal(number % 50) / 4 for number in numbers], pa.decimal128(9, 2)),
            "shop": [f"0{number % 3}" if number % 4 else None for number in numbers],
        }
    )


def made(catalog: Catalog, rows: pa.Table, *partitions: str, name: str = "sales") -> Table:
    table = catalog.create_table(f"shop.{name}", schema=rows.schema)
    with table.update_spec() as spec:
        for column in partitions:
            spec.add_identity(column)
    table.append(rows)
    return table


def scans(session: diskside.Session, table: Table, *columns: Any, **options: Any) -> list[diskside.Scan]:
    """A scan of the table as its catalog has it, and of its metadata here, at the server and from both."""
    within = table.location().rpartition("/lake/")[2]
    name = table.metadata_location.rpartition("/")[2]
    return [
        session.scan_iceberg(table, *columns, **options),
        session.scan_iceberg(f"{within}/metadata/{name}", *columns, **options),
        session.scan_iceberg(table.metadata_location, *columns, **options),
        session.scan_iceberg(table, *columns, root=within, **options),
    ]


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


def test_rows_are_those_of_the_table(catalog: SqlCatalog, session: diskside.Session) -> None:
    table = made(catalog, sales(0))
    table.append(sales(100))
    table.delete("n >= 30 and n < 40")
    table.overwrite(sales(150, 3), overwrite_filter="n >= 150")
    theirs = table.scan().to_arrow()
    assert theirs.num_rows == 143
    for scan in scans(session, table):
        assert scan.schema == scan.arrow().schema and [str(field.type) for field in scan.schema] == ["int32", "decimal128(9, 2)", "string"]
        assert ordered(scan.arrow()) == ordered(theirs)
    wanted = table.scan(row_filter="price < 1 and shop = '02'", selected_fields=("shop", "n")).to_arrow()
    for scan in scans(session, table, "shop, n", where="price < 1 and shop = '02'"):
        assert ordered(scan.arrow()) == ordered(wanted) and wanted.num_rows > 0
    sums = theirs.group_by("shop").aggregate([("n", "sum"), ([], "count_all")]).rename_columns(["shop", "n", "rows"])
    for scan in scans(session, table, by="shop", aggregate="sum(n) as n, count(*) as rows"):
        assert ordered(scan.arrow()) == ordered(sums)
    for scan in scans(session, table, "n", order="n desc", limit=2):
        assert scan.arrow().to_pydict() == {"n": [152, 151]}


def test_a_directory_of_a_table_is_not_scanned_as_files(catalog: SqlCatalog, session: diskside.Session) -> None:
    table = made(catalog, sales(0))
    table.delete("n >= 30 and n < 40")
    within = table.location().rpartition("/lake/")[2]
    with pytest.raises(diskside.UsageError, match="it is an Iceberg table, .*: scan_iceberg of the Python package reads it"):
        session.scan(within, aggregate="count(*)").arrow()
    assert session.scan(f"{within}/**/*.parquet", aggregate="count(*)").arrow().to_pydict() == {"count(*)": [190]}


def test_snapshots_have_the_columns_that_the_table_had(catalog: SqlCatalog, session: diskside.Session) -> None:
    table = made(catalog, sales(0))
    first = table.current_snapshot().snapshot_id
    table.append(sales(100))
    second = table.current_snapshot().snapshot_id
    with table.update_schema() as schema:
        schema.add_column("new", IntegerType())
        schema.add_column("list", ListType(1000, LongType()))
    for scan in scans(session, table, aggregate="sum(new) as s, count(*) as c"):
        assert scan.arrow().to_pylist() == [{"s": None, "c": 200}]
    table.overwrite(sales(0, 4).append_column("new", pa.array([1, 2, None, 4], pa.int32())), overwrite_filter="n < 100")
    assert len(list(table.scan().plan_files())) == 2
    for scan in scans(session, table):
        assert ordered(scan.arrow()) == ordered(table.scan().to_arrow()) and scan.schema.names[3:] == ["new", "list"]
    for snapshot, rows in [(first, 100), (second, 200)]:
        theirs = table.scan(snapshot_id=snapshot).to_arrow()
        for scan in scans(session, table, snapshot_id=snapshot):
            assert ordered(scan.arrow()) == ordered(theirs) and scan.arrow().num_rows == rows
            assert scan.schema.names == ["n", "price", "shop"]
    with pytest.raises(diskside.UsageError, match=f"no snapshot 7; it has {first}"):
        session.scan_iceberg(table, snapshot_id=7)


DAYS = [datetime.datetime(2020, 1, day) for day in (1, 2, 3, 4)]
MOMENTS = [datetime.datetime(2020, 1, 1, 1, 2, 3, 456), None, datetime.datetime(1960, 1, 1), *DAYS]
MONEY = [None if text is None else Decimal(text) for text in ("1.50", None, "-2.25", "0.00", "12345678.99", "7.00", "8.00")]
MORNING = datetime.datetime(2020, 1, 1, 1)
VALUES = {
    "text": pa.array(["01", "a/b =%*?[x]{y}'\"", None, "ü b:c", "2024-02-29", "null", "x\\y"]),
    "whole": pa.array([1, -2, None, 2**62, 0, 7, 8], pa.int64()),
    "small": pa.array([1, -2, None, 127, 0, 7, 8], pa.int32()),
    "day": pa.array([DAY, None, datetime.date(1960, 1, 1), DAY, DAY, DAY, datetime.date(2200, 1, 1)]),
    "yes": pa.array([True, False, None, True, True, False, False]),
    "money": pa.array(MONEY, pa.decimal128(10, 2)),
    "at": pa.array(MOMENTS, pa.timestamp("us")),
    "utc": pa.array(MOMENTS, pa.timestamp("us", "UTC")),
}
CONDITIONS = {
    "text": ("text = '01'", pc.field("text") == "01"),
    "whole": ("whole < 1", pc.field("whole") < 1),
    "small": ("small in (1, 127)", pc.field("small").isin([1, 127])),
    "day": ("day = date '2024-02-29'", pc.field("day") == DAY),
    "yes": ("not yes", ~pc.field("yes")),
    "money": ("money between 1.5 and 8", (pc.field("money") >= Decimal("1.50")) & (pc.field("money") <= Decimal("8.00"))),
    "at": ("at > timestamp '2020-01-01 01:00:00'", pc.field("at") > pa.scalar(MORNING, pa.timestamp("us"))),
    "utc": ("utc > timestamp '2020-01-01 01:00:00'", pc.field("utc") > pa.scalar(MORNING, pa.timestamp("us", "UTC"))),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("are_in_files", [True, False])
def test_values_of_partitions(catalog: SqlCatalog, session: diskside.Session, lake: Path, name: str, are_in_files: bool) -> None:
    rows = pa.table({"n": pa.array(range(7), pa.int64()), name: VALUES[name]})
    table = made(catalog, rows, name)
    if not are_in_files:
        # As tables that were Hive's have it.
        for file in lake.rglob("*.parquet"):
            pq.write_table(pq.ParquetFile(file).read().select(["n"]), file)
    where, condition = CONDITIONS[name]
    for scan in scans(session, table):
        assert scan.arrow().schema.field(name).type == VALUES[name].type
        assert ordered(scan.arrow()) == ordered(rows)
    for wanted, condition in [(where, condition), (f"{name} is null", pc.field(name).is_null())]:
        for scan in scans(session, table, where=wanted):
            kept = rows.filter(condition)
            assert ordered(scan.arrow()) == ordered(kept)
            assert scan.report["files_found"] - scan.report["files_pruned"] == len(kept.group_by(name).aggregate([]))
    groups = rows.group_by(name).aggregate([("n", "sum")]).rename_columns([name, "n"])
    for scan in scans(session, table, by=name, aggregate="sum(n) as n"):
        assert ordered(scan.arrow()) == ordered(groups) and scan.arrow().schema.field(name).type == VALUES[name].type


def test_files_of_several_specs(catalog: SqlCatalog, session: diskside.Session, lake: Path) -> None:
    table = made(catalog, sales(0, 20))
    with table.update_spec() as spec:
        spec.add_field("shop", IdentityTransform())
    table.append(sales(20, 20))
    for scan in scans(session, table, where="shop = '01'"):
        assert ordered(scan.arrow()) == ordered(table.scan("shop = '01'").to_arrow()) and scan.report["files_pruned"] == 0
    table.delete("n < 20")
    for scan in scans(session, table, where="shop = '01'"):
        assert ordered(scan.arrow()) == ordered(table.scan("shop = '01'").to_arrow()) and scan.report["files_pruned"] == 3


def test_a_table_without_rows_has_its_columns(catalog: SqlCatalog, session: diskside.Session) -> None:
    table = catalog.create_table("shop.new", schema=sales(0).schema)
    emptied = made(catalog, sales(0, 5), name="emptied")
    emptied.delete("n >= 0")
    for one in (table, emptied):
        for scan in scans(session, one):
            assert scan.arrow().num_rows == 0 and scan.arrow().schema == scan.schema and scan.schema.names == ["n", "price", "shop"]
        for scan in scans(session, one, aggregate="count(*) as c, sum(n) as s"):
            assert scan.arrow().to_pylist() == [{"c": 0, "s": None}]


def test_nested_columns(catalog: SqlCatalog, session: diskside.Session) -> None:
    rows = pa.table({"n": pa.array([1, 2], pa.int32()), "list": [[1, 2], None], "struct": [{"a": 1, "b": ["x"]}, None]})
    table = made(catalog, rows)
    for scan in scans(session, table):
        assert ordered(scan.arrow()) == ordered(rows)
    with table.update_schema() as schema:
        schema.rename_column("struct.a", "c")
    with pytest.raises(diskside.UsageError, match="column `struct` is of type struct<a"):
        session.scan_iceberg(table)


def test_engines_read_tables(catalog: SqlCatalog, session: diskside.Session) -> None:
    import polars as pl

    table = made(catalog, sales(0, 90), "shop")
    scan = session.scan_iceberg(table, root="shop/sales")
    rows = sales(0, 90)
    assert ordered(diskside.polars.scan_parquet(scan).filter(pl.col("shop") == "01").select("n").collect().to_arrow()) == ordered(
        rows.filter(pc.field("shop") == "01").select(["n"])
    )
    assert diskside.pyarrow.dataset(scan).scanner(filter=pc.field("shop").is_null()).count_rows() == 23
    query = "select shop, sum(price) as s, max(n) as m from t group by shop"
    assert ordered(diskside.sql(query, t=scan).arrow()) == ordered(diskside.sql(query, t=rows).arrow())
    assert diskside.scan_iceberg(table.metadata_location, aggregate="count(*)").arrow().column(0).to_pylist() == [90]


def test_a_directory_says_its_version(catalog: SqlCatalog, session: diskside.Session, lake: Path) -> None:
    table = made(catalog, sales(0, 5))
    for place in ("shop/sales", lake / "shop" / "sales"):
        with pytest.raises(diskside.UsageError, match="version-hint.text"):
            session.scan_iceberg(place)
    metadata = lake / "shop" / "sales" / "metadata"
    shutil.copy(metadata / table.metadata_location.rpartition("/")[2], metadata / "v7.metadata.json")
    (metadata / "version-hint.text").write_text("7\n")
    os.rename(lake / "shop" / "sales", lake / "moved %")
    for place in ("moved %25", lake / "moved %", lake / "moved %" / "metadata" / "v7.metadata.json"):
        assert ordered(session.scan_iceberg(place).arrow()) == ordered(sales(0, 5))
    with pytest.raises(FileNotFoundError):
        session.scan_iceberg(table)
    assert session.scan_iceberg(table, root="moved %25").arrow().num_rows == 5
    with pytest.raises(diskside.UsageError, match="there are no metadata"):
        session.scan_iceberg("nowhere/metadata/v1.metadata.json")


def test_a_file_that_is_not_there_is_named(catalog: SqlCatalog, session: diskside.Session, lake: Path) -> None:
    table = made(catalog, sales(0, 5))
    table.append(sales(5, 5))
    kept = session.scan_iceberg(table)
    gone = next(iter(lake.rglob("*.parquet")))
    gone.unlink()
    for begin in (kept.arrow, lambda: session.scan_iceberg(table), lambda: session.scan_iceberg(table, root="shop/sales")):
        with pytest.raises(FileNotFoundError, match=gone.name):
            begin()


def test_columns_that_are_others_in_files_are_refused(catalog: SqlCatalog, session: diskside.Session) -> None:
    def changed(name: str, change: Callable[[Any], object], *more: Callable[[Any], object]) -> Table:
        table = made(catalog, sales(0, 5), name=name)
        for one in (change, *more):
            with table.update_schema(allow_incompatible_changes=True) as schema:
                one(schema)
        return table

    refused = [
        (changed("renamed", lambda schema: schema.rename_column("shop", "store")), "`store` was renamed, and is `shop` in this file"),
        (changed("promoted", lambda schema: schema.update_column("n", LongType())), "`n` is of type int32 in this file, and of type int64"),
        (
            changed("again", lambda schema: schema.delete_column("shop"), lambda schema: schema.add_column("shop", StringType())),
            "column `shop` is another in this file",
        ),
    ]
    for table, told in refused:
        for options in ({}, {"root": f"shop/{table.name()[-1]}"}):
            with pytest.raises(diskside.UsageError, match=told):
                session.scan_iceberg(table, **options)
    dropped = changed("dropped", lambda schema: schema.delete_column("shop"))
    for scan in scans(session, dropped):
        assert ordered(scan.arrow()) == ordered(sales(0, 5).select(["n", "price"]))
    moved = changed("moved", lambda schema: schema.move_first("shop"))
    for scan in scans(session, moved):
        assert scan.schema.names == ["shop", "n", "price"] and ordered(scan.arrow()) == ordered(moved.scan().to_arrow())
    # That the history of the columns is gone changes nothing: the files say it.
    metadata = json.loads(Path(refused[0][0].metadata_location.removeprefix("file://")).read_text())
    metadata["schemas"] = metadata["schemas"][-1:]
    forgot = Path(refused[0][0].metadata_location.removeprefix("file://")).with_name("00009-x.metadata.json")
    forgot.write_text(json.dumps(metadata))
    with pytest.raises(diskside.UsageError, match="was renamed"):
        session.scan_iceberg(forgot)


def test_files_without_ids(catalog: SqlCatalog, session: diskside.Session, lake: Path) -> None:
    table = catalog.create_table("shop.added", schema=sales(0).schema)
    pq.write_table(sales(0, 5), lake / "outside.parquet")
    table.add_files([f"file://{lake}/outside.parquet"])
    # It is not below the table, which was not moved.
    assert ordered(session.scan_iceberg(table).arrow()) == ordered(sales(0, 5))
    with pytest.raises(diskside.UsageError, match="outside.parquet is neither here nor in an export"):
        session.scan_iceberg(table, root="shop/added")
    with table.update_schema() as schema:
        schema.rename_column("shop", "store")
    with pytest.raises(diskside.UsageError, match="the table has another name for its column `shop`"):
        session.scan_iceberg(table)
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(diskside.UsageError, match="its columns have no ids"):
        session.scan_iceberg(table)


class Deletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


@pytest.mark.parametrize("kind", ["position", "equality", "orc"])
def test_deletes_and_other_formats_are_refused(catalog: SqlCatalog, session: diskside.Session, kind: str) -> None:
    table = made(catalog, sales(0, 5))
    snapshot = table.current_snapshot()
    of_deletes = {"position": DataFileContent.POSITION_DELETES, "equality": DataFileContent.EQUALITY_DELETES}
    content = of_deletes.get(kind, DataFileContent.DATA)
    file = DataFile.from_args(
        content=content,
        file_path=f"{table.location()}/data/deletes.parquet",
        file_format=FileFormat.ORC if kind == "orc" else FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=100,
        equality_ids=[1] if kind == "equality" else None,
    )
    file.spec_id = 0
    at, listed = f"{table.location()}/metadata/more.avro", f"{table.location()}/metadata/list.avro"
    writer = ManifestWriterV2 if kind == "orc" else Deletes
    with writer(table.spec(), table.schema(), table.io.new_output(at), snapshot.snapshot_id, "null") as written:
        written.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot.snapshot_id, sequence_number=1, data_file=file)
        )
    manifests = list(read_manifest_list(table.io.new_input(snapshot.manifest_list)))
    with write_manifest_list(2, table.io.new_output(listed), snapshot.snapshot_id, None, 1, "null") as list_writer:
        list_writer.add_manifests([*manifests, written.to_manifest_file()])
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_text(path.read_text().replace(snapshot.manifest_list, listed))
    told = {"position": "position deletes or a deletion vector", "equality": "equality deletes", "orc": "is of format ORC"}[kind]
    for place in (path, f"shop/sales/metadata/{path.name}"):
        with pytest.raises(diskside.UsageError, match=told):
            session.scan_iceberg(place)


def test_what_is_no_table_is_said(session: diskside.Session, lake: Path) -> None:
    (lake / "x.metadata.json").write_text("{}")
    name = "x.metadata.json"
    for place, told in [("nowhere", "version-hint.text"), (name, name), (lake / name, name)]:
        with pytest.raises(diskside.UsageError, match=told):
            session.scan_iceberg(place)


def test_defaults_of_columns_are_refused() -> None:
    from diskside._iceberg_columns import check
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    file = pa.schema([pa.field("n", pa.int32(), metadata={"PARQUET:field_id": "1"})])
    for field, told in [
        (NestedField(2, "day", DateType(), initial_default=DAY), "has a value for rows that were before it"),
        (NestedField(2, "day", DateType(), required=True), "is required, and is not in this file"),
        (NestedField(2, "n", StructType()), "is another in this file"),
    ]:
        table = Schema(field)
        with pytest.raises(diskside.UsageError, match=told):
            check("f", file, table, schema_to_pyarrow(table), [], None)
