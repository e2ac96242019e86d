"""Values of files that a type does not hold as they are: what is read is what is written there, or an error says where it is."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Iterator

import diskside
import diskside.pyarrow
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def session(tmp_path: Path) -> Iterator[diskside.Session]:
    with diskside.serve(tmp_path, rw=True, engines=1) as server, server.connect() as session:
        yield session


def test_times_in_96_bits_reach_as_far_as_they_were_written(tmp_path: Path, session: diskside.Session) -> None:
    """They were read as nanoseconds of 64 bits, which wrap around before 1677 and after 2262: the year 1600 was after 2100."""
    times = [datetime.datetime(year, 1, 1) for year in (1, 1600, 2024, 2262, 2263, 9999)]
    rows = pa.table({"t": pa.array([*times, None], pa.timestamp("us")), "n": range(7)})
    for store_schema in (False, True):
        path = tmp_path / f"{store_schema}.parquet"
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True, store_schema=store_schema, row_group_size=3)
        for place in (path.name, path):
            assert session.scan(place).arrow() == rows
            assert session.scan(place, "n", where="t > timestamp '2100-01-01 00:00:00'").arrow().column(0).to_pylist() == [3, 4, 5]
            assert session.scan(place, aggregate="min(t), max(t)").arrow().to_pylist() == [{"min(t)": times[0], "max(t)": times[-1]}]
        dataset = diskside.pyarrow.dataset(path.name, session=session)  # noqa: F841 - DuckDB finds it by its name.
        query = "select n from {} where t > timestamp '2100-01-01' order by n"
        assert duckdb.sql(query.format("dataset")).fetchall() == duckdb.sql(query.format(f"'{path}'")).fetchall()


def test_whole_numbers_of_json_that_no_integer_holds_are_texts(tmp_path: Path, session: diskside.Session) -> None:
    """They were floating-point numbers, of which the first three are equal."""
    lines = ['{"id": %s, "x": 1e30}', '{"id":%s,"x":2}', '{ "id" : %s}', '{"x":12345678901234567890.5, "id": %s }']
    numbers = [2**63 + 1, 2**63, -(2**63), -(2**64)]
    (tmp_path / "big.jsonl").write_text("".join(line % number + "\n" for line, number in zip(lines, numbers)))
    for place in ("big.jsonl", tmp_path / "big.jsonl"):
        found = session.scan(place).arrow()
        assert found.column("id").to_pylist() == [str(number) for number in numbers]
        assert found.column("x").to_pylist() == [1e30, 2, None, 12345678901234567890.5]
        assert session.scan(place, "x", where="id = '9223372036854775809'").arrow().to_pydict() == {"x": [1e30]}
    (tmp_path / "small.jsonl").write_text("".join(f'{{"id":{number}}}\n' for number in (2**63 - 1, -(2**63))))
    assert session.scan("small.jsonl").arrow().column("id").to_pylist() == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("late", ["2024-01-02 13:45:00", "2024-01-02T23:45:00-05:00"])
@pytest.mark.parametrize(
    ("name", "line", "wanted"),
    [("d.csv", "{},1\n", {}), ("quoted.csv", '"{}",1\n', {}), ("typed.csv", "{},1\n", {"types": "d date"}), ("d.jsonl", '{{"d":"{}","n":1}}\n', {"types": "d date"})],
)
def test_a_time_is_no_date(tmp_path: Path, session: diskside.Session, name: str, line: str, wanted: dict[str, str], late: str) -> None:
    """Its time of day was dropped, on the day that it is in UTC: of New York's evening the next one. Far behind the lines that say what
    a column is, nothing told of it."""
    head = "d,n\n" if name.endswith(".csv") else ""
    (tmp_path / name).write_text(head + line.format("2024-01-01") * 30_000 + line.format(late))
    number = 30_001 + bool(head)
    for place in (name, tmp_path / name):
        with pytest.raises(diskside.DisksideError, match=rf"line {number}: column `d`: '{late}' is not of type date.*'d timestamp'"):
            session.scan(place, "n", where="d > date '2024-01-01'", **wanted).arrow()
    (tmp_path / name).write_text(head + line.format("2024-01-01") * 3)
    assert set(session.scan(name, types="d date").arrow().column("d").to_pylist()) == {datetime.date(2024, 1, 1)}


def test_a_file_that_was_cut_off_is_told_as_that(tmp_path: Path, session: diskside.Session) -> None:
    pq.write_table(pa.table({"n": range(1000)}), tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:-100])
    for place in ("t.parquet", tmp_path / "t.parquet"):
        with pytest.raises(diskside.IoError, match="t.parquet: it begins as a Parquet file and does not end as one: it was cut off"):
            session.scan(place).arrow()
