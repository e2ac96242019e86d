"""Parts of files at several servers, and Dask over them."""

from __future__ import annotations

import os
import pickle

import dask
import diskside
import diskside.dask
import numpy
import pytest
from diskside.partition import AT_ONCE


@pytest.fixture
def two(tmp_path):
    """Two servers, with 300,000 numbers each."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    numbers = numpy.arange(600_000, dtype="<u8")
    numbers[:300_000].tofile(tmp_path / "one" / "a.u64")
    numbers[300_000:].tofile(tmp_path / "two" / "b.u64")
    with diskside.serve(tmp_path / "one") as one, diskside.serve(tmp_path / "two") as other:
        yield [f"{one.url}/a.u64", f"{other.url}/b.u64"]


def test_partitions_cover_files_in_their_order(two):
    parts = diskside.partitions(two, target="1MB", record=8)
    assert [(part.url, part.offset, part.length) for part in parts] == [
        (url, offset, min(1_000_000, 2_400_000 - offset)) for url in two for offset in range(0, 2_400_000, 1_000_000)
    ]
    assert [part.server for part in diskside.spread(parts)] == [parts[0].server, parts[-1].server] * 3
    assert pickle.loads(pickle.dumps(parts)) == parts
    whole = diskside.run("stats64", two)
    results = [part.run("stats64") for part in parts]
    assert diskside.combine("stats64", results).bytes == whole.bytes
    assert diskside.combine("stats64", [result.bytes for result in results]).sum == whole.sum == 599_999 * 300_000


def test_text_stands_in_order(directory):
    parts = diskside.partitions([directory / "a.log", directory / "b.log"], target="1EiB")
    assert [part.server for part in parts] == [None, None]
    found = diskside.combine("grep", [part.run("grep", pattern="ERROR") for part in parts], pattern="ERROR")
    assert found.text == "one ERROR here\nanother ERROR there\nthe last ERROR of them all\n"


def test_a_file_that_changed_is_named(session, server, directory):
    (part,) = diskside.partitions(f"{server.url}/n.u64", record=8)
    numpy.arange(100_000, dtype="<u8").tofile(directory / "n.u64")
    os.utime(directory / "n.u64", (1, 1))
    with pytest.raises(diskside.ChangedError, match="n.u64 changed since its partitions were made; make them again"):
        part.run("stats64")


def test_records_are_not_cut(directory):
    with pytest.raises(diskside.UsageError, match="a.log: its 44 bytes are no whole records of 8"):
        diskside.partitions(directory / "a.log", record=8)
    with pytest.raises(diskside.UsageError, match="a record has at least 1 byte"):
        diskside.partitions(directory / "a.log", record=0)
    (directory / "empty").write_bytes(b"")
    (part,) = diskside.partitions(directory / "empty")
    assert part.length == 0 and part.run("grep", pattern="x").bytes == b""


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_gives_what_one_run_gives(two, scheduler):
    result = diskside.dask.run("stats64", two, target="200kB", record=8, split_every=3)
    with dask.config.set(scheduler=scheduler, num_workers=2):
        assert result.compute().bytes == diskside.run("stats64", two).bytes
    with pytest.raises(diskside.UsageError, match="split_every: 1 results cannot be folded"):
        diskside.dask.run("stats64", two, split_every=1)


def test_a_server_has_no_more_to_do_at_once_than_it_should(two, monkeypatch):
    running, most = [], []
    begin = diskside.Session.run

    def run(self, *args, **options):
        running.append(1)
        most.append(len(running))
        try:
            return begin(self, *args, **options)
        finally:
            running.pop()

    monkeypatch.setattr(diskside.Session, "run", run)
    with dask.config.set(scheduler="threads", num_workers=16):
        diskside.dask.run("stats64", two[:1], target="64KiB", record=8).compute()
    assert len(most) == 37 and max(most) <= AT_ONCE
