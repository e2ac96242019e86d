"""Jobs, asyncio, time limits, interruptions, threads and processes."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import diskside
import pytest

FOREVER = {"budget": 2**63}
#: Longer than anything here takes, on however busy a machine.
PATIENCE = 60


def test_a_job_goes_on_meanwhile(session):
    job = session.submit("stats64", "n.u64")
    called = threading.Event()
    job.add_done_callback(lambda done: called.set() if done is job else None)
    assert job.result(PATIENCE).count == 100_000 and job.result().count == 100_000
    assert job.done() and job.done_bytes == 800_000
    assert called.wait(PATIENCE)
    job.cancel()
    assert job.result().count == 100_000


@pytest.mark.parametrize("place", ["host", "device"])
def test_what_is_cancelled_ends(session, endless, place):
    job = session.submit(endless, "n.u64", place=place, **FOREVER)
    assert not job.done()
    with pytest.raises(TimeoutError, match="the request has not ended within 0.01 s; it goes on"):
        job.result(0.01)
    job.cancel()
    with pytest.raises(diskside.CancelledError):
        job.result(PATIENCE)


@pytest.mark.parametrize("place", ["host", "device"])
def test_time_limits_stop_the_function(session, endless, place):
    with pytest.raises(diskside.DeadlineError) as told:
        session.run(endless, "n.u64", place=place, deadline=0.05, **FOREVER)
    assert told.value.trap.kind == "deadline"
    with pytest.raises(TimeoutError, match="endless: it had not ended within 0.05 s, and was stopped"):
        session.run(endless, "n.u64", place=place, timeout=0.05, **FOREVER)
    with pytest.raises(TimeoutError, match="was stopped"):
        session.run(endless, "n.u64", place=place, timeout=0.05, progress=lambda done, total: None, **FOREVER)


def test_many_are_awaited_at_once(session):
    async def main():
        jobs = [session.submit("stats64", "n.u64") for _ in range(10)]
        return await asyncio.gather(*jobs)

    assert {result.sum for result in asyncio.run(main())} == {4_999_950_000}


def test_several_are_waited_for(session, endless):
    with session.open("n.u64") as file:
        jobs = [file.submit_read(8 * at, 8) for at in range(20)] + [session.submit("stats64", "nothing")]
        assert diskside.wait(jobs, PATIENCE) == (jobs, [])
        # Those that have ended need not be waited for.
        assert diskside.wait(iter(jobs), 0) == (jobs, []) and diskside.wait([]) == ([], [])
        assert [bytes(job.result())[0] for job in jobs[:3]] == [0, 1, 2]
    slow, quick = session.submit(endless, "n.u64", **FOREVER), session.submit("stats64", "n.u64")
    assert diskside.wait([slow, quick], PATIENCE, first=True) == ([quick], [slow])
    assert diskside.wait([slow], 0.05) == ([], [slow])
    slow.cancel()
    assert diskside.wait([slow], PATIENCE) == ([slow], [])
    with pytest.raises(diskside.UsageError, match="3 is no job: give what submit and submit_read gave"):
        diskside.wait([3])
    with pytest.raises(diskside.UsageError, match="timeout: nan is no number of seconds"):
        diskside.wait([quick], float("nan"))


def client_threads() -> int:
    """Threads of sessions; the server of the tests has others in the same process, which it begins when it likes."""
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(Path(f"/proc/self/task/{task}/comm").read_text())
    return sum(name.startswith(("diskside", "nvme-")) for name in names)


def test_a_job_at_a_server_takes_no_thread(session, endless):
    """Each began one, which took longer than a short run does."""
    with pytest.raises(TimeoutError):
        session.run(endless, "n.u64", place="device", timeout=0.2, **FOREVER)
    before = client_threads()
    jobs = [session.submit(endless, "n.u64", place="device", **FOREVER) for _ in range(40)]
    assert client_threads() < before + 10
    assert not any(job.done() for job in jobs)
    for job in jobs:
        job.cancel()
    for job in jobs:
        with pytest.raises(diskside.CancelledError):
            job.result(PATIENCE)


def test_errors_are_raised_where_it_is_awaited(session):
    async def main():
        with pytest.raises(diskside.BudgetError):
            await session.submit("stats64", "n.u64", budget=1)

    asyncio.run(main())


def test_a_cancelled_task_stops_its_function(session, endless):
    job = session.submit(endless, "n.u64", place="device", **FOREVER)

    async def wait():
        await job

    async def main():
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    with pytest.raises(diskside.CancelledError):
        job.result(PATIENCE)


def test_a_job_that_nobody_keeps_is_stopped(directory, endless):
    with diskside.serve(directory, engines=1) as server, server.connect() as session:
        job = session.submit(endless, "n.u64", place="device", **FOREVER)
        del job
        # There is one engine.
        assert session.run("stats64", "n.u64", place="device", timeout=PATIENCE).count == 100_000


def test_ctrl_c_stops_the_function(directory):
    program = f"""
