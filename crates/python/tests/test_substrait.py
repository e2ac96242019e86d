"""Plans of Substrait over scanned tables: the answers of DataFusion and DuckDB over the plain files, and what servers do of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Callable, Iterator

import datafusion
import diskside
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion.substrait import Consumer, Plan, Serde
from test_scan import table
from test_sql import rows


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("substrait")
    pq.write_table(table(), directory / "t.parquet", row_group_size=700)
    names = pa.array(["minus", None, "zero", "one", "two"])
    pq.write_table(pa.table({"small": pa.array([-1, None, 0, 1, 2], pa.int32()), "name": names, "n": range(5)}), directory / "r.parquet")
    return directory


@pytest.fixture(scope="module")
def session(directory: Path) -> Iterator[diskside.Session]:
    with diskside.serve(directory, rw=True, engines=2) as server, server.connect() as session:
        yield session


TABLES = ("t", "r")


def plain_context(directory: Path) -> datafusion.SessionContext:
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    for name in TABLES:
        context.register_parquet(name, directory / f"{name}.parquet")
    return context


def plan_of(directory: Path, query: str) -> bytes:
    return Serde.serialize_bytes(query, plain_context(directory))


def run(session: diskside.Session, plan: bytes | str) -> tuple[pa.Table, diskside.Query]:
    query = session.substrait(plan, **{name: f"{name}.parquet" for name in TABLES})
    return query.arrow(), query


#: With what is told to servers: ``sums``, ``first`` for the first rows in an order, a condition, or None.
QUERIES = [
    ("select count(*) as c from t", "sums"),
    ("select small, count(*) as c, sum(price) as p, avg(price) as a, min(word) as w from t where n > 7 group by small", "sums"),
    (
        "select sum(price * (1 - price)) as s from t where day >= date '1994-03-01' and day < date '1995-01-01' and price > -2.5",
        "sums",
    ),
    ("select small, sum(n) as s from t group by small having sum(n) > 700000 order by s desc, small limit 3", "sums"),
    ("select distinct word, flag from t", "sums"),
    ("select n, word from t where word = 'fox' and n < 300", "(\"word\" = 'fox') and (\"n\" < 300)"),
    ("select n, price from t where small in (1, 2, 3, 4, -5) and f < 0.5", None),
    ("select n, small, price from t order by n desc limit 7", "first"),
    ("select n * 2 as y, upper(word) as w from t where n < 20", '("n" < 20)'),
    ("select n, word from t limit 4", None),
    ("select t.n, r.name from t join r on t.small = r.small where t.n < 50", '("n" < 50)'),
    ("select r.name, sum(t.price) as s from t join r on t.small = r.small where t.n < 2000 group by r.name", '("n" < 2000)'),
    ("select t.n, r.name from t left join r on t.small = r.small where t.n < 30", '("n" < 30)'),
    ("select a.n from t a join t b on a.n = b.n + 1 where a.small = 2 and b.n > 3000", None),
    ("select n from t where n < 3 union all select n from t where n > 3997", None),
    ("select case when n > 5 then 'many' else 'few' end as m, n from t where n < 10", '("n" < 10)'),
    ("select n, row_number() over (partition by small order by n) as r from t where n < 30", '("n" < 30)'),
]


def test_a_table_may_have_bytes(session: diskside.Session, directory: Path) -> None:
    """DataFusion writes them into plans as views, and refused any table with such a column."""
    pq.write_table(pa.table({"n": range(20), "b": [b"\xff\x00", None] * 10}), directory / "bytes.parquet")
    context = datafusion.SessionContext()
    context.register_parquet("t", directory / "bytes.parquet")
    for query in ("select max(n) from t where n < 9", "select n, b from t where n > 15", "select n from t where b = x'ff00'"):
        plan = Serde.serialize_bytes(query, context)
        found = session.substrait(plan, t="bytes.parquet").arrow().to_pylist()
        assert found == context.sql(query).to_arrow_table().to_pylist()


@pytest.mark.parametrize(("query", "pushed"), QUERIES, ids=[query for query, _ in QUERIES])
@pytest.mark.parametrize("form", [bytes, str])
def test_an_answer_is_that_of_the_plain_files(
    session: diskside.Session, directory: Path, query: str, pushed: str | None, form: Callable[[Any], Any]
) -> None:
    plan = plan_of(directory, query)
    answer, asked = run(session, plan if form is bytes else Serde.deserialize_bytes(plan).to_json())
    wanted = plain_context(directory).sql(query).to_arrow_table()
    assert rows(answer, query) == rows(wanted, query)
    assert answer.schema.names == wanted.schema.names
    duck = duckdb.connect()
    for name in TABLES:
        duck.execute(f"create view {name} as from '{directory / name}.parquet'")
    theirs = duck.sql(query).to_arrow_table()
    if "avg(" in query or "having" in query or "limit 4" in query:
        # A mean has other digits there, a sum of integers is a decimal, and any four rows do.
        assert answer.num_rows == theirs.num_rows
    else:
        assert rows(answer, query) == rows(theirs, query)
    is_summed = [scan._wanted["aggregate"] is not None for scan in asked.scans]
    if pushed == "sums":
        assert is_summed and all(is_summed)
    elif pushed == "first":
        assert asked.scans[-1]._wanted["order"]
    elif pushed is not None:
        assert pushed in [scan._wanted["where"] for scan in asked.scans]


KINDS = {"n": "i64", "small": "i32", "word": "string", "flag": "bool", "f": "fp64"}


def reading(columns: list[str], nullability: str = "NULLABILITY_NULLABLE", names: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """A read of ``t``, as other producers than DataFusion make it."""
    types = [{KINDS[name]: {"nullability": nullability}} for name in columns]
    schema = {"names": columns, "struct": {"types": types, "nullability": "NULLABILITY_REQUIRED"}}
    return {"read": {"common": {"direct": {}}, "baseSchema": schema, "namedTable": {"names": names or ["t"]}, **more}}


def column(at: int) -> dict[str, Any]:
    return {"selection": {"directReference": {"structField": {"field": at}}, "rootReference": {}}}


def call(anchor: int, *values: dict[str, Any]) -> dict[str, Any]:
    return {"scalarFunction": {"functionReference": anchor, "outputType": {"bool": {}}, "arguments": [{"value": one} for one in values]}}


def whole(relation: dict[str, Any], *names: str, function: str = "lt") -> str:
    extension = {"extensionFunction": {"functionAnchor": 1, "name": function}}
    root = {"root": {"input": relation, "names": names}}
    return json.dumps({"version": {"minorNumber": 60}, "extensions": [extension], "relations": [root]})


LAST_FIRST = {"select": {"structItems": [{"field": 1}, {}]}}
#: The first values of the column.
SMALL = [None, -4, -3, -2, -1, 0, 1, None, 3]
FEW = call(1, column(1), {"literal": {"i64": "9"}})


@pytest.mark.parametrize(
    ("relation", "names", "wanted"),
    [
        # Columns in another order, some of them, and such that have no NULL.
        (reading(["small", "n"], filter=FEW), ["small", "n"], [{"small": small, "n": n} for n, small in enumerate(SMALL)]),
        (reading(["small", "n"], "NULLABILITY_REQUIRED", filter=FEW), ["a", "b"], [{"a": small, "b": n} for n, small in enumerate(SMALL)]),
        # A condition of the read is of all columns of its schema, and then some leave it.
        (reading(["small", "n"], filter=FEW, projection={"select": {"structItems": [{"field": 1}]}}), ["n"], [{"n": n} for n in range(9)]),
        (
            reading(["small", "n"], filter=FEW, projection=LAST_FIRST, common={"emit": {"outputMapping": [0, 0]}}),
            ["n", "m"],
            [{"n": n, "m": n} for n in range(9)],
        ),
        ({"fetch": {"common": {"direct": {}}, "input": reading(["n"]), "count": "3"}}, ["n"], [{"n": n} for n in range(3)]),
        ({"filter": {"common": {"direct": {}}, "input": reading(["small", "n"], names=["main", "t"]), "condition": FEW}}, ["a", "n"], None),
    ],
)
def test_reads_are_done_as_they_say(
    session: diskside.Session, relation: dict[str, Any], names: list[str], wanted: list[dict[str, Any]] | None
) -> None:
    query = session.substrait(whole(relation, *names), t="t.parquet")
    answer = query.arrow()
    assert answer.schema.names == names
    assert answer.num_rows == 9 if wanted is None else answer.to_pylist() == wanted
    (scan,) = query.scans
    assert scan._wanted["limit"] == 3 or scan._wanted["where"] == '("n" < 9)'
    assert set(scan._wanted["columns"]) <= {"small", "n"}


def test_reads_of_one_table_with_other_columns(session: diskside.Session) -> None:
    both = [reading(["small", "n"], filter=FEW), reading(["n", "small"], filter=call(1, column(0), {"literal": {"i64": "2"}}))]
    cross = {"cross": {"common": {"direct": {}}, "left": both[0], "right": both[1]}}
    answer = session.substrait(whole(cross, "a", "b", "c", "d"), t="t.parquet").arrow()
    assert sorted(zip(answer["b"].to_pylist(), answer["c"].to_pylist())) == [(n, m) for n in range(9) for m in range(2)]


def test_tables_are_scans_and_tables(session: diskside.Session) -> None:
    plan = whole(reading(["small", "n"], filter=FEW), "small", "n")
    few = pa.table({"word": ["x", "y"], "n": [3, 30], "small": pa.array([1, None], pa.int32())})
    assert session.substrait(plan, t=few).arrow().to_pylist() == [{"small": 1, "n": 3}]
    assert session.substrait(plan, t=session.scan("t.parquet", where="n > 5")).arrow()["n"].to_pylist() == [6, 7, 8]
    assert session.substrait(plan, **{"t": few, "other": "absent.parquet"}).arrow().num_rows == 1


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (whole(reading(["n"], names=["absent"]), "n"), "reads absent, and no table of that name was given; .*absent="),
        (whole(reading(["n"], names=["main", "absent"]), "n"), "reads main.absent"),
        (
            whole({"read": {"baseSchema": {}, "localFiles": {"items": [{"uriFile": "/x/t.parquet"}]}}}),
            r"local files \(/x/t.parquet\); have it read a named",
        ),
        (whole({"read": {"baseSchema": {}, "icebergTable": {}}}), "a source of the kind icebergTable"),
        (whole(reading(["n", "f"], filter=call(1, column(0))), "n", "f", function="lost"), "substrait: .*lost"),
        (whole(reading(["n"]), "n").replace('"i64"', '"string"'), "substrait: .*type"),
        (
            whole(reading(["n"], projection={"select": {"structItems": [{"field": 7}]}}), "n"),
            "a column of a table that its schema does not have",
        ),
        (whole(reading(["n"], common={"emit": {"outputMapping": [-1]}}), "n"), "a column of a read that the read does not have"),
        (whole(reading(["n"]), "n").replace('["n"], "struct"', '["n", "m"], "struct"'), "names than columns"),
        (whole(reading(["n"]), "n").replace('"names": ["n"]', '"names": ["lost"]'), "t: the query reads a column 'lost'; it has n, "),
        ('{"relations": []}', "no relation"),
        (b"", "no relation"),
        ("{", "no plan"),
        ("[" * 100_000, "no plan"),
        ("{}", "no relation"),
        (b"\xff" * 40, "no plan"),
        (5, "5 is no plan"),
        (whole(reading(["f"], filter=call(1, column(0), {"literal": {"fp64": "NaN"}})), "f"), "NaN"),
    ],
)
def test_what_is_wrong_is_said(session: diskside.Session, plan: Any, message: str) -> None:
    with pytest.raises(diskside.UsageError, match=message):
        session.substrait(plan, t="t.parquet").arrow()


def test_a_deep_plan_is_refused_or_computed(session: diskside.Session) -> None:
    for depth in (5, 20, 60, 3000):
        relation = reading(["small", "n"], filter=FEW)
        for _ in range(depth):
            relation = {"filter": {"common": {"direct": {}}, "input": relation, "condition": FEW}}
        try:
            answer = session.substrait(json_of(relation), t="t.parquet").arrow()
            assert answer.num_rows == 9
        except diskside.UsageError:
            assert depth > 20


def json_of(relation: dict[str, Any]) -> str:
    # Python's own encoder gives up where the plan is deep.
    parts = []
    while "filter" in relation:
        parts.append(relation["filter"]["condition"])
        relation = relation["filter"]["input"]
    text = json.dumps(relation)
    for condition in reversed(parts):
        text = f'{{"filter": {{"common": {{"direct": {{}}}}, "condition": {json.dumps(condition)}, "input": {text}}}}}'
    return whole({"x": 0}, "small", "n").replace('{"x": 0}', text)


def mutated(plan: bytes, chance: random.Random) -> bytes:
    """A plan that is cut off, or in which some bytes are others, gone, or there twice."""
    found = bytearray(plan)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(len(found))
        match chance.randrange(12):
            case 0:
                del found[at:]
            case 1:
                found[at] = chance.randrange(256)
            case 2:
                del found[at : at + chance.randint(1, 8)]
            case 3:
                found[at:at] = found[at : at + chance.randint(1, 16)]
            case _:
                found[at] ^= 1 << chance.randrange(8)
        if not found:
            break
    return bytes(found)


def here(directory: Path) -> datafusion.SessionContext:
    """DataFusion over tables in memory: of these, it gives a plan's reads no conditions."""
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    for name in TABLES:
        context.from_arrow(pq.read_table(directory / f"{name}.parquet"), name)
    return context


