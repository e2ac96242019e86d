"""Functions over columns in scans: the sums and rows of pyarrow, at each place, and clear errors."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Iterator

import diskside
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HEAD = '#include "diskside.h"\nstruct args { __s64 below; };\nstruct rows { const __s64 *n; };\n'
ENTRY = "const struct rows *in, __u64 rows, const struct args *args, const struct ds_call *call) {\n"
SUMMED = f"""{HEAD}
struct out {{ __s64 total, rows; }};
SEC("columns/summed") __s64 summed(struct out *out, {ENTRY}
    for (__u64 i = 0; i < rows; i++)
        if (in->n[i] < args->below) {{ out->total += in->n[i]; out->rows++; }}
    return sizeof(*out);
}}
SEC("combine/summed") __s64 fold(struct out *acc, __u64 acc_len, __u64 cap, const struct out *part, __u64 part_len) {{
    acc->total += part->total;
    acc->rows += part->rows;
    return sizeof(*acc);
}}
"""
SELECTED = f"""{HEAD}
DS_SELECT;
SEC("columns/selected") __s64 selected(__u8 *out, {ENTRY}
    for (__u64 i = 0; i < rows; i++) out[i] = in->n[i] < args->below;
    return rows;
}}
"""
PLACES = ["auto", "host", "device"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, with the numbers from 0 to 1,999, and their negatives."""
    path = tmp_path_factory.mktemp("columns")
    for name, numbers in [("a", range(1000)), ("b", range(1000, 2000))]:
        table = pa.table({"n": pa.array(numbers, pa.int64()), "minus": pa.array([-n for n in numbers], pa.int64())})
        pq.write_table(table, path / f"{name}.parquet", row_group_size=300)
    (path / "summed.bpf.c").write_text(SUMMED)
    pq.write_table(pa.table({"n": pa.array([1, None], pa.int64())}), path / "null.pq")
    return path


@pytest.fixture(scope="module")
def session(directory: Path) -> Iterator[diskside.Session]:
    with diskside.serve(directory, engines=2) as server, server.connect() as session:
        yield session


@pytest.fixture(scope="module")
def summed() -> diskside.Function:
    return diskside.function(source=SUMMED)


@pytest.mark.parametrize("place", PLACES)
def test_a_function_with_a_result_is_folded_over_files(session: diskside.Session, summed: diskside.Function, place: str) -> None:
    wanted = {"total": sum(range(100, 1500)), "rows": 1400}
    scan = session.scan(["a.parquet", "b.parquet"], where="n >= 100", function=summed, args={"below": 1500}, place=place)
    assert scan.arrow().to_pylist() == [wanted]
    assert scan.schema.names == ["total", "rows"]
    assert scan.report["rows_selected"] == 1900


@pytest.mark.parametrize("place", PLACES)
def test_a_function_that_selects_leaves_the_rest_to_the_scan(session: diskside.Session, place: str) -> None:
    selected = diskside.function(source=SELECTED)
    rows = session.scan("*.parquet", "minus", where="n >= 997", function=selected, args={"below": 1003}, place=place)
    assert rows.arrow()["minus"].to_pylist() == [-n for n in range(997, 1003)]
    sums = session.scan("*.parquet", aggregate="count(*) as c", function=selected, args={"below": 1003}, place=place)
    assert sums.arrow().to_pylist() == [{"c": 1003}]


def test_files_and_objects_name_the_same_function(session: diskside.Session, directory: Path, summed: diskside.Function) -> None:
    (directory / "summed.bpf.o").write_bytes(summed.object)
    for one in [directory / "summed.bpf.c", directory / "summed.bpf.o", summed.object, pickle.loads(pickle.dumps(summed))]:
        local = diskside.scan(directory / "a.parquet", function=one, args={"below": 3})
        assert local.arrow().to_pylist() == [{"total": 3, "rows": 3}]
    assert summed.kind == "columns"


def test_wrong_uses_are_refused(session: diskside.Session, summed: diskside.Function) -> None:
    def refused(text: str, **options: object) -> None:
        with pytest.raises(diskside.UsageError, match=text):
            session.scan("a.parquet", **options).arrow()  # type: ignore[arg-type]

    refused("below", function=summed)
    refused("above", function=summed, args={"above": 1, "below": 1})
    refused("not a dictionary", function=summed, args=7)
    refused("give function=", args={"below": 1})
    refused("of kind read", function="stats64")
    refused("columns: it is about rows", function=summed, args={"below": 1}, columns="n")
    refused("limit: it is about rows", function=summed, args={"below": 1}, limit=1)
    with pytest.raises(diskside.UsageError, match=r"session.scan\(FILE, function=...\)"):
        session.run(summed, "a.parquet", args={"below": 1})


