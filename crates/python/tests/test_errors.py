"""What fails, by kind, with the place where it did."""

from __future__ import annotations

import pickle
import sys

import diskside
import pytest

BEYOND = """#include "diskside.h"
SEC("read/beyond")
__s64 beyond(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {
    *out = in[in_len / 8];
    return 8;
}
"""


@pytest.mark.parametrize("place", ["host", "device"])
def test_a_trap_has_the_line_and_the_place(session, place):
    with pytest.raises(diskside.TrapError, match="out-of-bounds read of 8 bytes of input at offset 800000") as told:
        session.run(diskside.function(source=BEYOND), "n.u64", place=place)
    trap = told.value.trap
    assert (trap.kind, trap.range, trap.region, trap.offset, trap.bound) == (
        "out_of_bounds",
        (0, 800_000),
        "input",
        800_000,
        800_000,
    )
    assert (trap.file, trap.line, trap.text) == ("./function.bpf.c", 4, "*out = in[in_len / 8];")
    again = pickle.loads(pickle.dumps(told.value))
    assert type(again) is diskside.TrapError and str(again) == str(told.value) and again.trap == trap


@pytest.mark.parametrize("place", ["host", "device"])
def test_a_write_has_its_memory_wherever_it_was(session, place):
    """A server marks writes in the number of the memory, and ``region`` was None there."""
    function = diskside.function(source=BEYOND.replace("*out = in[in_len / 8]", "((__u8 *)out)[1 << 20] = 1"))
    with pytest.raises(diskside.TrapError, match="write of 1 byte") as told:
        session.run(function, "n.u64", place=place)
    trap = told.value.trap
    assert (trap.kind, trap.region, trap.offset) == ("out_of_bounds", "output", 1 << 20)


@pytest.mark.parametrize("place", ["host", "device"])
def test_what_a_function_returns_is_told(session, place):
    function = diskside.function(source=BEYOND.replace("*out = in[in_len / 8];\n    return 8;", "return -DS_EINVAL;"))
    with pytest.raises(diskside.ReturnedError, match="returned -22: Invalid argument") as told:
        session.run(function, "n.u64", place=place)
    assert told.value.trap.returned == -22 and told.value.kind == "returned"


def test_files_fail_as_those_of_python_do(session, directory):
    (directory / "sub").mkdir()
    for run, kind, errno in [
        (lambda: session.run("stats64", "nothing"), FileNotFoundError, 2),
        (lambda: session.open("nothing"), FileNotFoundError, 2),
        (lambda: session.stat("nothing"), FileNotFoundError, 2),
        (lambda: diskside.run("stats64", "/nowhere"), FileNotFoundError, 2),
        (lambda: session.read("sub"), IsADirectoryError, 21),
        (lambda: session.ls("a.log"), NotADirectoryError, 20),
    ]:
        with pytest.raises(kind) as told:
            run()
        assert isinstance(told.value, diskside.DisksideError) and told.value.errno == errno
        assert type(pickle.loads(pickle.dumps(told.value))) is type(told.value)


def test_a_server_that_is_not_there_is_named():
    with diskside.connect("diskside://127.0.0.1:1/data", connect_timeout=2) as session:
        with pytest.raises(OSError, match="127.0.0.1:1"):
            session.run("stats64", "n.u64")


def test_a_server_that_vanishes_is_an_error(directory):
    server = diskside.serve(directory)
    with server.connect(connect_timeout=1, loss_timeout=0.2) as session:
        assert session.run("stats64", "n.u64", place="device").count == 100_000
        server.close()
        with pytest.raises(OSError):
            session.run("stats64", "n.u64", place="device", timeout=60)


def test_wrong_calls_say_what_is_wrong(session):
    for run, told in [
        (lambda: session.run("stats64", "n.u64", place="near"), 'place: "near" is none of auto, host, device'),
        (lambda: session.run("stats64", "n.u64", chunk="eight"), "chunk: 'eight' is no size; write bytes, or text such as '8MiB'"),
        (lambda: session.run("stats64", "n.u64", chunk=-1), "chunk: -1 is no size: it is from 0 to 2\\*\\*64 - 1"),
        (lambda: session.run("stats64", "n.u64", threads=0), "threads: 0 is not from 1 to 1024"),
        (lambda: session.run("stats64", "n.u64", split="words"), 'split: "words" is none of lines, bytes, whole'),
        (lambda: session.run("stats64", "n.u64", state=("", 8)), "state: it has a name of 1 to 64 bytes"),
        (lambda: session.run("stats64", "n.u64", header=True), "header: True is none of auto, none, npy"),
        (lambda: session.run("stats64", "n.u64", state=5), "state: 5 is not a name and a size"),
        (lambda: session.run("stats64", "n.u64", timeout="soon"), "timeout: 'soon' is no number of seconds"),
        (lambda: session.run("stats64", "n.u64", args=[1]), "stats64: args: \\[1\\] is not a dictionary"),
        (lambda: session.run("stats64", "n.u64", progress=5), "progress: 5 is neither True nor a function"),
        (lambda: session.run("stats64", [None]), "None is no file: give a path, a URL"),
        (lambda: session.run("stats64", []), "there are no files to run over"),
        (lambda: session.run("stats64", "http://x/y"), "is no URL that is known here"),
        (lambda: session.write("a", "text"), "str has no bytes: text becomes bytes by its encode\\(\\)"),
        (lambda: session.open("n.u64").write(0, b""), "n.u64: it was opened for reading; open it with the mode r\\+"),
        (lambda: session.open("n.u64").truncate(0), "n.u64: it was opened for reading"),
        (lambda: diskside.combine("stats64", [5]), "combine: 5 is no result of a function"),
        (lambda: diskside.connect(loss_timeout="long"), "loss_timeout: 'long' is no number of seconds"),
        (lambda: diskside.serve(".", listen="0.0.0.0:0"), "say so with insecure=True"),
        (lambda: diskside.connect("server/data"), "connect: 'server/data' is no URL"),
        (lambda: diskside.connect(policy="best"), "policy: `best` is no policy"),
    ]:
        with pytest.raises(diskside.UsageError, match=told):
            run()


def test_what_is_missing_above_and_below_is_said(session, directory):
    with pytest.raises(FileNotFoundError, match="no-such/a.log: .* make the directory first, with mkdir"):
        session.write("no-such/a.log", b"")
    (directory / "full").mkdir()
    (directory / "full/a.log").touch()
    with pytest.raises(OSError, match="Directory not empty.*recursive=True"):
        session.remove("full")


def test_without_tqdm_the_remedy_is_said(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(diskside.UsageError, match="pip install tqdm"):
        session.run("stats64", "n.u64", progress=True)


def test_a_file_that_is_replaced_while_it_is_read_has_changed(server, session, directory):
    """It was an IoError, as of a server that is lost."""
    seen = set()
    for version in range(60):
        (directory / "next").write_bytes(bytes([version]) * (8 << 20))
        job = session.open("replaced").submit_read(0, 8 << 20) if version else None
        (directory / "next").rename(directory / "replaced")
        if job is not None:
            try:
                read = bytes(job.result())
                assert read == read[:1] * (8 << 20), "no two versions are ever mixed"
                seen.add("whole")
            except diskside.ChangedError:
                seen.add("changed")
        if len(seen) == 2:
            break
    assert "whole" in seen
