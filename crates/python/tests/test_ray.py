"""Ray over files at several servers, and over tables. These need the package ray: ``scripts/python --ray``."""

from __future__ import annotations

import diskside
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ray = pytest.importorskip("ray")

import diskside.ray  # noqa: E402

# Ray's datasets warn of themselves.
WARNINGS = ["ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::UserWarning:ray"]
pytestmark = pytest.mark.filterwarnings(*WARNINGS)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture
def two(tmp_path):
    """Two servers, with 300,000 numbers each, one file of which comes twice."""
    numbers = numpy.arange(600_000, dtype="<u8")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    numbers[:300_000].tofile(tmp_path / "one" / "a.u64")
    numbers[300_000:].tofile(tmp_path / "two" / "b.u64")
    with diskside.serve(tmp_path / "one") as one, diskside.serve(tmp_path / "two") as other:
        yield [f"{one.url}/a.u64", f"{other.url}/b.u64"]


def test_ray_gives_what_one_run_gives(two):
    found = diskside.ray.run("stats64", two, target="400kB", record=8)
    assert found.bytes == diskside.run("stats64", two).bytes
    twice = [two[0], two[1], two[0]]
    top = {"k": 3, "type": "i64", "row_len": 8, "offset": 0}
    assert diskside.ray.run("topk", two, target="1MB", record=8, **top).rows() == diskside.run("topk", two, **top).rows()
    assert diskside.ray.run("stats64", twice, record=8).count == 900_000


def test_what_fails_is_what_failed(two):
    with pytest.raises(diskside.DeadlineError):
        diskside.ray.run(ENDLESS, two, record=8, deadline=0.2, budget=1 << 62)
    with pytest.raises(diskside.UsageError, match="at_once: 0 partitions are none"):
        diskside.ray.run("stats64", two, at_once=0)


ENDLESS = diskside.function(
    source="""
#include "diskside.h"
SEC("read/endless")
__s64 endless(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {
    for (volatile __u64 i = 0; i < 1ull << 62; i++) *out = i;
    return 8;
}
"""
)


@pytest.fixture
def table(tmp_path):
    """9,000 rows in nine row groups, at a server."""
    rows = pa.table({"n": range(9000), "k": [row % 7 for row in range(9000)], "text": [f"{row:>100}" for row in range(9000)]})
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=1000, compression="none")
    with diskside.serve(tmp_path, rw=True) as server:
        yield f"{server.url}/t.parquet", tmp_path / "t.parquet"


def test_a_dataset_has_the_rows_of_the_table(table):
    url, path = table
    dataset = diskside.ray.read(url, where="n >= 10 and n < 8000", target="200kB")
    plain = pq.read_table(path, filters=[("n", ">=", 10), ("n", "<", 8000)])
    assert dataset.schema().names == ["n", "k", "text"] and dataset.count() == 7990
    found = pa.concat_tables(ray.get(dataset.to_arrow_refs())).sort_by("n")
    assert found.replace_schema_metadata(None).equals(plain.replace_schema_metadata(None))
    sums = {row["k"]: row["sum(n)"] for row in dataset.groupby("k").sum("n").take_all()}
    assert sums == {key: sum(row for row in range(10, 8000) if row % 7 == key) for key in range(7)}
    last = diskside.ray.read(url, "n", target="200kB").filter(expr=ray.data.expressions.col("n") > 8995)
    assert sorted(row["n"] for row in last.take_all()) == [8996, 8997, 8998, 8999]
    assert diskside.ray.read(path).limit(3).take_all() == plain_rows(path, 3)
    assert diskside.ray.read(url, where="n < 0").count() == 0
    assert diskside.ray.read(url, where="n < 0").schema().names == ["n", "k", "text"]


def plain_rows(path, count):
    return pq.read_table(path).slice(0, count).to_pylist()


def test_workers_read_the_columns_that_are_used(table):
    from diskside._ray_source import Tables
    from diskside._scan_parts import parts

    url, _ = table
    session = diskside.connect()
    scan = session.scan(url)
    source = Tables(parts(scan, 200_000), scan.schema)
    assert [task.schema.names for task in source.get_read_tasks(4)] == [["n", "k", "text"]] * 6
    projected = source.apply_projection({"k": "k"})
    blocks = [block for task in projected.get_read_tasks(4) for block in task()]
    assert {tuple(block.column_names) for block in blocks} == {("k",)} and sum(block.num_rows for block in blocks) == 9000
    # What Ray makes of it.
    used = diskside.ray.read(url, target="200kB").select_columns(["k"])
    assert used.sum("k") == sum(row % 7 for row in range(9000)) and used.columns() == ["k"]
    counted = [block for task in source.apply_projection({}).get_read_tasks(4) for block in task()]
    assert sum(block.num_rows for block in counted) == 9000 and {len(block.column_names) for block in counted} == {1}
    limited = [block for task in source.get_read_tasks(4, per_task_row_limit=5) for block in task()]
    assert sum(block.num_rows for block in limited) == 30


def test_directories_and_tables_are_datasets(tmp_path):
    from deltalake import write_deltalake

    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"n": [year, 1]}), tmp_path / f"year={year}" / "a.parquet")
    write_deltalake(tmp_path / "delta", pa.table({"n": [1, 2, 3], "k": ["01", None, "x"]}), partition_by=["k"])
    with diskside.serve(tmp_path) as server, server.connect() as session:
        dataset = diskside.ray.read(f"{server.url}/year=*", target=1)
        assert dataset.materialize().num_blocks() == 2
        assert sorted(row["year"] for row in dataset.take_all()) == [2023, 2023, 2024, 2024]
        table = diskside.ray.read(session.scan_delta("delta"), target=1)
        assert sorted(table.take_all(), key=str) == [{"n": 1, "k": "01"}, {"n": 2, "k": None}, {"n": 3, "k": "x"}]


def test_a_file_that_was_changed_fails_its_tasks(table):
    url, path = table
    dataset = diskside.ray.read(url, target="200kB")
    path.write_bytes(path.read_bytes())
    with pytest.raises(Exception, match="changed since the parts of its scan were made"):
        dataset.take_all()
    with pytest.raises(diskside.UsageError, match="a Dataset is of rows"):
        diskside.ray.read(url, aggregate="sum(n)")


def test_a_server_has_no_more_to_do_at_once_than_it_should():
    parts = [diskside.Partition(f"diskside://{server}/d/f", offset, 8) for server in "ab" for offset in range(0, 160, 8)]
    under_way: list[diskside.Partition] = []
    most: dict[str | None, int] = {}

    def begin(part):
        under_way.append(part)
        of_server = sum(one.server == part.server for one in under_way)
        most[part.server] = max(most.get(part.server, 0), of_server)
        return part

    def last(begun):
        under_way.remove(begun[-1])
        return begun[-1], begun[-1].offset

    results = diskside.ray.in_turn(parts, begin, last, 3)
    assert results == [part.offset for part in parts] and most == {"a": 3, "b": 3}
