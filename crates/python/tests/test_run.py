"""Running functions over files, here and at a server."""

from __future__ import annotations

import asyncio
import gzip
import pathlib
from pathlib import Path

import diskside
import numpy
import pytest

PLACES = ["auto", "host", "device"]


@pytest.mark.parametrize("place", PLACES)
def test_a_shipped_function_gives_its_members_wherever_it_runs(session, place):
    result = session.run("stats64", "n.u64", place=place)
    assert (result.count, result.sum, result.min, result.max) == (100_000, 4_999_950_000, 0, 99_999)
    assert result.bytes == numpy.array([100_000, 4_999_950_000, 0, 99_999], "<u8").tobytes()
    assert result["sum"] == 4_999_950_000
    if place != "auto":
        assert {part["place"] for part in result.parts} == {place}


def test_files_of_this_machine_need_no_session(directory):
    assert diskside.run("stats64", directory / "n.u64").count == 100_000
    assert diskside.run("wc", [str(directory / "a.log"), directory / "b.log"]).lines == 5
    assert diskside.run("grep_count", str(directory / "*.log"), pattern="ERROR").rows() == [{"rows": 3}]


def test_a_path_made_of_a_url_is_that_url(session, server):
    url = pathlib.PurePosixPath(f"{server.url}/n.u64")
    assert str(url).startswith("diskside:/1")
    assert session.run("stats64", url).count == 100_000


def test_patterns_and_directories_are_expanded_at_the_server(session, server):
    assert session.run("grep_count", "*.log", pattern="ERROR")["rows"] == 3
    assert session.run("grep_count", server.url, pattern="quiet", recursive=True)["rows"] == 1
    with pytest.raises(FileNotFoundError, match="there are no such files"):
        session.run("grep_count", "*.txt", pattern="ERROR")


def test_a_directory_is_run_over_when_that_is_said(session, server):
    where = server.url
    for name in [where, f"{where}/"]:
        with pytest.raises(IsADirectoryError, match="Is a directory.*; recursive=True runs over all files below it, and a pattern"):
            session.run("wc", name)
    assert session.run("grep_count", where, recursive=True, pattern="ERROR")["rows"] == 3


def test_results_stand_in_the_order_of_the_files(session):
    assert session.run("grep", ["b.log", "a.log"], pattern="ERROR").text == (
        "the last ERROR of them all\none ERROR here\nanother ERROR there\n"
    )


def test_a_range_is_all_that_the_function_sees(session):
    assert session.run("stats64", "n.u64", range=(800, 1600)).sum == sum(range(100, 200))
    assert session.run("stats64", "n.u64", range=(799_992, None)).sum == 99_999
    with pytest.raises(ValueError, match="bytes 800000..800008 are not in .*n.u64, which has 800000"):
        session.run("stats64", "n.u64", range=(800_000, 800_008))
    with pytest.raises(ValueError, match="range: it ends at 8, before its first byte 16"):
        session.run("stats64", "n.u64", range=(16, 8))


def test_each_option_does_what_it_says(session, directory):
    unfolded = session.run("stats64", "n.u64", chunk="400kB", combine=False)
    assert [row["count"] for row in unfolded.rows()] == [50_000, 50_000]
    folded = session.run("stats64", "n.u64", chunk="400kB", place="host")
    assert folded.stats["fold_s"] == folded.parts[0]["fold_s"] > 0 == unfolded.stats["fold_s"]
    assert session.run("stats64", "n.u64", threads=2, tier="interp", place="host").parts[0]["tier"] == "interp"
    (directory / "n.gz").write_bytes(gzip.compress((directory / "n.u64").read_bytes()))
    assert session.run("stats64", "n.gz").count == 100_000
    assert session.run("wc", "n.gz", decompress="none")["bytes"] == (directory / "n.gz").stat().st_size
    numpy.save(directory / "n.npy", numpy.arange(10, dtype="<i8"))
    assert session.run("stats64", "n.npy").count == 10
    assert session.run("wc", "n.npy", header="none")["bytes"] == 208
    with pytest.raises(diskside.BudgetError):
        session.run("stats64", "n.u64", budget=10)