@pytest.mark.parametrize("place", [*PLACES, "local"])
def test_a_failure_says_what_and_where_as_in_any_function(session: diskside.Session, directory: Path, place: str) -> None:
    """Traps and errors of functions over columns were texts alone, and each was a TrapError whose ``trap`` is None."""

    def failing(body: str) -> diskside.DisksideError:
        function = diskside.function(source=f"{HEAD}DS_SELECT;\nSEC(\"columns/failing\") __s64 failing(__u8 *out, {ENTRY}{body}}}\n")
        name = "a.parquet" if place != "local" else str(directory / "a.parquet")
        # Row group 2 has the numbers from 600 to 899.
        scan = session.scan(name, where="n >= 700", function=function, args={"below": 1}, place="auto" if place == "local" else place)
        with pytest.raises(diskside.DisksideError) as caught:
            scan.arrow()
        return caught.value

    error = failing("return out[0] = in->n[rows];")
    assert isinstance(error, diskside.TrapError) and error.trap is not None
    assert (error.trap.kind, error.trap.range, error.trap.returned) == ("out_of_bounds", (2, 3), None)
    assert error.trap.offset == error.trap.bound == 200 * 8
    error = failing("out[rows] = 1; return rows;")
    assert isinstance(error, diskside.TrapError) and error.trap is not None
    assert (error.trap.region, error.trap.offset, error.trap.bound) == ("output", 200, 200)
    error = failing('return in->n[0] >= 700 ? DS_FAIL(DS_EINVAL, "no") : (__s64)rows;')
    assert isinstance(error, diskside.ReturnedError) and error.trap is not None and "no" in str(error)
    assert (error.trap.kind, error.trap.returned, error.trap.range) == (None, -22, (2, 3))
    error = failing("for (;;) *(volatile __u8 *)out += 1;")
    assert isinstance(error, diskside.BudgetError) and error.trap is not None
    assert (error.trap.kind, error.trap.region) == ("budget", None)


@pytest.mark.parametrize("place", PLACES)
def test_null_without_a_valid_member_is_an_error(session: diskside.Session, summed: diskside.Function, place: str) -> None:
    scan = session.scan("null.pq", input="parquet", function=summed, args={"below": 1}, place=place)
    with pytest.raises(diskside.DisksideError, match="n__valid"):
        scan.arrow()


# --- Written in Python -----------------------------------------------------------------------------------------------------


def fold(acc, part):  # type: ignore[no-untyped-def]
    acc.total += part.total
    acc.rows += part.rows
    acc.roots += part.roots


@pytest.fixture(scope="module")
def words(directory: Path) -> pa.Table:
    """Every kind of column that a function reads, with NULL in two; its row groups have other dictionaries."""
    every = range(1000)
    table = pa.table(
        {
            "n": pa.array(every, pa.int64()),
            "price": pa.array([Decimal(row - 300).scaleb(-2) for row in every], pa.decimal128(15, 2)),
            "root": pa.array([float(row * row) for row in every]),
            "flag": pa.array([row % 3 == 0 for row in every]),
            "word": pa.array([None if row % 5 == 0 else f"word {row % 7 + row // 300}" for row in every]),
            "text": pa.array(["" if row % 11 == 0 else f"number {row * 7919}" for row in every]),
        }
    )
    pq.write_table(table, directory / "words.pq", row_group_size=300, use_dictionary=["word"])
    return table


@pytest.mark.parametrize("place", PLACES)
def test_a_function_in_python_folds_columns(session: diskside.Session, words: pa.Table, place: str) -> None:
    @diskside.function(
        columns={"n": "i8", "price": "decimal(2)", "root": "f8", "flag": "u1"},
        result={"total": "decimal(2)", "rows": "u8", "roots": "f8"},
        combine=fold,
        args={"below": ("i8", 500)},
    )
    def summed(out, columns, args):  # type: ignore[no-untyped-def]
        for row in range(columns.n.size):
            if columns.flag[row] and columns.n[row] < args.below:
                out.total += columns.price[row]
                out.rows += 1
                out.roots += math.sqrt(columns.root[row])

    assert summed.help == (
        "summed: results are folded\nreads n, price, root, flag\ntakes below, a number (i64) [500]\ngives total: i8, rows: u8, roots: f8"
    )
    for below in (500, 900):
        wanted = [row for row in range(below) if row % 3 == 0]
        scan = session.scan("words.pq", input="parquet", function=summed, args={"below": below}, place=place)
        total = sum((Decimal(row - 300).scaleb(-2) for row in wanted), Decimal())
        assert scan.arrow().to_pylist() == [{"total": total, "rows": len(wanted), "roots": float(sum(wanted))}]


