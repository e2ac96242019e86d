"""Filters whose values are of other types than their columns: a scan gives the rows that pyarrow gives, and is told of the filter."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Callable, Iterator
from zoneinfo import ZoneInfo

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

UTC = datetime.timezone.utc
START = datetime.datetime(2020, 3, 29, 0, 30, tzinfo=UTC)
HOUR_LATER = datetime.timezone(datetime.timedelta(hours=1))


def table() -> pa.Table:
    whole = [-128, -3, 0, 3, 4, 127, None]
    natural = [0, 3, 4, 200, 255, 1, None]
    large = [0, 3, 2**63 - 1, 2**53 + 1, 4, 1, None]
    # Two hours in which Berlin's clocks go from 2 to 3.
    instants = [START + datetime.timedelta(minutes=20 * row, milliseconds=500 * (row % 2)) for row in range(6)]
    clocks = [instant.replace(tzinfo=None) for instant in instants]
    return pa.table(
        {
            "row": pa.array(range(7), pa.int64()),
            "i8": pa.array(whole, pa.int8()),
            "i16": pa.array(whole, pa.int16()),
            "i32": pa.array(whole, pa.int32()),
            "u8": pa.array(natural, pa.uint8()),
            "u16": pa.array(natural, pa.uint16()),
            "u64": pa.array(large, pa.uint64()),
            "f32": pa.array([0.1, 3.0, 4.0, float(1 << 24), -0.0, float("nan"), None], pa.float32()),
            "ms": pa.array([*clocks, None], pa.timestamp("ms")),
            "us": pa.array([*clocks, None], pa.timestamp("us")),
            "utc": pa.array([*instants, None], pa.timestamp("us", "UTC")),
            "berlin": pa.array([*instants, None], pa.timestamp("ms", "Europe/Berlin")),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pushed") / "t.parquet"
    pq.write_table(table(), path, row_group_size=3)
    return path


@pytest.fixture(scope="module")
def session(path: Path) -> Iterator[diskside.Session]:
    with diskside.serve(path.parent, engines=2) as server, server.connect() as session:
        yield session


@pytest.fixture
def conditions(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The conditions that were said to a server."""
    asked: list[str | None] = []
    begin = diskside.Scan._begin

    def spy(self: Any, **instead: Any) -> Any:
        asked.append((self._wanted | instead)["where"])
        return begin(self, **instead)

    monkeypatch.setattr(diskside.Scan, "_begin", spy)
    return asked


SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
}
WHOLE = [3, -3, 127, 128, 255, 300, -129, 1 << 40, -(1 << 40), (1 << 63) - 1, pa.scalar(3, pa.uint8()), pa.scalar(-3, pa.int16())]
CLOCKS = [
    datetime.datetime(2020, 3, 29, 1, 10),
    datetime.datetime(2020, 3, 29, 0, 50, 0, 500_000),
    # Between two moments that a column of milliseconds has.
    datetime.datetime(2020, 3, 29, 0, 50, 0, 499_999),
    pa.scalar(datetime.datetime(2020, 3, 29, 1, 10), pa.timestamp("s")),
]
INSTANTS = [
    datetime.datetime(2020, 3, 29, 1, 10, tzinfo=UTC),
    datetime.datetime(2020, 3, 29, 2, 10, tzinfo=HOUR_LATER),
    datetime.datetime(2020, 3, 29, 0, 50, 0, 499_999, tzinfo=UTC),
    pa.scalar(START, pa.timestamp("ms", "UTC")),
]
BERLIN = [pa.scalar(instant, pa.timestamp("us", "Europe/Berlin")) for instant in INSTANTS[:3]]
PUSHED = [
    *[(column, value) for column in ("i8", "i16", "i32", "u8", "u16") for value in WHOLE],
    *[("u64", value) for value in (3, 2**53 + 1, pa.scalar(3, pa.uint8()))],
    *[("f32", value) for value in (3, 1 << 24, 0.1, pa.scalar(0.1, pa.float32()))],
    *[(column, value) for column in ("ms", "us") for value in CLOCKS],
    *[("utc", INSTANTS[0]), ("utc", INSTANTS[2]), ("utc", INSTANTS[3])],
    *[("berlin", value) for value in BERLIN],
]
#: pyarrow compares them as floating-point numbers, or as times.
LEFT = [("i32", 2.5), ("us", datetime.date(2020, 3, 29))]


@pytest.mark.parametrize(("column", "value"), PUSHED + LEFT, ids=str)
@pytest.mark.parametrize("sign", SIGNS)
def test_a_value_of_another_type_is_compared_as_pyarrow_does(
    session: diskside.Session, path: Path, conditions: list[str | None], column: str, value: Any, sign: str
) -> None:
    """3 has 64 bits for pyarrow, so that no filter with it on a narrower column was said to a server; nor was one with a time zone."""
    filter = SIGNS[sign](pc.field(column), value)
    ours = diskside.pyarrow.dataset("t.parquet", session=session).to_table(columns=["row"], filter=filter)
    assert ours.equals(ds.dataset(path).to_table(columns=["row"], filter=filter))
    assert (conditions[-1] is not None) == ((column, value) in PUSHED)


AMONG = [
    ("i32", [3, 4], True),
    ("u8", [3, 255, 300], True),
    ("ms", CLOCKS[:2], True),
    ("utc", INSTANTS[:3:2], True),
    # In UTC it has three digits: it was an error of the condition.
    ("berlin", [datetime.datetime(1000, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))], False),
    # pyarrow casts it to an integer of 32 bits.
    ("i32", [2.0, 3.0], False),
    ("i32", list(range(1001)), False),
]


