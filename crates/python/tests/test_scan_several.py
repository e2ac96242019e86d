"""Scans of several files, by a session and from Polars, pyarrow and DuckDB: the answers of pyarrow and DuckDB on the plain files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import diskside
import diskside.polars
import diskside.pyarrow
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    """Six files of three years; every second one lacks a column, and one file is hidden."""
    root = tmp_path / "sales"
    for number in range(6):
        directory = root / f"year={2022 + number // 2}" / ("kind=a%2Fb" if number % 2 else "kind=__HIVE_DEFAULT_PARTITION__")
        directory.mkdir(parents=True)
        table = pa.table({"n": range(number * 100, number * 100 + 100), "price": [float(row % 9) for row in range(100)]})
        pq.write_table(table if number % 2 else table.drop_columns(["price"]), directory / "part.parquet")
    (root / "_SUCCESS").write_text("")
    return root


@pytest.fixture
def session(sales: Path) -> Iterator[diskside.Session]:
    with diskside.serve(sales.parent, rw=True, engines=2) as server, server.connect() as session:
        yield session


PLACES = ["host", "device", "auto"]


@pytest.mark.parametrize("place", PLACES)
def test_directories_patterns_and_lists_are_scanned(session, sales, place):
    theirs = duckdb.sql(
        f"select year, kind, count(*), sum(n), avg(price) from read_parquet('{sales}/**/*.parquet', hive_partitioning=true, "
        "union_by_name=true) where year >= 2023 group by year, kind order by 1, 2"
    ).fetchall()
    files = sorted(f"sales/{path.relative_to(sales)}".replace("%", "%25") for path in sales.rglob("*.parquet"))
    for source in ["sales", "sales/**/*.parquet", "sales/year=*", files]:
        scan = session.scan(source, where="year >= 2023", by="year, kind", aggregate="count(*), sum(n), avg(price)", place=place)
        ours = [tuple(row.values()) for row in scan.arrow().to_pylist()]
        assert sorted(ours, key=str) == sorted(theirs, key=str)
        report = scan.report
        assert (report["files_found"], report["files_pruned"]) == (6, 2)
        assert report["files_host" if place == "host" else "files_device"] == 4


def test_the_rows_are_those_of_pyarrow(session, sales):
    theirs = ds.dataset(sales, partitioning="hive", exclude_invalid_files=True)
    rows = session.scan("sales", "n, year").arrow()
    wanted = theirs.to_table(columns=["n", "year"]).sort_by("n")
    assert rows.to_pydict() == {"n": wanted["n"].to_pylist(), "year": wanted["year"].to_pylist()} or (
        rows.sort_by("n").to_pydict() == wanted.to_pydict()
    )
    assert session.scan("sales").schema.names == ["n", "price", "year", "kind"]
    assert session.scan("sales", partitions=False).schema.names == ["n", "price"]
    first = session.scan("sales", "n", limit=5)
    assert first.arrow().num_rows == 5 and first.report["files_host"] + first.report["files_device"] == 1


def test_engines_take_directories(session, sales):
    dataset = diskside.pyarrow.dataset("sales", session=session)
    assert dataset.count_rows() == 600
    assert dataset.to_table(columns=["year"], filter=ds.field("kind") == "a/b").num_rows == 300
    asked = duckdb.sql("select year, sum(n) from dataset where kind is null group by year order by year").fetchall()
    assert [(year, int(total)) for year, total in asked] == [(2022, 4950), (2023, 24950), (2024, 44950)]
    lazy = diskside.polars.scan_parquet("sales/**/*.parquet", session=session)
    found = lazy.filter((pl.col("year") == 2024) & (pl.col("n") < 450)).select("n", "kind").collect()
    assert (found.height, found["kind"].null_count()) == (50, 50)
    assert diskside.polars.scan_parquet(["sales/year=2022", "sales/year=2024"], session=session).select(pl.len()).collect().item() == 400


def test_a_file_that_is_replaced_meanwhile_is_named(session, sales):
    """All files are looked at before the first row comes: the last one is then another."""
    big = pa.table({"n": range(2_000_000), "price": [0.5] * 2_000_000})
    pq.write_table(big, sales / "year=2022" / "kind=a%2Fb" / "big.parquet", row_group_size=50_000)
    for number in range(12):
        pq.write_table(big.slice(0, 300_000), sales / "year=2023" / "kind=a%2Fb" / f"{number:02}.parquet")
    batches = session.scan("sales", place="host").batches()
    batches.read_next_batch()
    last = sales / "year=2024" / "kind=a%2Fb" / "part.parquet"
    pq.write_table(pa.table({"n": [1], "price": [1.0]}), last.with_suffix(".new"))
    os.replace(last.with_suffix(".new"), last)
    with pytest.raises(diskside.ChangedError, match="year=2024/.*part.parquet"):
        batches.read_all()


def test_hidden_files_of_an_export_are_left_out(session, sales):
    for name in ["_a.parquet", ".a.parquet"]:
        pq.write_table(pa.table({"n": [0]}), sales.parent / name)
    for source in [".", "./", "./sales", "sales/"]:
        assert session.scan(source, aggregate="count(*)").arrow().to_pydict() == {"count(*)": [600]}


def test_what_cannot_be_is_said(session, sales):
    (sales.parent / "twice" / "year=1").mkdir(parents=True)
    pq.write_table(pa.table({"year": [1]}), sales.parent / "twice" / "year=1" / "a.parquet")
    for source, options, told in [
        ([], {}, "there are no files to scan"),
        (3, {}, "is no file"),
        ("sales", {"partitions": 1}, "partitions: 1 is neither True nor False"),
        ("sales/*.csv", {}, "no file matches this pattern"),
        ("sales", {"types": "year date"}, "'2022' in its path is not of the type of `year`; say what it is, such as types='year text'"),
        ("twice", {}, "and in its path; leave columns of paths out .partitions=False. to have"),
        ("sales", {"columns": "nothing"}, "no column `nothing`; it has n, price, year, kind"),
    ]:
        with pytest.raises(diskside.UsageError, match=told.replace("*", r"\*")):
            session.scan(source, **options).arrow()


def test_remedies_are_in_words_of_python(session, sales):
    late = "a\n" + "1\n" * 200_000 + "x\n"
    texts = [("other.csv", "a;b\n1;2\n"), ("tabs.csv", "a\tb\n1\t2\n"), ("plain.txt", "a,b\n1,2\n3,4\n"), ("late.csv", late)]
    for name, text in texts:
        (sales.parent / name).write_text(text)
    for name, options, told in [
        ("other.csv", {"where": "b = 2"}, "no column `b`; it has a;b; that looks like a text with another delimiter: delimiter=';'"),
        ("tabs.csv", {"where": "b = 2"}, "another delimiter: delimiter='\\t'"),
        ("plain.txt", {}, "If it is CSV, Arrow or JSON lines, say so: input=\"csv\", input=\"arrow\" or input=\"jsonl\""),
        ("late.csv", {}, "say what it is, such as types='a text'"),
    ]:
        with pytest.raises(diskside.DisksideError) as caught:
            session.scan(name, **options).arrow()
        assert told in str(caught.value) and "--" not in str(caught.value)
    assert session.scan("other.csv", where="b = 2", delimiter=";").arrow().num_rows == 1
