"""Files that are replaced by others of other types after an engine was told of their columns."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterator

import diskside
import diskside.pyarrow
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def session(tmp_path: Path) -> Iterator[diskside.Session]:
    with diskside.serve(tmp_path, rw=True, engines=1) as server, server.connect() as session:
        yield session


def column(values: list[Any], of: pa.DataType) -> pa.Table:
    return pa.table({"k": pa.array(values, of), "n": range(len(values))})


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (column([1, 2], pa.int64()), column(["a", "b"], pa.string())),
        (column(["a", "b"], pa.string()), column([1, 2], pa.int64())),
        (column([1, 2], pa.int64()), column([0.5, 1.5], pa.float64())),
        (column([Decimal("1.50")], pa.decimal128(15, 2)), column([Decimal("1.500")], pa.decimal128(15, 3))),
    ],
)
def test_a_dataset_of_a_replaced_file_says_so(tmp_path: Path, session: diskside.Session, was: pa.Table, becomes: pa.Table) -> None:
    """DuckDB takes the memory of columns for what it was told that they are: it gave 10 times the sum, made-up numbers, or ended by SIGSEGV."""
    path = tmp_path / "t.parquet"
    pq.write_table(was, path)
    for place in (path.name, path):
        pq.write_table(was, tmp_path / "next")
        os.replace(tmp_path / "next", path)
        dataset = diskside.pyarrow.dataset(place, session=session)
        assert duckdb.sql("select max(k) from dataset").fetchall() == [(max(was.column("k").to_pylist()),)]
        pq.write_table(becomes, tmp_path / "next")
        os.replace(tmp_path / "next", path)
        told = "the column 'k' was .* when the dataset was made, and is .* now: .*make the dataset again"
        with pytest.raises(Exception, match=told):
            duckdb.sql("select max(k) from dataset").fetchall()
        for read in (dataset.to_table, lambda: dataset.head(1), lambda: dataset.to_table(["n"], filter=pc.is_nan(pc.field("k").cast("float64", safe=False)))):
            with pytest.raises(diskside.ChangedError, match=told):
                read()
        # Of other columns nothing changed.
        assert duckdb.sql("select sum(n) from dataset").fetchall() == [(sum(was.column("n").to_pylist()),)]
        made_again = diskside.pyarrow.dataset(place, session=session)  # noqa: F841 - DuckDB finds it by its name.
        assert duckdb.sql("select max(k) from made_again").fetchall() == [(max(becomes.column("k").to_pylist()),)]
