"""What comes wrong, or goes wrong on the way: arrays of every kind, servers that vanish, interrupted cells, damaged metadata."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import diskside
import numpy
import pytest
import zarr
from diskside.filesystem import DisksideFileSystem
from diskside.zarr import ZarrStore, statistics

PATIENCE = 100


def arrays():
    """Of every kind that numpy has, in every way that one can lie in memory."""
    base = numpy.arange(48).reshape(2, 4, 6)
    for dtype in ["?", "i1", "u2", ">u2", "i4", "u8", ">i8", "f2", "f4", ">f8", "g", "c8", "c16", "M8[ns]", "m8[s]", "S5", "U3", "V7"]:
        plain = base.astype("f8").astype(dtype) if dtype == "?" else base.astype("S2").view("S2").astype(dtype) if dtype[0] in "SUV" else base.astype(dtype)
        frozen = plain.copy()
        frozen.flags.writeable = False
        named = {"C": plain, "F": numpy.asfortranarray(plain), "transposed": plain.T, "stepped": plain[:, ::2, ::-3], "frozen": frozen}
        named |= {"empty": plain[:0], "scalar": plain[1, 2, 3].reshape(()), "one": plain.ravel()[:1], "spread": numpy.broadcast_to(plain[0, 0, 0], (3, 5))}
        for name, array in named.items():
            yield f"{dtype} {name}", array
    rows = numpy.zeros(5, [("a", "u1"), ("b", "<f8"), ("c", ">i4", (2,))])
    rows["b"], rows["c"] = numpy.arange(5), numpy.arange(10).reshape(5, 2)
    yield "rows", rows
    yield "every other row", rows[::2]
    yield "nothing", numpy.zeros((0, 7, 0))


def test_an_array_is_written_as_numpy_writes_it(session):
    """In C order, whatever its own is; read-only, empty and spread ones, too."""
    with session.open("array.bin", "w+") as file:
        for name, array in arrays():
            file.truncate(0)
            assert file.write(3, array) == array.nbytes, name
            assert file.read(3, array.nbytes) == array.tobytes(order="C"), name
            assert file.size == (3 + array.nbytes if array.nbytes else 0), name


def test_what_has_no_bytes_is_refused(session):
    with session.open("array.bin", "w+") as file:
        for wrong in [numpy.array([object(), None]), [1, 2], "text", 5, None]:
            with pytest.raises((TypeError, ValueError)):
                file.write(0, wrong)
        for wrong in [-1, 2**64, 1.5, "x"]:
            with pytest.raises((ValueError, TypeError, OverflowError)):
                file.write(wrong, b"bytes")
            with pytest.raises((ValueError, TypeError, OverflowError)):
                file.read(wrong, 4)
        assert file.size == 0
    for wrong in [(5, 2), (-1, 3), ("a", "b"), (0, 2**70), 7]:
        with pytest.raises((ValueError, OverflowError)):
            session.run("stats64", "n.u64", range=wrong)


def test_names_that_cannot_be_are_errors(session):
    """A path of 100,000 bytes ended the process, or went to the server with the lower 16 bits of its length."""
    for name in ["x" * 5000, "x" * 100_000, "x/" * 3000, "x" * 300, "a\0b", "a\nb", "\udcff", "*" * 5000]:
        for use in [session.read, session.ls, session.stat, lambda name: session.run("wc", name), lambda name: session.write(name, b"")]:
            try:
                use(name)
            except (OSError, ValueError) as error:
                assert str(error)
    assert session.ls().keys() <= {"a.log", "b.log", "n.u64", "a\nb", "\udcff", "a%0Ab", "%FF"}


def test_a_name_of_any_bytes_is_written_and_removed(session, directory):
    import os

    session.write("day\udcff.log", b"one")
    assert os.listdir(os.fsencode(directory)).count(b"day\xff.log") == 1
    assert session.read("day\udcff.log") == b"one" and session.stat("day%FF.log").size == 3
    session.remove("day\udcff.log")
    assert not session.exists("day%FF.log")


def test_options_that_do_not_fit_are_named(session):
    for option in [{"threads": 2**70}, {"budget": -1}, {"split": 2**33}, {"state": ("x", 10**12)}, {"combine": "yes"}, {"durable": 3}]:
        (name,) = option
        with pytest.raises(diskside.UsageError, match=f"^{name}: "):
            session.run("wc", "a.log", **option)


def test_a_server_that_vanishes_while_lines_are_read(directory):
    """The iterator fails, and does not end as if the file had."""
    (directory / "long.log").write_text("a line of some length, and its number\n" * 400_000)
    server = diskside.serve(directory)
    with server.connect(connect_timeout=1, loss_timeout=0.2) as session:
        fs = DisksideFileSystem(session=session, skip_instance_cache=True)
        with fs.open(f"{server.url}/long.log", "rt") as file, pytest.raises(OSError):
            for number, _ in enumerate(file):
                if number == 1000:
                    server.close()
        assert 1000 <= number < 399_999


def test_a_server_that_stands_still_is_given_up(directory):
    """It was waited for for a minute, whatever the session's timeouts: whoever reads lines, awaits a batch or a run would not know."""
    (directory / "long.log").write_text("a line of some length, and its number\n" * 400_000)
    with standing(directory) as (url, stop):
        with diskside.connect(url, connect_timeout=1, loss_timeout=0.2, keep_alive=1) as session:
            fs = DisksideFileSystem(session=session, skip_instance_cache=True)
            with fs.open(f"{url}/long.log", "rt") as file:
                with pytest.raises(OSError, match="long.log: .* was lost, and was not back within 0.2 s \\(loss_timeout\\): "):
                    for number, _ in enumerate(file):
                        if number == 1000:
                            stop()
                            began = time.monotonic()
                assert 1000 <= number < 399_999
                # 1.5 until it is missed, 0.2 and a second for trying to connect again; and the machine may be busy.
                assert time.monotonic() - began < 30
            # It told of a connection that was closed.
            with diskside.connect(url, connect_timeout=1) as other, pytest.raises(OSError, match="did not answer ICReq in time: the server stands still"):
                other.ls()
            for use in [session.ls, lambda: session.read("n.u64"), lambda: session.run("stats64", "n.u64"), lambda: fs.cat_file(f"{url}/a.log")]:
                with pytest.raises(OSError):
                    use()


