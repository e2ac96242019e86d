"""Exports of what is below a key of a bucket, or of a web server: files as any other, but that nobody writes."""

import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def all_of_them(lab, programs):
    logs = Logs(lab, programs)
    with lab.serve("--export=logs=s3://data/logs", f"--export=web=http://127.0.0.1:{lab.http}/logs",
                   f"--export=whole=http://127.0.0.1:{lab.http}/whole") as (url, server):
        logs.server = url
        nobody_serves(server)
        answers(logs)
        listings(logs)
        what_was_read_is_kept(logs)
        a_scan(logs)
        what_is_refused(logs)
        a_file_that_is_replaced_all_the_time(lab, logs)
    print("exports of objects: files as any other")


class Logs:
    """Some hundred files in a bucket, with a web server and on this machine."""

    def __init__(self, lab, programs):
        self.programs, self.here = programs, lab.web / "logs"
        lines = lab.text.splitlines(keepends=True)
        self.files = {f"2026/{day:03}.log": b"".join(lines[day * 40:day * 40 + 90]) for day in range(1100)}
        self.files |= {"2026/long.log": lab.text, "2026/empty.log": b"", "2025/old.log": b"one ERROR\n", "über uns.txt": b"ERROR\n"}
        self.files["prices.csv"] = b"day,cents\n" + b"".join(b"%d,%d\n" % (day, day * 7) for day in range(3000))
        for name, body in self.files.items():
            path = self.here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: lab.put_s3(f"logs/{item[0]}", item[1]), self.files.items()))
        lab.put_s3("logs/2024/", b"")
        lab.put_s3("elsewhere/secret.log", b"ERROR\n")

    def run(self, *arguments, fails=None):
        command = [self.programs / "diskside", *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if fails is None:
            assert ended.returncode == 0, (command, ended.stderr)
            return ended.stdout
        assert ended.returncode != 0 and fails in ended.stderr, (command, ended.stdout, ended.stderr)
        return ended.stderr

    def rows(self, *arguments):
        return json.loads(self.run("run", *arguments, "--json"))["rows"]

    def at(self, export, path):
        return f"{self.server}/{export}/{path}"


def nobody_serves(server):
    """A server that root started took the URL for a directory that the account nobody cannot open, and served as root."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    [users] = [line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")]
    assert "0" not in users, f"a server of a store alone runs as root: {users}"


def answers(logs):
    """The same from objects as from files, at the server and with the host."""
    for path in ["2026/long.log", "2026/007.log", "2026/empty.log", "über uns.txt"]:
        here = logs.rows("grep_count", logs.here / path, "--arg", "pattern=ERROR")
        for export in ["logs", "web"]:
            for place in ["device", "host", "auto"]:
                got = logs.rows("grep_count", logs.at(export, path), "--arg", "pattern=ERROR", "--where", place)
                assert got == here, (export, path, place, got, here)
            half = ["--arg", "pattern=ERROR", "--length", len(logs.files[path]) // 2]
            assert logs.run("run", "grep", logs.at(export, path), *half) == logs.run("run", "grep", logs.here / path, *half)
    for pattern in ["2026/0*.log", "**/*.log", "202[56]/o*.log"]:
        here = logs.rows("grep_count", *sorted(logs.here.glob(pattern)), "--arg", "pattern=ERROR")
        for place in ["device", "host", "auto"]:
            got = logs.rows("grep_count", logs.at("logs", pattern), "--arg", "pattern=ERROR", "--where", place)
            assert got == here, (pattern, place, got, here)
    copied = logs.here.parent / "copied.log"
    logs.run("cp", logs.at("logs", "2026/long.log"), copied)
    assert copied.read_bytes() == logs.files["2026/long.log"]


def listings(logs):
    """Directories are where keys go on, and a page of a store is no page of ours."""
    assert names(logs, "") == ["2024", "2025", "2026", "prices.csv", "über uns.txt"]
    assert names(logs, "2026") == sorted(path[5:] for path in logs.files if path.startswith("2026/"))
    assert names(logs, "2024") == []
    found = json.loads(logs.run("ls", "--json", logs.at("logs", "2025/old.log")))
    assert json.dumps(found).count("old.log") >= 1, found
    logs.run("ls", logs.at("logs", "2023"), fails="2023")
    logs.run("ls", logs.at("web", ""), fails="web servers give no lists")
    logs.run("run", "wc", logs.at("web", "2026/*.log"), fails="web servers give no lists")


def names(logs, path):
    listed = json.loads(logs.run("ls", "--json", logs.at("logs", path)))
    return sorted(entry["name"].rstrip("/").rpartition("/")[2] for entry in listed["entries"])


def what_was_read_is_kept(logs):
    """A function over an object that another one has read asks the store for no byte of it."""
    def kept():
        counters = json.loads(logs.run("top", "--json", "--count", "1", logs.server))
        return counters["cache_hits"], counters["cache_misses"]

    logs.run("run", "wc", logs.at("logs", "2026/long.log"), "--where", "device")
    before = kept()
    logs.run("run", "grep_count", logs.at("logs", "2026/long.log"), "--arg", "pattern=WARN", "--where", "device")
    after = kept()
    assert after[1] == before[1] and after[0] > before[0], (before, after)
    for dropped in [logs.server, logs.at("logs", "2026/long.log"), logs.at("logs", "2026/l*.log")]:
        before = kept()
        logs.run("clear", "--cache", dropped)
        logs.run("run", "grep_count", logs.at("logs", "2026/long.log"), "--arg", "pattern=WARN", "--where", "device")
        assert kept()[1] > before[1], f"what was dropped is read anew: {dropped}"
    logs.run("clear", "--cache", logs.at("logs", "2026/007.log"))
    before = kept()
    logs.run("run", "wc", logs.at("logs", "2026/long.log"), "--where", "device")
    assert kept()[1] == before[1], "what is kept of others stays"


def a_scan(logs):
    """The process that scans has no file: it asks for what it needs."""
    plan = ["--where", "cents > 20900", "--aggregate", "count(*)", "--format", "csv"]
    here = logs.run("scan", logs.here / "prices.csv", *plan)
    assert logs.run("scan", logs.at("logs", "prices.csv"), "--place", "device", *plan) == here


def what_is_refused(logs):
    """Each with what is wrong and where."""
    logs.run("run", "wc", logs.at("logs", "2026/none.log"), fails="none.log")
    logs.run("run", "wc", logs.at("web", "2026/none.log"), fails="none.log")
    logs.run("run", "wc", logs.at("logs", "2026"), fails="Is a directory")
    logs.run("run", "wc", logs.at("logs", "../elsewhere/secret.log"), fails="elsewhere")
    logs.run("run", "wc", logs.at("logs", "2026/../../elsewhere/secret.log"), fails="elsewhere")
    logs.run("run", "wc", logs.at("whole", "text.log"), fails="no ranges")
    logs.run("cp", logs.here / "2025/old.log", logs.at("logs", "new.log"), fails="read-only")
    logs.run("run", "wc", logs.at("logs", "2025/old.log"), "--out", logs.at("logs", "counted"), fails="read-only")
    command = [logs.programs / "diskside", "serve", "--listen", "127.0.0.1:0", "--export", "a=s3://data/logs,rw"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and "objects of a store are read-only" in ended.stderr, ended.stderr


def a_file_that_is_replaced_all_the_time(lab, logs):
    """A result is of one version, or there is none."""
    versions = [b"a" * 3_000_000, b"b\n" * 1_000_000]
    whole = [[{"lines": 0, "words": 1, "bytes": 3_000_000}], [{"lines": 1_000_000, "words": 1_000_000, "bytes": 2_000_000}]]
    lab.put_s3("logs/changing", versions[0])
    over = threading.Event()

    def replace():
        turn = 0
        while not over.is_set():
            turn += 1
            lab.put_s3("logs/changing", versions[turn % 2])

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        for attempt in range(30):
            place = ["device", "host", "auto"][attempt % 3]
            command = [logs.programs / "diskside", "run", "wc", logs.at("logs", "changing"), "--where", place, "--json"]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
            if ended.returncode == 0:
                assert json.loads(ended.stdout)["rows"] in whole, (place, ended.stdout)
            else:
                # It was another one when it was read, or already when it was opened.
                assert "changed" in ended.stderr or "which has" in ended.stderr, ended.stderr
    finally:
        over.set()
        replacing.join()