import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
import diskside, os, signal, threading
from conftest import ENDLESS
function = diskside.function(source=ENDLESS)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    diskside.run(function, {str(directory / "n.u64")!r}, budget=2**63)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


#: For programs: has Ctrl-C end a wait, and prints whether it did at once.
INTERRUPTED = """
import os, signal, threading, time

def interrupted(wait):
    began = time.monotonic()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        wait()
    except KeyboardInterrupt:
        # A function has a second to end, and the machine may be busy.
        print("interrupted", "at once" if time.monotonic() - began < 4 else time.monotonic() - began, flush=True)
"""


def test_ctrl_c_ends_the_wait_for_a_server_that_stands_still(directory):
    """Connecting, opening, listing and writing went on for as long as the server was not given up, which takes a minute, and a run or
    read that Ctrl-C had interrupted was waited for for five seconds more."""
    program = f"""{INTERRUPTED}
import diskside, fsspec, signal, subprocess, sys
serve = "import diskside, sys; s = diskside.serve({str(directory)!r}, listen='127.0.0.1:0'); print(s.address, flush=True); sys.stdin.read()"
server = subprocess.Popen([sys.executable, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
url = f"diskside://{{server.stdout.readline().strip()}}/data"
known = diskside.connect(url)
known.ls()
opened = fsspec.open(f"{{url}}/n.u64").open()
server.send_signal(signal.SIGSTOP)
new = diskside.connect(url)
for wait in [
    known.ls,
    lambda: known.open("n.u64"),
    lambda: known.read("n.u64"),
    lambda: known.run("stats64", "n.u64"),
    lambda: known.write("new", bytes(1 << 20)),
    opened.read,
    new.ls,
    lambda: new.write("new", b""),
]:
    interrupted(wait)
server.kill()
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("interrupted at once\n" * 8, "")


def test_ctrl_c_ends_scans_at_a_server_that_stands_still(tmp_path):
    """By the faces that wait in Python's main thread; DuckDB and Polars wait in threads of their own."""
    program = f"""{INTERRUPTED}
import diskside, diskside.pyarrow, pyarrow, pyarrow.parquet, signal, subprocess, sys
rows = pyarrow.table({{"n": range(1_000_000)}})
pyarrow.parquet.write_table(rows, {str(tmp_path / "t.parquet")!r}, row_group_size=100_000, compression="none", use_dictionary=False)
serve = "import diskside, sys; s = diskside.serve({str(tmp_path)!r}, listen='127.0.0.1:0'); print(s.address, flush=True); sys.stdin.read()"
server = subprocess.Popen([sys.executable, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
session = diskside.connect(f"diskside://{{server.stdout.readline().strip()}}/data")
waits = []
for place in ["device", "host"]:
    scan = session.scan("t.parquet", place=place)
    dataset = diskside.pyarrow.dataset("t.parquet", session=session, place=place)
    waits += [
        scan.arrow,
        session.sql("select n from t where n * n % 7 = 3", t=scan).arrow,
        session.sql("select sum(n % 2) from t", t=scan).arrow,
        lambda dataset=dataset: dataset.to_table(),
    ]
for wait in waits:
    wait()
server.send_signal(signal.SIGSTOP)
for wait in waits:
    interrupted(wait)
server.kill()
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("interrupted at once\n" * 8, "")


def test_threads_share_a_session(session):
    with ThreadPoolExecutor(8) as pool:
        sums = pool.map(lambda _: session.run("stats64", "n.u64").sum, range(32))
    assert set(sums) == {4_999_950_000}


def test_a_run_inside_a_callback(session):
    seen = []
    ended = threading.Event()

    def again(job):
        seen.append(session.run("stats64", "n.u64", range=(0, 8)).count)
        ended.set()

    session.submit("stats64", "n.u64").add_done_callback(again)
    assert ended.wait(PATIENCE) and seen == [1]


def _in_child(session, file, job, url, answers):
    results = [session.run("stats64", "n.u64").count, file.run("stats64").count, diskside.run("stats64", url).count]
    # What was asked for before is here.
    answers.put([*results, job.result().count])


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_forked_process_connects_again(session, server):
    """Threads do not survive a fork: a session of before it waited for them without end, also when the process ended."""
    file, url = session.open("n.u64"), f"{server.url}/n.u64"
    assert diskside.run("stats64", url).count == 100_000
    job = session.submit("stats64", "n.u64")
    job.result()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(session, file, job, url, answers))
    child.start()
    assert answers.get(timeout=PATIENCE) == [100_000] * 4
    child.join(PATIENCE)
    assert child.exitcode == 0
    assert session.run("stats64", "n.u64").count == 100_000


def test_what_is_under_way_does_not_go_on_in_a_forked_process(session, endless):
    """It was waited for there without end."""
    job = session.submit(endless, "n.u64", **FOREVER)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def in_child():
        try:
            job.result()
        except diskside.UsageError as error:
            answers.put((str(error), repr(job)))

    child = context.Process(target=in_child)
    child.start()
    told, shown = answers.get(timeout=PATIENCE)
    assert told.startswith("it was made before this process was forked") and "forked from" in shown
    child.join(PATIENCE)
    assert child.exitcode == 0
    # It goes on where it was made.
    assert not job.done()
    job.cancel()


def test_what_does_not_pickle_says_what_does(session, server):
    with pytest.raises(TypeError, match="pickle its URL, and connect there"):
        pickle.dumps(session)
    with pytest.raises(TypeError, match="pickle its URL"):
        pickle.dumps(server)
    with pytest.raises(TypeError, match="pickle its result"):
        pickle.dumps(session.submit("stats64", "n.u64"))
    file = pickle.loads(pickle.dumps(session.open("a.log")))
    assert file.read(0, 3) == b"one"


def test_a_closed_session_says_so(server):
    session = server.connect()
    session.close()
    session.close()
    with pytest.raises(ValueError, match="the session is closed"):
        session.run("stats64", "n.u64")


def test_what_a_callback_raises_is_shown(session, endless, monkeypatch):
    shown = threading.Semaphore(0)
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: (told.append(raised.exc_type), shown.release()))
    job = session.submit(endless, "n.u64", place="host", **FOREVER)
    job.add_done_callback(lambda job: 1 / 0)
    job.cancel()
    assert shown.acquire(timeout=PATIENCE)
    job.add_done_callback(lambda job: 1 / 0)
    assert told == [ZeroDivisionError] * 2


def test_a_program_ends_with_work_under_way(directory):
    """Sessions, servers and jobs that nobody closed must not keep a program from its end."""
    program = f"""
import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
import diskside
from conftest import ENDLESS
server = diskside.serve({str(directory)!r})
session = server.connect()
jobs = [session.submit(diskside.function(source=ENDLESS), "n.u64", place=place, budget=2**63) for place in ("host", "device")]
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_the_import_is_quick_and_brings_nothing(directory):
    """What others are needed for is imported when it is asked for."""
    program = "import sys, diskside; print([m for m in ('numpy', 'pyarrow', 'pandas', 'fsspec', 'zarr', 'asyncio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "[]\n", done.stderr


def test_thousands_of_jobs_at_once_all_end_well(server, directory):
    """More than a connection lets wait: a call that was one too many failed as busy, where it had but to wait for its turn."""
    with diskside.connect(server.url) as session:
        jobs = [session.submit("wc", "a.log") for _ in range(2000)]
        assert {job.result(60)["lines"] for job in jobs} == {3}