def test_a_result_can_become_a_file(session, directory):
    result = session.run("grep", "a.log", pattern="ERROR", out="found.txt")
    assert (directory / "found.txt").read_text() == "one ERROR here\nanother ERROR there\n"
    assert result.bytes == b"" and result.stats["written_bytes"] == 35
    session.run("grep", "a.log", pattern="well", out=directory / "here.txt")
    assert (directory / "here.txt").read_text() == "all well\n"


def test_progress_is_told_and_ends_with_all_bytes(session):
    seen = []
    session.run("stats64", "n.u64", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (800_000, 800_000)


def test_files_are_read_and_written_by_position(session, directory):
    with session.open("new.bin", "w+") as file:
        assert file.write(4, b"abcd", durable=True) == 4
        file.write(8, numpy.arange(6, dtype="<u2").reshape(2, 3).T)  # not contiguous
        assert file.size == 20 and file.read(2, 4) == b"\0\0ab"
        assert file.read(18, 100) == b"\x05\0" and file.read(100, 4) == b""
        file.truncate(6)
        file.sync()
        assert bytes(file.view()) == b"\0\0\0\0ab"
    assert (directory / "new.bin").read_bytes() == b"\0\0\0\0ab"
    with pytest.raises(ValueError, match="the file is closed"):
        file.read()
    with pytest.raises(ValueError, match="mode: 'rb' is none of r, r\\+, w\\+; .* fsspec.open"):
        session.open("new.bin", "rb")


def test_a_function_writes_what_it_makes_of_an_array(session, directory, longest):
    with session.open("out.bin", "w+") as file:
        result = file.write_through(longest, 8, b"one\nlonger\n")
    assert result.stats["written_bytes"] == 8
    assert (directory / "out.bin").read_bytes() == bytes(8) + (6).to_bytes(8, "little")


def test_directories_are_listed(session, server, directory):
    (directory / "sub").mkdir()
    assert session.ls(f"diskside://{server.address}") == {"data": None}
    listed = session.ls()
    assert list(listed) == ["a.log", "b.log", "n.u64", "sub"]
    assert listed["sub"].kind == "directory" and listed["n.u64"].size == 800_000
    assert session.exists("a.log") and not session.exists("nothing")
    session.write("c.log", b"written whole\n")
    assert session.read("c.log") == b"written whole\n"


def test_a_server_can_be_several_and_is_read_only_unless_it_says_rw(directory, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "x").write_bytes(b"12345678")
    with diskside.serve({"one": directory}) as one, diskside.serve({"two": other}) as two:
        files = [f"{one.url}/n.u64", f"{two.url}/x"]
        assert diskside.run("stats64", files).count == 100_001
        with pytest.raises(PermissionError, match="the export is read-only; serve it with `,rw`"):
            diskside.connect(two.url).write("y", b"")
    with pytest.raises(ValueError, match="listen: 0.0.0.0:0 is reached from other machines"):
        diskside.serve(directory, listen="0.0.0.0:0")
    one.close()
    with pytest.raises(ValueError, match="there is nothing to serve"):
        diskside.serve()
    with pytest.raises(OSError, match="nowhere"):
        diskside.serve("/nowhere")


def test_a_volume_is_served_from_memory():
    with diskside.serve(volumes=["scratch=mem:1MiB,rw"]) as server:
        (url,) = server.volumes.values()
        with diskside.open(url, "r+") as volume:
            volume.write(0, numpy.arange(1024, dtype="<u8"))
        assert diskside.run("stats64", url, range=(0, 8192)).sum == 523_776


def test_rows_come_by_iteration_by_number_and_in_slices(session):
    """A result was neither iterable nor had it a length."""
    top = session.run("topk", "n.u64", k=5, type="i64", row_len=8, offset=0)
    values = [99_999 - at for at in range(5)]
    assert len(top) == 5 and [row["value"] for row in top] == values and list(top) == top.rows()
    assert top[0] == {"index": 99_999, "value": 99_999} and top[-1]["value"] == values[-1]
    assert [row["value"] for row in top[1:3]] == values[1:3] and top["value"] == values
    with pytest.raises(IndexError):
        top[5]
    one = session.run("stats64", "n.u64")
    assert len(one) == 1 and one[0]["count"] == 100_000 and one and bytes(one) == one.bytes
    lines = session.run("grep", "a.log", pattern="ERROR")
    for use in [len, list, lambda result: result[0]]:
        with pytest.raises(diskside.UsageError, match="not made of rows; use result.bytes or result.text"):
            use(lines)
    assert lines and not session.run("grep", "a.log", pattern="nowhere")
    assert memoryview(lines).nbytes == len(lines.text)


async def test_instances_are_as_many_as_the_session_says(directory):
    """DAPHNE's: io_urings of their own, with one or two threads each, that serve requests in turn."""
    io = {"instances": 3, "threads": 2, "in_flight_max": 4, "staging_max": 8}
    with diskside.connect() as usual, diskside.connect(io=io) as several:
        for session, threads in [(usual, 1), (several, 6)]:
            before = threads_named("io-")
            with session.open(directory / "n.u64") as file:
                jobs = [file.submit_read(8 * at, 8) for at in range(500)]
                assert [int.from_bytes(job.result(), "little") for job in jobs] == list(range(500))
                assert all(job.done() for job in jobs)
                awaited = await asyncio.gather(*(file.submit_read(8 * at, 8) for at in range(50)))
                assert [int.from_bytes(one, "little") for one in awaited] == list(range(50))
            assert threads_named("io-") - before == threads


def threads_named(start):
    """How many threads of this process are called so."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith(start) for name in names)


def test_instances_that_cannot_be_are_said():
    for io, why in [
        ({"instances": 0}, "io: instances is 0, and must be from 1 to 256"),
        ({"staging_max": 2**40}, "io: staging_max is 1099511627776, and must be from 1 to 1048576"),
        ({"in_flight_max": 40_000}, "io: in_flight_max is 40000, and must be from 1 to 32767"),
        ({"threads": 3}, "io: threads is 3, and must be 1 or 2"),
        ({"rings": 2}, "io: there is no `rings`; there are instances, threads"),
        ({"sq_poll": -1}, "io: sq_poll: "),
        ({"instances": "two"}, "io: instances: two: "),
    ]:
        with pytest.raises(ValueError, match=why):
            diskside.connect(io=io)


def test_names_change_and_go(session, directory):
    session.mkdir("days")
    session.write("days/one", b"1")
    session.rename("days/one", "days/two")
    assert list(session.ls("days")) == ["two"] and session.read("days/two") == b"1"
    with pytest.raises(OSError):
        session.remove("days")
    session.remove("days/two")
    session.remove("days")
    assert not (directory / "days").exists()
    with pytest.raises(FileNotFoundError):
        session.remove("days")
    with pytest.raises(ValueError, match="is not in the export of"):
        session.rename("a.log", "diskside://elsewhere/data/a.log")


def test_what_is_no_file_is_said(session):
    for wrong in [None, 5, 1.5]:
        with pytest.raises(ValueError, match=f"{wrong} is no file: give a path, a URL"):
            session.run("wc", wrong)


def test_a_session_tells_prometheus_what_it_did(server):
    with server.connect() as session:
        session.run("stats64", f"{server.url}/n.u64", place="device")
        text = session.metrics()
    assert 'diskside_client_requests_total{plan="device"} 1\n' in text
    assert f'diskside_client_connection_losses_total{{server="{server.url.split("/")[2]}"}} 0\n' in text
    with pytest.raises(diskside.UsageError):
        session.metrics()
