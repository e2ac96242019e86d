"""Queries of SQLite over a database of a server, timed: what bench/sqlite/run starts where the hosts are.

    client.py EXTENSION DISKSIDE URL DIRECTORY PLAN

PLAN is JSON: which way, and how often. Each round opens the database, which nothing of this process has cached, and prints the time of
all of it. SQLite has its own page cache, as by default.
"""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time

OPTIONS = {"vfs": "", "plain": "&ahead_kib=0&around_kib=0"}


def main():
    extension, diskside, url, directory, plan = sys.argv[1:]
    plan = json.loads(plan)
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(extension)
    local = os.path.join(directory, "copied.db")

    def connect(way, more=""):
        if way == "copy":
            subprocess.run([diskside, "cp", url, local], check=True, stdout=subprocess.DEVNULL)
            return sqlite3.connect(f"file:{local}?immutable=1", uri=True)
        return sqlite3.connect(f"file:{url}?vfs=diskside{OPTIONS[way]}{more}", uri=True)

    # The connection to the server is made once in a process.
    try:
        connect("vfs").close()
    except sqlite3.Error as error:
        sys.exit(f"{error}: {loader.execute('SELECT diskside_error()').fetchone()[0]}")
    found = []
    for query in plan["queries"]:
        began = time.perf_counter()
        with contextlib.closing(connect(plan["way"], plan.get("more", ""))) as connection:
            rows = connection.execute(query).fetchall()
            took = time.perf_counter() - began
            trips = connection.execute("PRAGMA diskside_stats").fetchone()
        counts = json.loads(trips[0]) if trips else {}
        found.append({"ms": took * 1e3, "rows": repr(rows), "trips": counts.get("trips"), "bytes": counts.get("bytes")})
        with contextlib.suppress(FileNotFoundError):
            os.unlink(local)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
