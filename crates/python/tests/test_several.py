"""URLs of several servers that hold copies of the same files, one of which is closed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import diskside
import fsspec
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


class Pair:
    """Two servers of copies of a directory."""

    def __init__(self, directory: Path, other: Path) -> None:
        self.directories = [directory, other]
        self.servers = [diskside.serve(one, engines=2) for one in self.directories]
        self.hosts = [server.url.removeprefix("diskside://").partition("/")[0] for server in self.servers]
        self.url = f"diskside://{','.join(self.hosts)}/{self.servers[0].url.rpartition('/')[2]}"

    def close_the_one_of(self, used: str) -> None:
        """Closes the server that a name of a file has."""
        next(server for host, server in zip(self.hosts, self.servers, strict=True) if host in used).close()


@pytest.fixture
def pair(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pq.write_table(pa.table({"n": range(1000)}), directory / "t.parquet", row_group_size=100)
    other = tmp_path_factory.mktemp("copies") / "data"
    shutil.copytree(directory, other)
    pair = Pair(directory, other)
    yield pair
    for server in pair.servers:
        server.close()


@pytest.fixture
def session(pair: Pair) -> Iterator[diskside.Session]:
    with diskside.connect(pair.url, loss_timeout=0) as session:
        yield session


def used(session: diskside.Session) -> str:
    """The server that the session uses, which a part of a run has in its name."""
    return session.run("stats64", "n.u64", place="device").explain


def test_runs_reads_and_scans_go_on_at_the_other_server(pair: Pair, session: diskside.Session) -> None:
    with session.open("n.u64") as file:
        assert file.read(0, 8) == bytes(8)
        assert session.scan("t.parquet", aggregate="sum(n) as total", place="device").arrow().to_pydict() == {"total": [499500]}
        pair.close_the_one_of(used(session))
        for place in ["device", "host", "auto"]:
            assert session.run("stats64", "n.u64", place=place).count == 100_000
        assert session.run("grep_count", "*.log", pattern="ERROR")["rows"] == 3
        assert numpy.frombuffer(file.read(8, 8), "<u8").tolist() == [1]
    assert session.scan("t.parquet", aggregate="sum(n) as total", place="device").arrow().to_pydict() == {"total": [499500]}
    assert sorted(session.ls()) == ["a.log", "b.log", "n.u64", "t.parquet"]
    assert session.stat("n.u64").size == 800_000


def test_fsspec_reads_at_the_other_server(pair: Pair, session: diskside.Session) -> None:
    path = f"{pair.url}/n.u64"
    with fsspec.open(path, "rb") as file:
        assert file.read(8) == bytes(8)
        # Sessions may use different servers: both are closed in turn, and one is enough.
        pair.servers[0].close()
        file.seek(8)
        assert numpy.frombuffer(file.read(8), "<u8").tolist() == [1]
    files = fsspec.filesystem("diskside", skip_instance_cache=True)
    assert files.cat_file(path, 8, 16) == (1).to_bytes(8, "little")
    assert path.removeprefix("diskside://") in files.find(pair.url)


def test_copies_are_not_written(pair: Pair, session: diskside.Session) -> None:
    for write in [
        lambda: session.open("n.u64", "r+"),
        lambda: session.run("stats64", "n.u64", out=f"{pair.url}/out"),
        lambda: session.remove("a.log"),
    ]:
        with pytest.raises(diskside.UsageError, match="several servers that hold copies, which are only read"):
            write()
    assert (pair.directories[0] / "a.log").exists()


def test_where_all_are_closed_the_error_has_each(pair: Pair, session: diskside.Session) -> None:
    for server in pair.servers:
        server.close()
    with pytest.raises(diskside.DisksideError, match="no server of .* can be used") as told:
        session.run("stats64", "n.u64")
    assert all(host in str(told.value) for host in pair.hosts)
