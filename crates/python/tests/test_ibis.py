"""Ibis over scanned tables, by its DuckDB backend: its answers over the plain files, and the part of a query that reaches a server."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Callable, Iterator

import diskside
import diskside.pyarrow
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

ibis = pytest.importorskip("ibis")
#: Ibis calls what DuckDB has by another name since then.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ibis") / "sales.parquet"
    rows = range(3000)
    columns = {
        "n": pa.array(rows, pa.int64()),
        "price": pa.array([Decimal(row % 900) / 4 if row % 7 else None for row in rows], pa.decimal128(9, 2)),
        "shop": [f"shop {row % 5}" if row % 11 else None for row in rows],
    }
    pq.write_table(pa.table(columns), path, row_group_size=500)
    return path


@pytest.fixture(scope="module")
def session(path: Path) -> Iterator[diskside.Session]:
    with diskside.serve(path.parent, engines=2) as server, server.connect() as session:
        yield session


@pytest.fixture
def connection() -> Iterator[Any]:
    connection = ibis.duckdb.connect()
    yield connection
    connection.disconnect()


QUERIES: list[Callable[[Any], Any]] = [
    lambda t: t.filter(t.n < 700).group_by("shop").aggregate(total=ibis._.price.sum(), rows=ibis._.count()).order_by("shop"),
    lambda t: t.filter(t.shop.isin(["shop 1", "shop 3"]) & (t.price > 100)).select("n", "shop").order_by("n"),
    lambda t: t.filter(t.price.isnull()).count(),
    lambda t: t.filter(t.shop.like("%4") | (t.n == 7)).select(t.n, twice=t.price * 2).order_by(t.n.desc()).limit(20),
    lambda t: t.join(t.filter(t.n < 5).select("shop").distinct(), "shop").n.max(),
]


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_those_of_the_plain_file(session: diskside.Session, connection: Any, path: Path, query: Callable[[Any], Any]) -> None:
    connection.con.register("sales", diskside.pyarrow.dataset("sales.parquet", session=session))
    connection.con.register("plain", ds.dataset(path))
    ours, theirs = (connection.to_pyarrow(query(connection.table(name))) for name in ("sales", "plain"))
    assert ours.equals(theirs)


def test_columns_and_comparisons_reach_the_server(session: diskside.Session, connection: Any) -> None:
    connection.con.register("sales", diskside.pyarrow.dataset("sales.parquet", session=session))
    sales = connection.table("sales")
    few = sales.filter((sales.n >= 2500) & (sales.shop == "shop 2")).n.sum()
    before = len(session.last_scans())
    assert connection.to_pyarrow(few).as_py() == sum(n for n in range(2500, 3000) if n % 5 == 2 and n % 11)
    report = session.last_scans()[-1]
    assert len(session.last_scans()) > before
    assert (report["row_groups"], report["row_groups_pruned"]) == (6, 5)
    assert report["rows_selected"] == sum(n % 5 == 2 and n % 11 != 0 for n in range(2500, 3000))
