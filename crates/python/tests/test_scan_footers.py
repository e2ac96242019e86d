"""Footers of scanned files: each version of one is read once by a session, and no answer is made of two versions."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any, Iterator

import diskside
import diskside.polars
import diskside.pyarrow
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

COLUMNS = 300
ROWS = 2000


def write(path: Path, first: int = 0) -> int:
    """A table with a long footer, put in the place of what is there; gives the length of the footer."""
    numbers = pa.array(range(first, first + ROWS), pa.int64())
    table = pa.table({f"a column with a long name, number {at}": numbers for at in range(COLUMNS)} | {"n": numbers})
    new = path.with_suffix(".new")
    pq.write_table(table, new, row_group_size=100, write_page_index=True, use_dictionary=False)
    os.replace(new, path)
    # A change in the same tick of the clock would not show.
    time.sleep(0.05)
    return int.from_bytes(path.read_bytes()[-8:-4], "little")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[diskside.Session]:
    with diskside.serve(tmp_path, engines=2) as server, server.connect() as session:
        yield session


def one_row(session: diskside.Session, n: int, **options: Any) -> tuple[list[int], dict[str, Any]]:
    scan = session.scan("t.parquet", "n", where=f"n = {n}", place="host", **options)
    found = scan.arrow().column("n").to_pylist()
    assert scan.report["received_bytes"] == scan.report["read_bytes"]
    return found, scan.report


def test_a_footer_is_read_once_by_a_session(session: diskside.Session, tmp_path: Path) -> None:
    footer = write(tmp_path / "t.parquet")
    (found, first), (again, second) = one_row(session, 777), one_row(session, 777)
    assert found == again == [777]
    assert footer > 500_000 and first["read_bytes"] > footer
    assert second["read_bytes"] <= first["read_bytes"] - footer and second["read_bytes"] == second["needed_bytes"]
    other, third = one_row(session, 1234)
    assert other == [1234] and third["read_bytes"] < 10_000, "only what is special to the row group"
    assert session.cached_bytes > footer
    session.drop_cache()
    assert session.cached_bytes == 0
    assert one_row(session, 777)[1]["read_bytes"] == first["read_bytes"]


def test_a_replaced_file_has_its_own_footer(session: diskside.Session, tmp_path: Path) -> None:
    footer = write(tmp_path / "t.parquet")
    for _ in range(2):
        assert one_row(session, 777)[0] == [777]
    # As long as the other one, with its row groups in the same places.
    write(tmp_path / "t.parquet", first=ROWS)
    found, report = one_row(session, 777)
    assert found == [] and report["read_bytes"] >= footer
    found, report = one_row(session, ROWS + 777)
    assert found == [ROWS + 777] and report["read_bytes"] < 10_000
    # One of other columns, which was changed in place.
    pq.write_table(pa.table({"n": pa.array([777, 778], pa.int32())}), tmp_path / "t.parquet")
    time.sleep(0.05)
    assert one_row(session, 777)[0] == [777]


def test_a_footer_of_arrow_is_read_once_too(session: diskside.Session, tmp_path: Path) -> None:
    table = pa.table({f"column {at}": range(100) for at in range(COLUMNS)})
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as file:
        file.write_table(table)
    time.sleep(0.05)
    scan = session.scan("t.arrow", '"column 7"', where='"column 7" = 5', place="host")
    read = [(scan.arrow().num_rows, scan.report["read_bytes"], scan.report["needed_bytes"]) for _ in range(2)]
    (_, first, _), (_, second, needed) = read
    assert [rows for rows, _, _ in read] == [1, 1] and second == needed < first, read


def test_a_session_keeps_as_much_as_it_is_told(session: diskside.Session, tmp_path: Path) -> None:
    footer = write(tmp_path / "t.parquet")
    assert session.url is not None
    for footers, is_kept in [(0, False), (footer, False), ("8MiB", True)]:
        with diskside.connect(session.url, footers=footers) as other:
            one_row(other, 777)
            assert (one_row(other, 777)[1]["read_bytes"] < footer) == is_kept, footers
    with pytest.raises(diskside.UsageError, match="footers"):
        diskside.connect(session.url, footers="many")


def test_queries_of_engines_read_the_footer_once(session: diskside.Session, tmp_path: Path) -> None:
    footer = write(tmp_path / "t.parquet")
    lazy = diskside.polars.scan_parquet("t.parquet", session=session, place="host")
    dataset = diskside.pyarrow.dataset("t.parquet", session=session, place="host")
    assert lazy.filter(pl.col("n") == 5).select("n").collect().height == 1
    assert dataset.to_table(columns=["n"], filter=pa.compute.field("n") == 6).num_rows == 1
    assert session.scan(["t.parquet"], "n", where="n = 7", place="host").arrow().num_rows == 1
    read = [scan["read_bytes"] for scan in session.last_scans()]
    # The scan for the columns of a table is not among them, and may have read the footer for all.
    assert len(read) == 3 and read[0] < footer + 200_000 and max(read[1:]) < 10_000, read


def test_row_groups_are_ruled_out_by_their_dictionaries(session: diskside.Session, tmp_path: Path) -> None:
    some = random.Random(1)
    names = [f"name {some.randrange(50) * 10 + row // 5000:04}" for row in range(50_000)]
    pq.write_table(pa.table({"name": names, "row": range(50_000)}), tmp_path / "names.parquet", row_group_size=5000)
    time.sleep(0.05)
    for place in ["host", "device"]:
        scan = session.scan("names.parquet", "row", where="name = 'name 0203'", place=place)
        assert scan.arrow().column("row").to_pylist() == [row for row in range(50_000) if names[row] == "name 0203"]
        assert (scan.report["row_groups_pruned"], scan.report["row_groups_pruned_by_dictionaries"]) == (9, 9), place
    several = session.scan(["names.parquet"], "row", where="name like '%0203'")
    assert several.arrow().num_rows == names.count("name 0203")
    assert several.report["row_groups_pruned_by_dictionaries"] == 9
