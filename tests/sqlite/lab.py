"""A server with an exported directory, and connections of SQLite to databases in it."""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import tempfile
import urllib.parse
from pathlib import Path

DISKSIDE, EXTENSION = os.environ["DISKSIDE"], os.environ["DISKSIDE_SQLITE"]


def load():
    """Registers the VFS in this process, as a user does."""
    connection = sqlite3.connect(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(EXTENSION.removesuffix(".so"))
    return connection


LOADER = load()


def last_error():
    return LOADER.execute("SELECT diskside_error()").fetchone()[0]


class Lab:
    """A directory, and a server of it as the export `data`."""

    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="diskside-sqlite-")))
        self.address, self.server = "127.0.0.1:0", None
        self.stack.callback(self.end)
        self.serve()

    def serve(self):
        """Starts the server, again at the same address."""
        command = [DISKSIDE, "serve", "--export", f"data={self.directory}", "--listen", self.address]
        with open(self.directory / "server.log", "w+", encoding="utf-8") as log:
            self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            line = self.server.stdout.readline()
            found = re.search(r"diskside://([^/]+)/data", line)
            if found is None:
                raise RuntimeError(f"the server does not start: {line}{log.read()}")
        self.address = found[1]

    def end(self):
        if self.server is not None:
            self.server.kill()
            self.server.communicate()
            self.server = None

    def close(self):
        self.stack.close()

    def uri(self, name, **parameters):
        query = urllib.parse.urlencode({"vfs": "diskside", **parameters})
        return f"file:diskside://{self.address}/data/{name}?{query}"

    def connect(self, name, **parameters):
        return sqlite3.connect(self.uri(name, **parameters), uri=True, check_same_thread=False)

    def plain(self, name):
        """The same file, read as one that does not change, as the VFS does."""
        return sqlite3.connect(f"file:{self.directory / name}?immutable=1", uri=True)

    def make(self, name, page_size=4096, auto_vacuum=0):
        """A new database at the server."""
        connection = sqlite3.connect(self.directory / name, isolation_level=None)
        connection.execute(f"PRAGMA page_size={page_size}")
        connection.execute(f"PRAGMA auto_vacuum={auto_vacuum}")
        # Only the tests read it: nothing has to survive.
        connection.execute("PRAGMA synchronous=OFF")
        return connection


def statistics(connection):
    return json.loads(connection.execute("PRAGMA diskside_stats").fetchone()[0])


def outcome(connect, queries):
    """The rows or the errors of some queries over a connection, or the error of opening it."""
    try:
        connection = connect()
    except sqlite3.Error as error:
        return [told(error)]
    with contextlib.closing(connection):
        return [answer(connection, query) for query in queries]


def answer(connection, query):
    try:
        return connection.execute(query).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return told(error)


def told(error):
    return f"{type(error).__name__}: {error}"
