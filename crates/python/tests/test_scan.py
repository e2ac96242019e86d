"""Scans of Parquet files, by a session and from Polars, pyarrow and DuckDB: the answers of those on the plain file."""

from __future__ import annotations

import datetime
import itertools
import os
import shutil
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterator

import diskside
import diskside.polars
import diskside.pyarrow
import duckdb
import numpy
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

ROWS = 4000


def table(rows: int = ROWS) -> pa.Table:
    """What is hard: NULL everywhere, NaN, -0.0, numbers below zero, quotes, columns whose names are no words."""
    every = range(rows)
    words = ["fox", "the quick brown fox", "", 'a "quote"', "it's", "50%", "a_b", "\u00e9t\u00e9"]
    floats = [float("nan"), -0.0, 0.0, 1.5, -2.25, 1e300, float("inf")]
    unless = lambda row, of, value: None if row % of == 0 else value  # noqa: E731
    return pa.table(
        {
            "n": pa.array(every, pa.int64()),
            "small": pa.array([unless(row, 7, row % 11 - 5) for row in every], pa.int32()),
            "price": pa.array([unless(row, 13, Decimal(row % 2001 - 1000).scaleb(-2)) for row in every], pa.decimal128(15, 2)),
            "f": pa.array([unless(row, 17, floats[row % len(floats)]) for row in every], pa.float64()),
            "word": pa.array([unless(row, 5, words[row % len(words)]) for row in every]),
            "day": pa.array([unless(row, 19, datetime.date(1994, 1, 1) + datetime.timedelta(row % 900)) for row in every]),
            "at": pa.array([datetime.datetime(2020, 1, 1) + datetime.timedelta(seconds=row, microseconds=row) for row in every], pa.timestamp("us")),
            "flag": pa.array([unless(row, 3, row % 2 == 0) for row in every]),
            'my "own" name': pa.array([row % 4 for row in every], pa.uint8()),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scans") / "t.parquet"
    pq.write_table(table(), path, row_group_size=700)
    return path


@pytest.fixture(scope="module")
def session(path: Path) -> Iterator[diskside.Session]:
    with diskside.serve(path.parent, rw=True, engines=2) as server, server.connect() as session:
        yield session


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The scans that were begun, in order, as servers have them."""
    asked: list[dict[str, Any]] = []
    begin = diskside.Scan._begin

    def spy(self: Any, **instead: Any) -> Any:
        asked.append(self._wanted | instead)
        return begin(self, **instead)

    monkeypatch.setattr(diskside.Scan, "_begin", spy)
    return asked


@pytest.mark.parametrize("place", ["auto", "host", "device"])
def test_rows_columns_and_sums(session: diskside.Session, place: str) -> None:
    rows = session.scan("t.parquet", ["word", "n"], where="word like '%fox' and n < 100", place=place)
    wanted = [(word, n) for word, n in zip(table()["word"].to_pylist(), range(100)) if word is not None and word.endswith("fox")]
    assert [(row["word"], row["n"]) for row in rows.arrow().to_pylist()] == wanted
    assert rows.report["rows_selected"] == len(wanted)
    assert rows.report["place"] == ("device" if place == "auto" else place)
    assert rows.schema == pa.schema([("word", pa.string()), ("n", pa.int64())])

    sums = session.scan("t.parquet", by="small", aggregate={"rows": "count(*)", "total": "sum(price * 2)"}, place=place)
    wanted_sums = duckdb.from_arrow(table()).aggregate("small, count(*), sum(price * 2)").fetchall()
    assert sorted(map(tuple, (row.values() for row in sums.arrow().to_pylist())), key=str) == sorted(wanted_sums, key=str)
    assert session.scan("t.parquet", "n", limit=3, place=place).pandas()["n"].tolist() == [0, 1, 2]


def test_auto_compares_the_bytes_of_rows_with_those_of_columns(session: diskside.Session, path: Path) -> None:
    """It counted rows alone: a third of them was sent, three times as long as the columns, and all of a CSV file read for one column."""
    numbers = numpy.random.default_rng(2).integers(0, 1 << 62, 20_000)
    columns = {
        "even": [row // 64 for row in range(20_000)],  # compresses well in a file, not in rows that are sent
        "odd": [row % 3 for row in range(20_000)],
        "text": [f"{number} {int(number) * 7}" for number in numbers],
        "number": numbers,
    }
    pq.write_table(pa.table(columns), path.with_name("bytes.parquet"), use_dictionary=["odd"], column_encoding={"even": "DELTA_BINARY_PACKED"})
    path.with_name("bytes.csv").write_text("".join(["a,b,c\n", *(f"{row},{row * 17},{'x' * 50}\n" for row in range(5000))]))

    def place(*arguments: Any, **options: Any) -> str:
        scan = session.scan(*arguments, **options)
        scan.arrow()
        return str(scan.report["place"])

    assert place("bytes.parquet", ["even"], where="odd = 1") == "host"
    # Nearly all rows, but not the text that decides which.
    assert place("bytes.parquet", ["odd"], where="not text like '%0000%'") == "device"
    assert place("bytes.parquet", ["number", "text"], where="odd = 2") == "device"
    # Two thirds are shorter than the columns, and not worth the work of packing them.
    assert place("bytes.parquet", ["number", "text"], where="odd < 2") == "host"
    assert place("bytes.parquet", ["number"]) == "host"
    assert place("bytes.csv", ["a"]) == "device"


def test_auto_takes_no_samples_of_a_small_file(session: diskside.Session, path: Path) -> None:
    """No test told whether samples were taken of files whose scan takes as long as one: each such scan was three."""
    for name, rows, is_small in (("small.parquet", 20_000, True), ("not-small.parquet", 40_000, False)):
        # Eight bytes a row: 160 kB, and 320 kB, with 256 KiB between them.
        numbers = numpy.random.default_rng(3).integers(0, 1 << 62, rows)
        pq.write_table(pa.table({"n": numbers}), path.with_name(name), use_dictionary=False, compression="none")
        scan = session.scan(name, ["n"], where="n > 5")
        assert scan.arrow().num_rows == rows
        assert (scan.report["why"] == "the file is small") == is_small, scan.report
        assert scan.report["place"] == "device" or not is_small


def test_what_takes_arrow_streams_takes_a_scan(session: diskside.Session) -> None:
    scan = session.scan("t.parquet", ["n", "price"], where="n >= 3990")
    assert scan.polars().equals(pl.DataFrame(scan))
    assert pa.table(scan).equals(scan.arrow())
    with pa.ipc.open_stream(b"".join(scan.ipc())) as stream:
        assert stream.read_all().num_rows == 10
    assert repr(scan).endswith("/t.parquet, columns=['n', 'price'], where='n >= 3990'>")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "n <"}, "where: expected"),
        ({"where": "missing = 1"}, "no column `missing`"),
        ({"columns": ["missing"]}, "no column `missing`"),
        ({"aggregate": "median(n)"}, "aggregate: "),
        ({"limit": -1}, "limit: -1 is below 0"),
        ({"limit": "ten"}, "limit: 'ten' is no number of rows"),
        ({"where": 5}, "where: 5 is no condition"),
        ({"columns": 5}, "columns: 5 are not names of columns"),
        ({"order": "n sideways", "limit": 1}, "order: "),
        ({"order": "n"}, "not possible"),
        ({"order": 5, "limit": 1}, "order: 5 are not names of columns"),
        ({"input": "xml"}, "input: `xml` is none of auto, parquet, arrow, csv, jsonl"),
        ({"input": 5}, "input: 5 is no text"),
        ({"delimiter": "::"}, "delimiter: `::` is not one ASCII character"),
        ({"input": "parquet", "delimiter": ";"}, "delimiter, header: they are of CSV files alone"),
        ({"header": 1}, "header: 1 is neither True nor False"),
        ({"types": "n imaginary"}, "types: "),
        ({"types": ["n"]}, "types: .'n'. is neither text, such as 'price decimal"),
        ({"aggregate": ["count(*)"]}, "aggregate: \\['count\\(\\*\\)'\\] is neither text"),
        ({"columns": [1]}, "columns: .1. are not names"),
        ({"place": "moon"}, "place: \"moon\" is none of auto, host, device"),
        ({"columns": ["n"], "aggregate": "count(*)"}, "not possible"),
    ],
)
def test_what_is_wrong_is_said_by_its_name(session: diskside.Session, options: Any, message: str) -> None:
    with pytest.raises(diskside.UsageError, match=message):
        session.scan("t.parquet", **options).arrow()
    with pytest.raises(FileNotFoundError):
        session.scan("absent.parquet").arrow()


@pytest.mark.parametrize("place", ["host", "device"])
def test_a_text_file_is_what_is_said_of_it(session: diskside.Session, path: Path, place: str) -> None:
    path.with_name("prices.txt").write_text("fox;0010;2.50\nhen;0020;10.00\nowl;;0.25\n")
    told = {"header": False, "delimiter": ";", "place": place}
    guessed = session.scan("prices.txt", **told)
    assert guessed.schema.names == ["column0", "column1", "column2"]
    types = {"column1": "text", "column2": "decimal(15, 2)"}
    typed = session.scan("prices.txt", types=types, order="column2 desc", limit=2, **told)
    assert typed.arrow().to_pylist() == [
        {"column0": "hen", "column1": "0020", "column2": Decimal("10.00")},
        {"column0": "fox", "column1": "0010", "column2": Decimal("2.50")},
    ]
    assert "header=False" in repr(typed) and "order='column2 desc'" in repr(typed)
    # To choose a side, a server counted rows of the first row group, and was not told what the file is: "it is not a Parquet file".
    chosen = session.scan("prices.txt", where="column2 < 5.00", types=types, **told | {"place": "auto"})
    assert chosen.arrow().num_rows == 2
    path.with_name("lines").write_text('{"a": 1}\n{"a": 3}\n')
    lines = session.scan("lines", input="jsonl", order=["a desc"], limit=5, place=place)
    assert lines.arrow().to_pydict() == {"a": [3, 1]}


@pytest.mark.parametrize("place", ["host", "device"])
def test_a_file_that_changes_meanwhile_is_an_error_that_names_it(session: diskside.Session, path: Path, place: str) -> None:
    """A reader that stops at the end of the Arrow stream never heard of what was found out after it."""
    changing = path.with_name("changing.parquet")
    # Of what does not compress: more than waits anywhere on its way.
    numbers = numpy.random.default_rng(1).integers(0, 1 << 62, 6_000_000)
    pq.write_table(pa.table({"n": numbers}), changing, row_group_size=100_000, compression="none", use_dictionary=False)
    with pytest.raises(diskside.ChangedError, match="changing.parquet"):
        for at, _ in enumerate(session.scan("changing.parquet", where="n >= 0", place=place).batches()):
            if at == 0:
                with open(changing, "r+b") as file:
                    file.write(b"PAR1")


def test_a_side_without_the_program_leaves_it_to_the_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setenv("DISKSIDE_SCAN", "")
        server = diskside.serve(path.parent)
    with server, server.connect() as session:
        for options in ({"aggregate": "count(*)"}, {"where": "n < 3"}, {"limit": 1}):
            scan = session.scan("t.parquet", **options)
            assert scan.arrow().num_rows in (1, 3)
            assert (scan.report["place"], scan.report["why"]) == ("host", "the server does not scan")
        with pytest.raises(diskside.DisksideError, match="Invalid Program Index|does not scan"):
            session.scan("t.parquet", place="device").arrow()
        with monkeypatch.context() as without:
            without.setenv("DISKSIDE_SCAN", "")
            with pytest.raises(diskside.DisksideError, match="takes the program diskside-scan"):
                session.scan("t.parquet", aggregate="count(*)").arrow()
    with diskside.serve(path.parent) as server, server.connect() as session, monkeypatch.context() as without:
        without.setenv("DISKSIDE_SCAN", "")
        scan = session.scan("t.parquet")
        assert scan.arrow().num_rows == ROWS
        assert scan.report["place"] == "device", "all rows would be cheaper here, were there what decodes them"


def test_a_session_tells_of_scans_that_engines_made(path: Path) -> None:
    with diskside.serve(path.parent) as server, server.connect() as session:
        assert session.last_scans() == []
        assert diskside.polars.scan_parquet("t.parquet", session=session).filter(pl.col("n") < 5).collect().height == 5
        lineitem = diskside.pyarrow.dataset("t.parquet", session=session)
        assert duckdb.sql("select count(*) from lineitem where n < 7").fetchall() == [(7,)]
        by_polars, by_duckdb = session.last_scans()[0], session.last_scans()[-1]
        assert by_polars["name"].endswith("t.parquet") and by_polars["rows_selected"] == 5 and by_polars["received_bytes"] > 0
        assert by_duckdb["rows_selected"] == 7 and lineitem.schema.names[0] == "n"
        assert all(one["place"] in ("host", "device") for one in session.last_scans())
    # Of the default session.
    assert diskside.scan(str(path), "n", where="n = 1").arrow().num_rows == 1
    assert diskside.last_scans()[-1]["rows_selected"] == 1


def test_both_sides_scan_some_row_groups_each(path: Path, session: diskside.Session) -> None:
    """``place="both"`` gives what one side gives, and says which part each side had."""
    wanted: dict[str, Any] = {"where": "n >= 100", "by": "word", "aggregate": "count(*), sum(price), avg(n), min(day), max(word)"}
    of = {place: session.scan("t.parquet", place=place, **wanted) for place in ["device", "both"]}
    assert of["both"].arrow().equals(of["device"].arrow())
    report = of["both"].report
    assert report["place"] == "both" and report["row_groups_host"] + report["row_groups_device"] == report["row_groups"] == 6
    assert of["device"].report["row_groups_host"] is None
    first: dict[str, Any] = {"columns": "n, word, price", "order": "price desc, n", "limit": 9}
    assert session.scan("t.parquet", place="both", **first).arrow().equals(session.scan("t.parquet", place="host", **first).arrow())
    with pytest.raises(diskside.UsageError, match="rows are not divided among both sides"):
        session.scan("t.parquet", place="both").arrow()
    with pytest.raises(diskside.UsageError, match="depend on where a file is cut"):
        session.scan("t.parquet", aggregate="sum(f)", place="both").arrow()
    with pytest.raises(diskside.UsageError, match="none of auto, host, device, both"):
        session.scan("t.parquet", place="here").arrow()


@pytest.mark.parametrize("place", ["both", "device", "host"])
def test_a_file_that_is_replaced_all_the_time_is_scanned_whole_or_not_at_all(session: diskside.Session, path: Path, place: str) -> None:
    """Two parts of a file, or two readings of it, may be of two versions: their sum would be that of neither."""
    longest_s = 0.1
    rows, directory = 400_000, path.with_name(f"swapped-{place}")
    directory.mkdir()
    versions, swapped = [directory / f"version{number}.parquet" for number in range(2)], directory / "swapped.parquet"
    for number, version in enumerate(versions):
        pq.write_table(pa.table({"n": pa.array([number] * rows, pa.int64())}), version, row_group_size=20_000)
    shutil.copyfile(versions[0], swapped)
    is_over, seen, changed = threading.Event(), set(), 0

    def swap() -> None:
        # Sometimes within a scan, however fast the machine is, and sometimes after it.
        for number, share in zip(itertools.cycle([1, 0]), itertools.cycle([0.03, 0.3, 4])):
            if is_over.wait(share * longest_s):
                return
            os.link(versions[number], directory / "next.parquet")
            os.replace(directory / "next.parquet", swapped)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        until = time.monotonic() + 60
        while len(seen) < 2 or not changed:
            assert (began := time.monotonic()) < until, (seen, changed)
            try:
                sums = session.scan(f"{directory.name}/swapped.parquet", aggregate="sum(n), count(*)", place=place).arrow()
                seen.add(tuple(map(int, sums.to_pylist()[0].values())))
            except diskside.ChangedError as error:
                assert "swapped.parquet" in str(error)
                changed += 1
            longest_s = max(longest_s, time.monotonic() - began)
    finally:
        is_over.set()
        swapping.join()
    assert seen == {(0, rows), (rows, rows)}


def test_who_has_enough_ends_the_scan(session: diskside.Session, path: Path) -> None:
    scan = session.scan("t.parquet")
    begun = []
    native = scan._begin
    scan._begin = lambda: begun.append(native()) or begun[-1]  # type: ignore[method-assign]
    with scan.batches() as batches:
        batches.read_next_batch()
    assert begun[0].next() is None
    with pytest.raises(diskside.UsageError, match="closed"):
        batches.read_next_batch()
    with pytest.raises(diskside.UsageError, match="read to its end"):
        _ = scan.report


def test_engines_that_have_enough_end_their_scans(session: diskside.Session, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `limit` of an engine ends what the server does, without the file being read to its end."""
    rows = numpy.random.default_rng(2).integers(0, 1 << 62, 4_000_000)
    pq.write_table(pa.table({"n": rows}), path.with_name("long.parquet"), row_group_size=50_000, compression="none", use_dictionary=False)
    begun = []
    native = diskside._scan.Scan._begin
    monkeypatch.setattr(diskside._scan.Scan, "_begin", lambda scan, **instead: begun.append(native(scan, **instead)) or begun[-1])
    dataset = diskside.pyarrow.dataset("long.parquet", session=session, place="device")
    frame = diskside.polars.scan_parquet("long.parquet", session=session, place="device")
    with duckdb.connect() as connection:
        connection.register("long", dataset)
        assert len(connection.sql("select n from long limit 5").fetchall()) == 5
    assert dataset.head(5).num_rows == 5
    assert len(frame.head(5).collect()) == 5
    assert len(diskside.sql("select n from long limit 5", long=session.scan("long.parquet", place="device")).arrow()) == 5
    assert len(begun) >= 4
    assert all(scan.next() is None for scan in begun)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    """A pipe to which nobody wrote, also one among the files of a directory, held a scan for ever."""
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    os.mkfifo(tmp_path / "b.csv")
    with pytest.raises(diskside.UsageError, match="a pipe or another stream"):
        diskside.scan(tmp_path / "b.csv").arrow()
    assert diskside.scan(tmp_path).arrow()["n"].to_pylist() == [1, 2]
    with diskside.serve(tmp_path) as server, server.connect() as session:
        assert session.scan("").arrow()["n"].to_pylist() == [1, 2]


@pytest.mark.parametrize("is_local", [False, True])
def test_a_file_that_is_written_during_a_scan_is_not_called_damaged(tmp_path: Path, session: diskside.Session, path: Path, is_local: bool) -> None:
    """What was read of it could not be decoded, and the error spoke of that alone."""
    file = path.with_name("written.parquet")
    rows = numpy.random.default_rng(2).integers(0, 1 << 62, 4_000_000)
    pq.write_table(pa.table({"n": rows}), file, row_group_size=50_000, compression="snappy", use_dictionary=False)
    scan = diskside.scan(file) if is_local else session.scan(file.name, place="host")
    with scan.batches() as batches:
        batches.read_next_batch()
        with open(file, "r+b") as written:
            written.write(bytes(file.stat().st_size - 100_000))
        with pytest.raises(diskside.ChangedError, match="written.parquet"):
            for _ in batches:
                pass


def test_scans_that_were_closed_leave_room_for_others(path: Path) -> None:
    """Readers that were closed, and still had a name, kept their scans: these stood still at the server with all memory of their host, and
    the fourth scan did not begin."""
    rows = numpy.random.default_rng(2).integers(0, 1 << 62, 4_000_000)
    pq.write_table(pa.table({"n": rows}), path.with_name("large.parquet"), row_group_size=100_000, compression="none", use_dictionary=False)
    with diskside.serve(path.parent) as server, server.connect() as session:
        kept = []
        for _ in range(5):
            with session.scan("large.parquet", place="device").batches() as batches:
                kept.append((batches, batches.read_next_batch()))
            with diskside.sql("select n from large", large=session.scan("large.parquet", place="device")).batches() as rows_of_query:
                kept.append((rows_of_query, next(rows_of_query)))
            frame = diskside.polars.scan_parquet("large.parquet", session=session).filter(pl.col("n").map_batches(lambda n: n > 5, pl.Boolean))
            kept.append((frame, frame.head(5).collect()))
        assert session.scan("large.parquet", aggregate="count(*)", place="device").arrow().to_pylist() == [{"count(*)": 4_000_000}]
        assert all(len(first) for _, first in kept)


def test_batches_are_read_as_those_of_pyarrow(session: diskside.Session) -> None:
    scan = session.scan("t.parquet", "n", where="n < 2000")
    batches = scan.batches()
    assert batches.schema.names == ["n"] and sum(batch.num_rows for batch in batches) == 2000
    with pytest.raises(StopIteration):
        batches.read_next_batch()
    whole = scan.arrow()
    assert scan.batches().read_all() == whole and scan.batches().read_pandas().equals(whole.to_pandas())
    assert pa.table(scan.batches()) == whole and pl.DataFrame(scan.batches()).height == 2000
    stream = scan.batches()
    assert duckdb.sql("select sum(n) from stream").fetchall() == [(1999 * 1000,)]
    assert pa.RecordBatchReader.from_batches(stream.schema, iter([])).read_all().num_rows == 0


PREDICATES = [
    pl.col("n") > 3900,
    3900 < pl.col("n"),
    (pl.col("n") > 100) & (pl.col("n") <= 120) & (pl.col("small") != 3),
    pl.col("small").is_between(-2, 2, closed="left"),
    pl.col("small").is_in([1, 4, -5]),
    pl.col("small").is_in([1, None]),
    ~pl.col("small").is_in([1, 4]),
    pl.col("small").is_null() | (pl.col("n") < 5),
    pl.col("small").is_not_null(),
    pl.col("price") < Decimal("-9.99"),
    pl.col("price").is_between(Decimal("0.05"), Decimal("0.07")),
    pl.col("price") > 3,
    pl.col("price") > 2.5,
    *(compare(pl.col("f"), value) for value in (0.0, 1.5) for compare in (pl.Expr.lt, pl.Expr.le, pl.Expr.gt, pl.Expr.ge, pl.Expr.eq, pl.Expr.ne)),
    pl.col("f").is_between(-3.0, 2.0),
    pl.col("f") == float("nan"),
    pl.col("f").is_nan(),
    pl.col("word") == "it's",
    pl.col("word") != "",
    pl.col("word").is_in(["fox", "50%"]),
    pl.col("word").str.starts_with("50%"),
    pl.col("word").str.ends_with("_b"),
    pl.col("word").str.contains("quick", literal=True),
    pl.col("word").str.contains("^the"),
    pl.col("word").str.to_uppercase() == "FOX",
    pl.col("day") >= datetime.date(1995, 6, 17),
    pl.col("at") < datetime.datetime(2020, 1, 1, 0, 1, 0, 5),
    pl.col("flag"),
    ~pl.col("flag"),
    ~((pl.col("small") > 0) & pl.col("flag")),
    pl.col('my "own" name') == 2,
    pl.col("n") * 2 > 7990,
    pl.col("small").eq_missing(None),
]


@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
def test_polars_gives_what_it_gives_of_the_plain_file(session: diskside.Session, path: Path, predicate: pl.Expr) -> None:
    plain, scanned = pl.scan_parquet(path), diskside.polars.scan_parquet("t.parquet", session=session)
    for query in (
        lambda frame: frame.filter(predicate),
        lambda frame: frame.filter(predicate).select("word", "n"),
        lambda frame: frame.filter(predicate).head(5),
        lambda frame: frame.filter(predicate).select(pl.len()),
    ):
        assert query(scanned).collect().equals(query(plain).collect(), null_equal=True)


def test_what_polars_says_to_a_server(session: diskside.Session, scans: list[dict[str, Any]]) -> None:
    frame = diskside.polars.scan_parquet("t.parquet", session=session)
    scans.clear()
    frame.filter((pl.col("small") > 3) & (pl.col("word").str.to_uppercase() == "FOX")).select("n").collect()
    frame.head(7).collect()
    frame.select(pl.len()).collect()
    assert [(one["where"], one["limit"]) for one in scans] == [('("small" > 3)', None), (None, 7), (None, None)]
    assert sorted(scans[0]["columns"]) == ["n", "small", "word"]
    assert len(scans[2]["columns"]) == 1, "rows are counted by one column"


QUERIES = [
    "select n from t where n > 3900",
    "select word, n from t where small in (1, 4, -5) and price < 2.5",
    "select count(*) from t where price between 0.05 and 0.07",
    "select count(*) from t",
    "select n from t where word = 'it''s' or word is null",
    "select n from t where word like '%fox' and n < 50",
    "select n from t where day between date '1994-02-01' and date '1994-02-03' and flag",
    """select n from t where "at" > timestamp '2020-01-01 01:00:00.5'""",
    "select count(*), sum(price * small) from t where small <> 3 and small > -3",
    "select n from t where not flag and small is not null",
    "select count(*) from t where f < 1.5 and f >= -2.25",
    'select count(*) from t where "my ""own"" name" = 2',
    "select a.n from t a join t b on a.n = b.n + 1 where a.small = 2 and b.n > 3000",
]


@pytest.mark.parametrize("query", QUERIES)
def test_duckdb_gives_what_it_gives_of_the_plain_dataset(session: diskside.Session, path: Path, query: str) -> None:
    answers = []
    for t in (diskside.pyarrow.dataset("t.parquet", session=session), ds.dataset(path)):
        with duckdb.connect() as database:
            database.register("t", t)
            answers.append(sorted(database.sql(query).fetchall(), key=str))
    assert answers[0] == answers[1]


def test_what_duckdb_says_to_a_server(session: diskside.Session, scans: list[dict[str, Any]]) -> None:
    t = diskside.pyarrow.dataset("t.parquet", session=session)
    scans.clear()
    with duckdb.connect() as database:
        database.register("t", t)
        database.sql("select n from t where word in ('fox', 'it''s') and price < 2.5").fetchall()
    assert [one["where"] for one in scans] == ["""("word" in ('fox', 'it''s')) and ("price" < 2.50)"""]
    assert [one["columns"] for one in scans] == [["n"]]


FILTERS = [
    pc.field("n") > 3990,
    (pc.field("small") > 3) & ~(pc.field("word") == "fox"),
    pc.field("word").isin(["fox", 'a "quote"']),
    pc.field("small").is_null(),
    pc.field("f").is_null(nan_is_null=True),
    pc.field("flag") | (pc.field("n") < 3),
    pc.match_like(pc.field("word"), "%fox"),
    pc.match_substring(pc.field("word"), "o"),
    pc.match_substring(pc.field("word"), "0%"),
    ~pc.starts_with(pc.field("word"), 'a "q') & (pc.field("n") > 7),
    pc.ends_with(pc.field("word"), "fox") | pc.field("small").is_null(),
    pc.starts_with(pc.field("word"), "FOX", ignore_case=True),
    pc.match_substring(pc.field("word"), "back\\slash"),
    pc.field(2) == Decimal("2.50"),
    pc.field("n").isin(list(range(0, 400, 3))),
    pc.field("small").cast(pa.float64()) > 1.5,
    pc.field("n") > pc.field("small"),
    pc.field("price") < Decimal("2.5"),
    pc.field("at") <= pa.scalar(datetime.datetime(2020, 1, 1, 0, 0, 3), pa.timestamp("us")),
    pc.field('my "own" name') == 2,
]


def test_a_pipe_is_not_an_empty_table() -> None:
    """Its length is 0, so a pipe of 40,000 lines had no rows."""
    reading, writing = os.pipe()
    try:
        os.write(writing, b'{"a": 1}\n')
        os.close(writing)
        with pytest.raises(diskside.UsageError, match="it is a pipe"):
            diskside.scan(f"/dev/fd/{reading}", input="jsonl", aggregate="count(*)").arrow()
    finally:
        os.close(reading)


def test_a_filter_that_is_not_pushed_reads_the_columns_that_it_names(session: diskside.Session, path: Path, scans: list[dict[str, Any]]) -> None:
    """All columns came for a list of values that was too long to be understood: 72 MB for a table of 100 columns."""
    t = diskside.pyarrow.dataset("t.parquet", session=session)
    t.to_table(columns=["day"], filter=pc.field("n").isin(list(range(0, 4000, 3))))
    assert scans[-1]["columns"] == ["n", "day"] and scans[-1]["where"] is None
    t.count_rows(filter=pc.field("n").isin(list(range(0, 4000, 3))))
    assert scans[-1]["columns"] == ["n"]
    t.to_table(columns=["day"], filter=pc.match_substring(pc.field("word"), "50%"))
    assert scans[-1]["columns"] == ["day"] and scans[-1]["where"] == "\"word\" like '%50\\%%'"


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_a_dataset_gives_what_that_of_the_plain_file_does(session: diskside.Session, path: Path, filter: pc.Expression) -> None:
    t, plain = diskside.pyarrow.dataset("t.parquet", session=session), ds.dataset(path)
    assert t.to_table(filter=filter, columns=["n", "word"]).equals(plain.to_table(filter=filter, columns=["n", "word"]))
    assert t.count_rows(filter=filter) == plain.count_rows(filter=filter)
    # NaN equals nothing, but is shown alike.
    assert str(t.head(3, filter=filter).to_pylist()) == str(plain.head(3, filter=filter).to_pylist())
    assert t.schema.names == plain.schema.names


def test_a_dataset_does_no_method_of_arrow_over_its_empty_table(session: diskside.Session) -> None:
    """To Arrow's own code it is a table without rows, so what is not done has to say so."""
    t = diskside.pyarrow.dataset("t.parquet", session=session)
    ours, rows = set(vars(diskside.pyarrow.Dataset)), {"to_table", "to_batches", "head", "take", "count_rows"}
    others = {name for name in dir(ds.Dataset) if not name.startswith("_")} - ours - rows
    assert others == {"partition_expression", "schema"}, "a method that was not there is to be done, or refused"
    for refused in (t.get_fragments, lambda: t.filter(pc.field("n") > 1), lambda: t.sort_by("n"), lambda: t.join(t, "n")):
        with pytest.raises(diskside.UsageError, match="not done where the file is"):
            refused()
    with pytest.raises(diskside.UsageError, match="columns: no column 'x'"):
        t.to_table(columns=["x"])
    assert t.take([5, 1]).column("n").to_pylist() == [5, 1]


@pytest.mark.parametrize("asked", [{"limit": 1}, {"where": "c1 > 0"}], ids=str)
def test_what_does_not_fit_at_a_server_is_scanned_here(path: Path, session: diskside.Session, asked: dict[str, Any]) -> None:
    """The names of the columns had gone out before they turned out to be too many for the memory at the server, and a sample of rows that did
    not fit ended the scan."""
    count = 17_000
    wide = path.with_name("wide.parquet")
    pq.write_table(pa.table({f"c{column}": pa.array([1, 2], pa.int64()) for column in range(count)}), wide)
    with pytest.raises(diskside.RefusedError, match="more than the 128 MiB"):
        session.scan(wide.name, place="device", **asked).arrow()
    scan = session.scan(wide.name, **asked)
    assert scan.arrow().num_columns == count
    assert scan.report["place"] == "host" and "the server refused it" in scan.report["why"]
