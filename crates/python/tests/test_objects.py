"""Arrays, tables and logs in a bucket: what serves them is beside it, and Python asks that."""

from __future__ import annotations

import socket
from typing import Iterator

import boto3
import fsspec
import numpy
import pandas
import pytest
import zarr
from moto.server import ThreadedMotoServer

import diskside
import diskside.zarr
from diskside.zarr import ZarrStore


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The name of a bucket with ``grid.zarr``, ``table.parquet`` and ``2026/*.log``."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "user")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        store = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
        store.start()
        try:
            client = boto3.client("s3", region_name="us-east-1")
            client.create_bucket(Bucket="data")
            yield "data"
        finally:
            store.stop()


def put_directory(bucket: str, directory) -> None:
    client = boto3.client("s3", region_name="us-east-1")
    for path in directory.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=bucket, Key=str(path.relative_to(directory)), Body=path.read_bytes())


@pytest.fixture
def url(bucket: str, tmp_path) -> Iterator[str]:
    grid = numpy.arange(120.0 * 90).reshape(120, 90)
    array = zarr.create_array(tmp_path / "grid.zarr", shape=grid.shape, chunks=(10, 10), shards=(40, 30), dtype="f8")
    array[:100] = grid[:100]
    pandas.DataFrame({"day": range(1000), "value": numpy.linspace(0, 1, 1000)}).to_parquet(tmp_path / "table.parquet")
    (tmp_path / "2026").mkdir()
    for day in range(20):
        (tmp_path / f"2026/{day:02}.log").write_text("all well\n" * 100 + "an ERROR here\n" * day)
    put_directory(bucket, tmp_path)
    with diskside.serve(f"s3://{bucket}") as server:
        yield server.url


def test_an_array_is_read_and_reduced_where_its_bucket_is(url: str) -> None:
    grid = numpy.arange(120.0 * 90).reshape(120, 90)
    grid[100:] = 0
    store = ZarrStore(f"{url}/grid.zarr", read_only=True)
    array = zarr.open_array(store, mode="r")
    assert numpy.array_equal(array[:], grid)
    assert numpy.array_equal(array[35:45, 88], grid[35:45, 88])
    for place in ["device", "host"]:
        found = diskside.zarr.statistics(f"{url}/grid.zarr", place=place)
        assert (found.count, found.sum, found.max) == (grid.size, grid.sum(), grid.max())


def test_files_open_through_fsspec(url: str) -> None:
    table = pandas.read_parquet(f"{url}/table.parquet", columns=["value"])
    assert table["value"].sum() == pytest.approx(500)
    assert len(pandas.read_csv(f"{url}/2026/03.log", header=None)) == 103


def test_functions_and_scans_run_beside_the_bucket(url: str) -> None:
    for place in ["device", "host", "auto"]:
        assert diskside.run("grep_count", f"{url}/2026/*.log", pattern="ERROR", place=place)["rows"] == sum(range(20))
    scan = diskside.scan(f"{url}/table.parquet", aggregate={"rows": "count(*)"}, where="day >= 990", place="device")
    assert scan.pandas()["rows"].tolist() == [10]
    read_first = scan.report["read_bytes"]
    # Its footer was kept at the server.
    assert scan.pandas()["rows"].tolist() == [10] and scan.report["read_bytes"] == scan.report["needed_bytes"] < read_first


def test_nothing_is_written(url: str) -> None:
    session = diskside.connect(url)
    with pytest.raises(OSError, match="read-only"):
        session.write("new", b"x")
    with pytest.raises(OSError, match="read-only"):
        session.remove("table.parquet")
    with pytest.raises(FileNotFoundError):
        session.read("nothing")
    with pytest.raises(diskside.UsageError, match="read-only"):
        diskside.serve("s3://data", rw=True)


def test_no_read_has_bytes_of_two_versions(url: str, bucket: str) -> None:
    client = boto3.client("s3", region_name="us-east-1")
    session = diskside.connect(url)
    client.put_object(Bucket=bucket, Key="changing", Body=b"a" * 3_000_000)
    with session.open("changing") as file, fsspec.open(f"{url}/changing") as pinned:
        assert bytes(file.read(0, 10)) == pinned.read(10) == b"a" * 10
        client.put_object(Bucket=bucket, Key="changing", Body=b"b" * 3_000_000)
        # As of a file that is written anew in place.
        assert bytes(file.read(0, 3_000_000)) == b"b" * 3_000_000
        # Who reads a file from its start to its end gets one version.
        with pytest.raises(diskside.ChangedError):
            pinned.seek(2_000_000)
            pinned.read(10)
    assert session.read("changing") == b"b" * 3_000_000