@contextlib.contextmanager
def standing(directory):
    """A server in a process of its own, and what stops that, as SIGSTOP does."""
    serve = "import diskside, sys; s = diskside.serve(sys.argv[1], listen='127.0.0.1:0'); print(s.address, flush=True); sys.stdin.read()"
    server = subprocess.Popen([sys.executable, "-c", serve, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield f"diskside://{server.stdout.readline().strip()}/data", lambda: server.send_signal(signal.SIGSTOP)
    finally:
        server.kill()
        server.communicate()


def test_what_is_used_after_its_session_is_closed_says_so(server):
    session = server.connect()
    store = ZarrStore("diskside://server/data/a".replace("server", server.address), session=session)
    array = zarr.create_array(store, shape=(4,), dtype="i4")
    array[:] = 1
    fs = DisksideFileSystem(session=session, skip_instance_cache=True)
    file, lines = session.open("n.u64", "r+"), fs.open(f"{server.url}/a.log", "rb")
    job = session.submit("stats64", "n.u64")
    session.close()
    uses = [lambda: file.read(0, 8), lambda: file.write(0, b"x"), lambda: file.size, lambda: file.run("stats64"), session.ls]
    uses += [lambda: session.read("n.u64"), lambda: session.submit("stats64", "n.u64"), session.drop_cache]
    uses += [lambda: fs.ls(f"{server.url}/"), lambda: fs.cat_file(f"{server.url}/a.log"), lambda: fs.open(f"{server.url}/a.log")]
    uses += [lambda: array[:], lambda: statistics(array), lambda: array.__setitem__(slice(None), 2)]
    for use in uses:
        with pytest.raises(diskside.UsageError, match="the session is closed"):
            use()
    # What began before goes on, and what is open for reading by itself.
    assert job.result(PATIENCE).count == 100_000
    assert lines.read(3) == b"one"
    lines.close()
    # Nothing of them is left to be waited for.
    assert not session.__repr__().endswith("data>")


def test_threads_use_a_session_while_it_is_closed(server, directory):
    """Each gets what it asks for, or is told that the session is closed; nobody waits for ever."""
    for _ in range(5):
        session = server.connect()
        fs = DisksideFileSystem(session=session, skip_instance_cache=True, use_listings_cache=False)
        told = []

        def use(kind):
            uses = [
                lambda: session.run("stats64", "n.u64", place=["host", "device", "auto"][kind % 3]).count == 100_000,
                lambda: session.read("a.log").startswith(b"one"),
                lambda: len(fs.cat_ranges([f"{server.url}/n.u64"] * 4, [0] * 4, [8] * 4)) == 4,
                lambda: "a.log" in session.ls(),
            ]
            for turn in range(1000):
                try:
                    assert uses[(kind + turn) % 4]()
                except diskside.UsageError as error:
                    told.append(str(error))
                    return

        threads = [threading.Thread(target=use, args=(kind,)) for kind in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        session.close()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert told == ["the session is closed"] * 8


def test_arrays_of_any_type_are_reduced_or_refused_by_name(server):
    for dtype in ["f2", "c8", "c16", "M8[s]", "m8[ns]", "S5", "U3", "V7", [("a", "u1"), ("b", "<f8")]]:
        with warnings.catch_warnings():
            # Of some types format 3 says nothing yet.
            warnings.simplefilter("ignore")
            array = zarr.create_array(ZarrStore(f"{server.url}/a"), shape=(4,), dtype=dtype, zarr_format=2, overwrite=True)
            with pytest.raises(diskside.UsageError, match="its elements are .*; servers reduce whole numbers, bool, float32 and float64"):
                statistics(array)


def test_a_server_that_vanishes_from_under_many(directory):
    """Files that are listed, ranges that are awaited, an array that is read: each fails by itself, and none waits for ever."""
    server = diskside.serve(directory, rw=True)
    url = server.url
    with server.connect(connect_timeout=1, loss_timeout=0.2) as session:
        store = ZarrStore(f"{url}/a", session=session)
        array = zarr.create_array(store, shape=(100,), chunks=(10,), dtype="i4")
        array[:] = 5
        found = zarr.open_array(ZarrStore(f"{url}/a", session=session, read_only=True), mode="r")
        server.close()
        session.drop_cache()
        for use in [lambda: session.ls(""), lambda: found[:], lambda: statistics(found), lambda: session.read("n.u64")]:
            with pytest.raises(OSError):
                use()


def test_an_interrupted_cell_leaves_the_kernel_usable(directory):
    """Ctrl-C while an array is reduced, while a batch is awaited, and in an iterator; what follows works."""
    program = """
import _thread, sys, threading, time
sys.path.insert(0, {tests!r})
import diskside, numpy
from conftest import ENDLESS

with diskside.serve({directory!r}) as server, server.connect() as session:
    endless = diskside.function(source=ENDLESS)
    for place in ["host", "device"]:
        threading.Timer(0.2, _thread.interrupt_main).start()
        began = time.monotonic()
        try:
            session.run(endless, "n.u64", place=place, budget=2**63)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - began < 5)
        print(session.run("stats64", "n.u64", place=place).count)
    job = session.submit(endless, "n.u64", place="device", budget=2**63)
    threading.Timer(0.2, _thread.interrupt_main).start()
    try:
        job.result()
    except KeyboardInterrupt:
        print("interrupted", True)
    print(session.run("stats64", "n.u64", place="device").count)
"""
    program = program.format(tests=os.path.dirname(__file__), directory=str(directory))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.stdout.splitlines() == ["interrupted True", "100000"] * 3, ran.stdout + ran.stderr


async def test_a_cancelled_read_of_a_batch_leaves_the_others(server):
    store = ZarrStore(f"{server.url}/a")
    array = await asyncio.to_thread(zarr.create_array, store, shape=(40,), chunks=(4,), dtype="i8")
    await asyncio.to_thread(array.__setitem__, slice(None), numpy.arange(40))
    from zarr.core.buffer import default_buffer_prototype

    await store._ensure_open()
    gets = [asyncio.ensure_future(store.get(f"c/{index}", default_buffer_prototype())) for index in range(10)]
    await asyncio.sleep(0)
    gets[3].cancel()
    done = await asyncio.gather(*gets, return_exceptions=True)
    assert isinstance(done[3], asyncio.CancelledError)
    assert all(found is not None and not isinstance(found, BaseException) for at, found in enumerate(done) if at != 3)


@pytest.mark.parametrize(("zarr_format", "name"), [(2, ".zarray"), (3, "zarr.json")])
def test_damaged_metadata_is_an_error(server, directory, zarr_format, name):
    url = f"{server.url}/a"
    array = zarr.create_array(ZarrStore(url), shape=(40,), chunks=(4,), dtype="i8", zarr_format=zarr_format)
    array[:] = 1
    for text in ["", "{", "[]", "{}", '{"zarr_format": 2}', '{"zarr_format": 9, "shape": [4]}', "\x00\xff", '"text"']:
        (directory / "a" / name).write_text(text, "latin-1")
        with pytest.raises(Exception) as raised:
            statistics(url)
        assert not isinstance(raised.value, (AssertionError, RecursionError, MemoryError)) and str(raised.value), text


def test_metadata_that_says_too_much_takes_no_memory(server, directory):
    """A petabyte of fill values is counted, and not made."""
    url = f"{server.url}/a"
    zarr.create_array(ZarrStore(url), shape=(2**25, 2**25), chunks=(2**24, 2**24), dtype="f8", fill_value=2)
    found = statistics(url)
    assert (found.count, found.min, found.max, found.mean) == (2**50, 2, 2, 2)
    # One that is there is more than a function is called on at once.
    (directory / "a" / "c" / "0").mkdir(parents=True)
    (directory / "a" / "c" / "0" / "0").write_bytes(b"something")
    with pytest.raises(diskside.DisksideError, match="a decoded chunk has 1 byte to 128 MiB"):
        statistics(url)


def test_more_chunks_than_can_be_counted_take_no_time(server, directory):
    """Each chunk of the grid was looked at, and kept, whether it was there or not: metadata of 400 bytes took a reader's memory
    and time. Only those that are there matter."""
    for name, how in [("plain", {"chunks": (1, 1)}), ("shards", {"chunks": (1, 1), "shards": (2, 2)})]:
        url = f"{server.url}/{name}"
        array = zarr.create_array(ZarrStore(url), shape=(2**30, 2**31), dtype="i4", fill_value=1, **how)
        array[2**29, 7] = 5
        (directory / name / "c" / str(2**30)).mkdir()
        for beyond in [f"{2**30}/0", "00", "0x", "9" * 100]:
            (directory / name / "c" / beyond).write_bytes(b"no chunk of the array")
        found = statistics(url)
        assert (found.count, found.sum, found.min, found.max) == (2**61, 2**61 + 4, 1, 5)
        with pytest.raises(diskside.UsageError, match="by_chunk=True gives rows of 4194304 at most"):
            statistics(url, by_chunk=True)
    url = f"{server.url}/wide"
    zarr.create_array(ZarrStore(url), shape=(2**24,), chunks=(1,), shards=(2**24,), dtype="i4")
    with pytest.raises(diskside.UsageError, match="an index of 268435460 bytes; 268435456 are read"):
        statistics(url)
    text = (directory / "plain" / "zarr.json").read_text()
    (directory / "plain" / "zarr.json").write_text(text.replace(str(2**30), str(2**62)))
    with pytest.raises(diskside.UsageError, match="is none that can be reduced"):
        statistics(f"{server.url}/plain")


def test_a_server_that_names_files_elsewhere_is_refused(server, directory, tmp_path_factory, monkeypatch):
    """What a recursive get writes here is called as the server says."""
    fs = DisksideFileSystem(skip_instance_cache=True)
    address = server.address
    to = tmp_path_factory.mktemp("to")
    fs.get(f"{server.url}/", str(to / "whole"), recursive=True)
    assert (to / "whole" / "a.log").read_bytes() == (directory / "a.log").read_bytes()

    class Hostile:
        def find(self, url, recursive, links):
            return [(self.path, ("file", 1, 0.0, 1, 0o644))]

    monkeypatch.setattr(DisksideFileSystem, "_native", Hostile())
    for path in ["data/../../evil", "data/d/../../x", "other/file", "/etc/passwd", "dataset/x", ".."]:
        Hostile.path = path
        with pytest.raises(OSError, match="the server says that .* is below it"):
            fs.find(f"{address}/data")


def test_codecs_that_nobody_has_are_named(server, directory):
    url = f"{server.url}/a"
    zarr.create_array(ZarrStore(url), shape=(40,), chunks=(4,), dtype="i8")[:] = 1
    path = directory / "a" / "zarr.json"
    for change in [("zstd", "quantum"), ('"bytes"', '"bits"')]:
        whole = path.read_text()
        path.write_text(whole.replace(*change))
        with pytest.raises(Exception, match="quantum|bits"):
            statistics(url)
        path.write_text(whole)
    assert statistics(url).count == 40


def test_arguments_that_are_out_of_bounds_are_named(server, session, directory):
    """They were errors of Python's or of the binding: overflows, and attributes that bytes do not have."""
    usage = diskside.UsageError
    with pytest.raises(usage, match="serve: engines: -1 is not from 1 to 65535"):
        diskside.serve(directory, engines=-1)
    with pytest.raises(usage, match="io: 5 is no dictionary"):
        diskside.connect(io=5)
    with pytest.raises(usage, match="limit: .* is more than any table has"):
        session.scan("a.log", limit=2**70)
    with diskside.serve(str(directory).encode()) as other:
        assert other.url.endswith("/data")
    for timeout in (float("inf"), 1e300):
        assert len(diskside.wait([session.submit("wc", "a.log")], timeout=timeout)[0]) == 1