@pytest.mark.parametrize(("column", "values", "is_pushed"), AMONG, ids=str)
def test_a_list_is_read_as_pyarrow_reads_it(
    session: diskside.Session, path: Path, conditions: list[str | None], column: str, values: list[Any], is_pushed: bool
) -> None:
    filter = pc.field(column).isin(values)
    ours = diskside.pyarrow.dataset("t.parquet", session=session).to_table(columns=["row"], filter=filter)
    assert ours.equals(ds.dataset(path).to_table(columns=["row"], filter=filter))
    assert (conditions[-1] is not None) == is_pushed


NEGATED = [
    ~pc.field("i32").isin([3, 4]),
    ~pc.field("f32").isin(pa.array([3.0], pa.float32())),
    ~(pc.field("i32").isin([3]) & pc.field("u8").isin([3])),
    ~pc.field("i32").isin([3]) | (pc.field("i32") == 3),
    ~pc.field("i32").isin([3]) & pc.field("i32").is_null(),
]


@pytest.mark.parametrize("filter", NEGATED, ids=str)
def test_what_is_in_no_list_is_so_for_null_as_well(session: diskside.Session, path: Path, conditions: list[str | None], filter: pc.Expression) -> None:
    """For pyarrow NULL is not in a list, where SQL does not know: rows with NULL were lost."""
    ours = diskside.pyarrow.dataset("t.parquet", session=session).to_table(columns=["row"], filter=filter)
    assert ours.equals(ds.dataset(path).to_table(columns=["row"], filter=filter)) and len(ours)
    assert conditions[-1] is not None


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("values", [[0.0], [-0.0], [1.5, 0.0], [float("nan")], [float("nan"), 1.5], [1.5]], ids=str)
@pytest.mark.parametrize("is_negated", [False, True])
def test_a_list_tells_the_zeros_apart_as_pyarrow_does(
    session: diskside.Session, path: Path, conditions: list[str | None], kind: pa.DataType, values: list[float], is_negated: bool
) -> None:
    """For a scan they are equal: a list with one of them had the rows of both."""
    zeros = path.with_name(f"zeros-{kind}.parquet")
    pq.write_table(pa.table({"row": range(5), "f": pa.array([0.0, -0.0, 1.5, float("nan"), None], kind)}), zeros)
    filter = pc.field("f").isin(pa.array(values, kind))
    filter = ~filter if is_negated else filter
    ours = diskside.pyarrow.dataset(zeros.name, session=session)
    wanted = ds.dataset(zeros).to_table(columns=["row"], filter=filter)
    assert ours.to_table(columns=["row"], filter=filter).equals(wanted)
    assert (conditions[-1] is not None) == (values == [1.5])
    assert ours.scanner(filter=filter).count_rows() == len(wanted)


def test_a_dataset_refuses_what_pyarrow_refuses(session: diskside.Session, path: Path) -> None:
    """A zone that someone guessed would answer for another time, and a number that no float is for its neighbour."""
    refused = [("utc", CLOCKS[0]), ("us", INSTANTS[0]), ("berlin", INSTANTS[0]), ("f32", (1 << 24) + 1)]
    for column, value in refused:
        for dataset in (diskside.pyarrow.dataset("t.parquet", session=session), ds.dataset(path)):
            with pytest.raises(pa.ArrowException):
                dataset.to_table(filter=pc.field(column) > value)


@pytest.mark.parametrize(
    "condition",
    [
        "i32 > 3",
        "u8 in (3, 200)",
        "ms > timestamp_ms '2020-03-29 00:50:00.4'",
        "utc >= timestamptz '2020-03-29 02:10:00+01:00'",
        "berlin >= timestamptz '2020-03-29 02:10:00+01:00'",
    ],
)
def test_duckdb_says_them_too(session: diskside.Session, path: Path, conditions: list[str | None], condition: str) -> None:
    answers = []
    for t in (ds.dataset(path), diskside.pyarrow.dataset("t.parquet", session=session)):
        with duckdb.connect() as database:
            database.register("t", t)
            answers.append(database.sql(f"select row from t where {condition} order by row").fetchall())
    assert answers[0] == answers[1] and answers[0]
    assert conditions[-1] is not None


POLARS = [
    (pl.col("ms") > CLOCKS[1], True),
    (pl.col("utc") >= INSTANTS[0], True),
    (pl.col("utc").is_between(INSTANTS[2], INSTANTS[0]), True),
    (pl.col("utc").is_in(INSTANTS[:1]), True),
    # Rows with NULL were lost.
    (~pl.col("i32").is_in([3, 4], nulls_equal=True), True),
    (~pl.col("i32").is_in([3, 4]), True),
    (~pl.col("i32").is_in([3, None], nulls_equal=True), False),
    # Polars compares 32 bits with 32 bits: the row of 0.1 was lost.
    (pl.col("f32") == 0.1, True),
    (pl.col("f32") <= 0.1, True),
    (pl.col("f32") == pl.lit(0.1, pl.Float32), True),
    ((pl.col("f32") == 0.1) | (pl.col("i32") == 3), True),
    (pl.col("f32").is_between(0.1, 0.5), True),
    (pl.col("f32") < pl.lit(0.1, pl.Float64), False),
    (pl.col("f32").is_in([0.1, 4.0]), True),
]


@pytest.mark.parametrize(("predicate", "is_pushed"), POLARS, ids=str)
def test_polars_says_values_as_it_compares_them(session: diskside.Session, path: Path, conditions: list[str | None], predicate: pl.Expr, is_pushed: bool) -> None:
    scanned = diskside.polars.scan_parquet("t.parquet", session=session)
    conditions.clear()
    ours = scanned.filter(predicate).select("row").collect()
    assert ours.equals(pl.scan_parquet(path).filter(predicate).select("row").collect()) and len(ours)
    assert any(conditions) == is_pushed