def has_condition(node: Any) -> bool:
    """Whether a read has one, which DataFusion leaves out."""
    if isinstance(node, list):
        return any(has_condition(one) for one in node)
    return isinstance(node, dict) and ("filter" in (node.get("read") or {}) or any(has_condition(one) for one in node.values()))


def theirs(context: datafusion.SessionContext, plan: bytes) -> list[str] | None:
    """Rows of DataFusion; None: it refuses the plan, or cannot compute it, or does something else than it says."""
    try:
        message = Serde.deserialize_bytes(plan)
        if has_condition(json.loads(message.to_json())):
            return None
        frame = context.create_dataframe_from_logical_plan(Consumer.from_substrait_plan(context, message))
        return sorted(str(tuple(row.values())) for row in frame.to_arrow_table().to_pylist())
    except BaseException as error:
        # A panic of it is not an Exception.
        assert isinstance(error, Exception) or type(error).__name__ == "PanicException", error
        return None


def test_plans_that_are_not_whole_are_refused_or_computed(session: diskside.Session, directory: Path) -> None:
    context, chance, computed, refused = here(directory), random.Random(17), 0, 0
    for query in [query for query, _ in QUERIES if "limit 4" not in query] * 25:
        changed = mutated(Serde.serialize_bytes(query, context), chance)
        try:
            answer = run(session, changed)[0]
        except diskside.UsageError:
            refused += 1
            continue
        if (wanted := theirs(context, changed)) is not None:
            computed += 1
            assert sorted(str(tuple(row.values())) for row in answer.to_pylist()) == wanted, changed
    assert computed > 20 and refused > 100, (computed, refused)


def test_bytes_that_are_no_plan_are_refused(session: diskside.Session) -> None:
    chance = random.Random(3)
    for _ in range(500):
        with pytest.raises(diskside.UsageError):
            session.substrait(chance.randbytes(chance.randint(0, 80)), t="t.parquet").arrow()