@pytest.mark.parametrize("place", PLACES)
def test_a_function_in_python_selects_by_texts(session: diskside.Session, words: pa.Table, place: str) -> None:
    @diskside.function(columns={"word": "dictionary", "word__valid": "u1", "text": "text"}, select=True)
    def chosen(out, columns):  # type: ignore[no-untyped-def]
        words, text = columns.word.values, columns.text
        for row in range(out.size):
            code = columns.word.codes[row]
            ends_with_3 = columns.word__valid[row] and code < columns.word.count and words.bytes[words.offsets[code + 1] - 1] == ord("3")
            first, end = text.offsets[row], text.offsets[row + 1]
            out[row] = ends_with_3 and end > first and text.bytes[end - 1] == ord("9")

    assert chosen.help == "chosen: selects rows\nreads word, text\ngives the rows that it selects"
    rows = words.to_pylist()
    wanted = [row["n"] for row in rows if (row["word"] or "").endswith("3") and row["text"].endswith("9")]
    assert wanted
    scan = session.scan("words.pq", "n", input="parquet", function=chosen, place=place)
    assert scan.arrow()["n"].to_pylist() == wanted
    filtered = session.scan("words.pq", where="n >= 400", aggregate="count(*) as c", input="parquet", function=chosen, place=place)
    assert filtered.arrow().to_pylist() == [{"c": sum(n >= 400 for n in wanted)}]


def test_rows_of_a_function_in_python_stand_one_after_another(session: diskside.Session, words: pa.Table) -> None:
    @diskside.function(columns={"n": "i8"}, result={"n": "i8", "square": "i8"}, combine="concatenate")
    def squares(out, columns):  # type: ignore[no-untyped-def]
        rows = 0
        for n in columns.n:
            if n % 100 == 7:
                out[rows].n = n
                out[rows].square = n * n
                rows += 1
        return rows

    wanted = [{"n": n, "square": n * n} for n in range(7, 1000, 100)]
    assert session.scan("words.pq", input="parquet", function=squares).arrow().to_pylist() == wanted

    @diskside.function(columns={"n": "i8"}, result="i8", combine="concatenate")
    def beyond(out, columns):  # type: ignore[no-untyped-def]
        out[0] = columns.n[1 << 20]
        return 1

    with pytest.raises(diskside.DisksideError, match="column `n`"):
        session.scan("words.pq", input="parquet", function=beyond).arrow()


def test_a_column_may_have_any_name_of_python(session: diskside.Session, directory: Path) -> None:
    """`name` was a parameter of what makes the tuple of columns."""
    names = ["name", "members", "self", "columns"]
    pq.write_table(pa.table({name: pa.array([at, 7], pa.int64()) for at, name in enumerate(names)}), directory / "names.pq")

    @diskside.function(columns=dict.fromkeys(names, "i8"), select=True)
    def odd(out, columns):  # type: ignore[no-untyped-def]
        for row in range(out.size):
            out[row] = columns.name[row] + columns.members[row] + columns.self[row] + columns.columns[row] == 28

    assert session.scan("names.pq", "name", input="parquet", function=odd).arrow()["name"].to_pylist() == [7]


def test_a_column_of_another_type_is_told_in_words_of_python(session: diskside.Session, words: pa.Table) -> None:
    """It was told how a structure of C has it, which someone who writes Python never sees."""

    def some(out, columns):  # type: ignore[no-untyped-def]
        for row in range(out.size):
            out[row] = 1

    for columns, told in [
        ({"n": "i4"}, 'in Python "i8"'),
        ({"price": "i4"}, r'in Python "decimal\(2\)"'),
        ({"text": "f8"}, 'in Python "text" or "dictionary"'),
        ({"word": "text"}, r'in Python "word__valid": "u1"'),
    ]:
        with pytest.raises(diskside.DisksideError, match=told):
            session.scan("words.pq", input="parquet", function=diskside.function(some, columns=columns, select=True)).arrow()


def test_wrong_functions_in_python_are_refused() -> None:
    def function(out, columns):  # type: ignore[no-untyped-def]
        out[0] = columns.other[0]

    def answers(out, columns):  # type: ignore[no-untyped-def]
        return 1

    for text, options in [
        ("the name of a column is to be one of Python's", {"columns": {"a b": "i8"}, "select": True}),
        ("the name of a column is to be one of Python's", {"columns": {"class": "i8"}, "select": True}),
        ("columns= says what it reads", {"columns": {}, "select": True}),
        ("columns= says what it reads", {"select": True}),
        ("say what becomes of its results", {"columns": {"n": "i8"}, "result": "u8"}),
        ("a column is of numbers", {"columns": {"n": "S3"}, "select": True}),
        ("which values are there", {"columns": {"n__valid": "i8"}, "select": True}),
        ("records or columns", {"columns": {"n": "i8"}, "records": "u8", "select": True}),
        ("give no result", {"columns": {"n": "i8"}, "select": True, "result": "u1"}),
        ("result= says", {"columns": {"n": "i8"}, "combine": "concatenate"}),
    ]:
        with pytest.raises(diskside.UsageError, match=text):
            diskside.function(function, **options)  # type: ignore[call-overload]
    with pytest.raises(diskside.CompileError, match="Unknown attribute 'other'"):
        diskside.function(function, columns={"n": "i8"}, select=True)
    with pytest.raises(diskside.CompileError, match="one that selects sets a byte for each row"):
        diskside.function(answers, columns={"n": "i8"}, select=True)
