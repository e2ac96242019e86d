"""Functions over columns in scans: the sums and rows of pyarrow, at each place, and clear errors."""

from __future__ import annotations

import pickle
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


@pytest.mark.parametrize("place", PLACES)
def test_null_without_a_valid_member_is_an_error(session: diskside.Session, summed: diskside.Function, place: str) -> None:
    scan = session.scan("null.pq", input="parquet", function=summed, args={"below": 1}, place=place)
    with pytest.raises(diskside.DisksideError, match="n__valid"):
        scan.arrow()
