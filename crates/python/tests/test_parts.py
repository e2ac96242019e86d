"""Parts of scans, which schedulers of others read: together they have the rows of the scan, each once."""

from __future__ import annotations

import pickle
from pathlib import Path

import diskside
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from diskside._scan_parts import Conjunct, ScanPart, parts


def rows(cut: list[ScanPart], schema: pa.Schema, conditions: tuple[Conjunct, ...] = ()) -> pa.Table:
    read = [batch for part in pickle.loads(pickle.dumps(cut)) for batch in part.rows(schema, conditions)]
    return pa.Table.from_batches(read, schema)


@pytest.mark.parametrize("is_local", [False, True])
def test_a_file_is_cut_between_row_groups(tmp_path: Path, is_local: bool) -> None:
    table = pa.table({"n": range(10_000), "text": [str(row) for row in range(10_000)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=900, compression="none")
    size = (tmp_path / "t.parquet").stat().st_size
    with diskside.serve(tmp_path, rw=True) as server, diskside.connect() as session:
        scan = session.scan(tmp_path / "t.parquet" if is_local else f"{server.url}/t.parquet")
        cut = parts(scan, size // 4 + 1)
        assert [part.row_groups for part in cut] == [(0, 3), (3, 3), (6, 3), (9, 3)]
        assert rows(cut, table.schema) == table
        few = rows(cut, table.schema, (Conjunct("n", '"n" < 5'), Conjunct("absent", "absent = 1")))
        assert few["n"].to_pylist() == [0, 1, 2, 3, 4]
        assert len(parts(scan, size)) == 1 and len(parts(scan, 1)) == 12
        (sums,) = parts(session.scan(scan._names, aggregate="sum(n) as total"), 1)
        assert rows([sums], pa.schema([("total", pa.int64())])).to_pylist() == [{"total": 49_995_000}]
        pq.write_table(table.slice(1), tmp_path / "t.parquet")
        if not is_local:
            with pytest.raises(diskside.ChangedError, match="make them again"):
                rows(cut, table.schema)


def test_files_are_put_together_and_have_the_columns_of_all(tmp_path: Path) -> None:
    for number in range(5):
        directory = tmp_path / "sales" / f"day={'x' if number == 4 else number}"
        directory.mkdir(parents=True)
        table = pa.table({"n": [number], "late": [number * 2]})
        pq.write_table(table if number > 2 else table.drop_columns(["late"]), directory / "part.parquet")
    with diskside.serve(tmp_path, rw=True) as server, server.connect() as session:
        scan = session.scan("sales")
        whole = scan.arrow().sort_by("n")
        for target in (1, 800, 1 << 20):
            cut = parts(scan, target)
            found = rows(cut, whole.schema)
            assert found.sort_by("n") == whole
            # One of them is no number, so they are texts, also where the part has numbers alone.
            assert found["day"].to_pylist() == ["0", "1", "2", "3", "x"]
        assert len(parts(scan, 1)) == 5 and len(parts(scan, 1 << 20)) == 1
        late = rows(parts(scan, 1), whole.schema, (Conjunct("late", "late > 6"), Conjunct("day", "day <> '3'")))
        assert [row["n"] for row in late.to_pylist()] == [0, 1, 2, 4], "what lacks a column is for others to leave out"


def test_text_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n,word\n" + "".join(f"{row},w{row}\n" for row in range(1000)))
    with diskside.serve(tmp_path) as server, server.connect() as session:
        (part,) = parts(session.scan("t.csv", types="word text"), 100)
        schema = pa.schema([("n", pa.int32()), ("word", pa.string())])
        assert rows([part], schema, (Conjunct("n", "n >= 998"),)).to_pylist() == [{"n": 998, "word": "w998"}, {"n": 999, "word": "w999"}]
        with pytest.raises(diskside.UsageError, match="row_groups: those of one file"):
            session.scan(["t.csv", "t.csv"])._other(row_groups=(0, 1)).arrow()


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_reads_what_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str) -> None:
    import dask
    import diskside.dask

    table = pa.table({"n": range(9000), "k": [row % 7 if row > 3000 else None for row in range(9000)], "text": ["x" * 50] * 9000})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1000, compression="none", use_dictionary=False)
    read = []
    monkeypatch.setattr(ScanPart, "rows", lambda part, schema, *more: read.append(schema.names) or rows_of(part, schema, *more))
    with diskside.serve(tmp_path, rw=True) as server, dask.config.set(scheduler=scheduler, num_workers=2):
        frame = diskside.dask.read(f"{server.url}/t.parquet", where="n >= 10", target="200kB")
        assert frame.npartitions == 4 and list(frame.columns) == ["n", "k", "text"]
        sums = frame.groupby("k")["n"].sum().compute()
        assert sums.to_dict() == {key: sum(row for row in range(3001, 9000) if row % 7 == key) for key in range(7)}
        if scheduler == "threads":
            assert {name for names in read for name in names} == {"n", "k"}
            pq.write_table(table, tmp_path / "t.parquet")
            with pytest.raises(diskside.ChangedError):
                frame.compute()
    with pytest.raises(diskside.UsageError, match="a DataFrame is of rows"):
        diskside.dask.read(tmp_path / "t.parquet", aggregate="sum(n)")


rows_of = ScanPart.rows
