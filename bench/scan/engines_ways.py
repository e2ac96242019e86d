"""A client of bench/scan/engines: one engine that reads in one way. Each line of its input names a query; a line of JSON answers it.

Everything is opened for each query: the time is from there to the whole result in memory, without the start of Python and imports.
"""

import json
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import engines_nfs  # noqa: E402
from engines_queries import QUERIES  # noqa: E402

#: In the order of the report.
WAYS = {
    "pushed": "the engine over Diskside, with what a server can do done there",
    "host": "the same, and nothing is done at the server: place='host'",
    "fsspec": "the engine over Diskside's file system for fsspec",
    "first": "the engine over copies in fsspec's filecache, which is empty before each run",
    "again": "the engine over the copies in fsspec's filecache, which the query finds there",
    "http": "the engine over HTTP ranges of nginx: its own reader, if it has one, or fsspec's",
    "nfs": "the engine over a file system for fsspec that reads by NFS, as libnfs does",
}
LOCAL = ["first", "again"]
CSV = "csv"


def main():
    wanted = json.loads(sys.argv[1])
    client = Client(**wanted)
    for line in sys.stdin:
        told = json.loads(line)
        try:
            if told.get("prepare"):
                client.prepare()
                answer = {}
            else:
                answer = client.run(told["query"])
        # The benchmark ends with it.
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer, default=str), flush=True)


class Client:
    def __init__(self, engine, way, server, http, mount, cache):
        self.engine, self.way = engine, way
        self.server, self.http, self.mount, self.cache = server, http, mount, Path(cache)
        self.address = server.rpartition(":")[0]
        self.opened = []

    def prepare(self):
        """Before a run, outside of its time."""
        if self.way == "first":
            shutil.rmtree(self.cache, ignore_errors=True)

    def run(self, name):
        query = QUERIES[name]
        kind = CSV if name == CSV else "parquet"
        work = getattr(self, f"run_{self.engine}")
        began = time.perf_counter()
        try:
            if self.way in ("first", "again"):
                self.copy([f"filecache::diskside://{self.server}/data/{table}.{kind}" for table in query.tables])
            found = work(query, kind)
            seconds = time.perf_counter() - began
        finally:
            for one in self.opened:
                one.close()
            self.opened.clear()
        return {"seconds": seconds, "rows": rows_of(found)}

    def run_duckdb(self, query, kind):
        import duckdb

        connection = duckdb.connect()
        self.opened.append(connection)
        if self.way in ("pushed", "host"):
            for table in query.tables:
                connection.register(table, self.dataset(table, kind))
        else:
            if (files := self.files()) is not None:
                connection.register_filesystem(with_file_for_each_thread(files))
            read = "read_csv" if kind == CSV else "read_parquet"
            for table in query.tables:
                connection.execute(f"create view {table} as from {read}('{self.url(table, kind)}')")
        return connection.sql(query.sql).to_arrow_table()

    def run_polars(self, query, kind):
        return query.polars({table: self.frame(table, kind) for table in query.tables})

    def frame(self, table, kind):
        import diskside.polars
        import polars as pl
        import pyarrow.dataset

        if self.way in ("pushed", "host"):
            return diskside.polars.scan_parquet(self.url(table, kind), session=self.session(), place=self.place())
        files = self.files(own=True)
        if files is None:
            scan = pl.scan_csv if kind == CSV else pl.scan_parquet
            return scan(self.url(table, kind), **({"try_parse_dates": True} if kind == CSV else {}))
        if kind == CSV:
            return pl.scan_csv(files.open(self.path(table, kind), "rb"), try_parse_dates=True)
        return pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(self.path(table, kind), filesystem=files))

    def run_pyarrow(self, query, kind):
        return query.pyarrow({table: self.dataset(table, kind) for table in query.tables})

    def dataset(self, table, kind):
        import diskside.pyarrow
        import pyarrow.dataset

        if self.way in ("pushed", "host"):
            return diskside.pyarrow.dataset(self.url(table, kind), session=self.session(), place=self.place())
        return pyarrow.dataset.dataset(self.path(table, kind), filesystem=self.files(), format=kind)

    def run_sql(self, query, kind):
        import datafusion

        if self.way in ("pushed", "host"):
            session = self.session()
            scans = {table: session.scan(self.url(table, kind), place=self.place()) for table in query.tables}
            return session.sql(query.sql, **scans).arrow()
        context = datafusion.SessionContext()
        for table in query.tables:
            # Its own reader of HTTP demands TLS.
            if self.files() is not None:
                context.register_dataset(table, self.dataset(table, kind))
                continue
            register = context.register_csv if kind == CSV else context.register_parquet
            register(table, self.url(table, kind))
        return context.sql(query.sql).to_arrow_table()

    def run_scan(self, query, kind):
        session, place = self.session(), self.place()
        return query.scan(lambda table, *columns, **options: session.scan(self.url(table, kind), *columns, place=place, **options))

    def session(self):
        import diskside

        session = diskside.connect()
        self.opened.append(session)
        return session

    def place(self):
        return "auto" if self.way == "pushed" else "host"

    def url(self, table, kind):
        """As the engine has it."""
        if self.way == "http":
            return f"{self.http}/{table}.{kind}"
        if self.way in LOCAL:
            return f"{self.cache}/{table}.{kind}"
        if self.way == "nfs":
            return f"nfs://{self.address}/{table}.{kind}"
        return f"diskside://{self.server}/data/{table}.{kind}"

    def path(self, table, kind):
        """As a file system for fsspec has it."""
        return self.url(table, kind).removeprefix("diskside://").removeprefix("nfs://")

    def files(self, own=False):
        """The file system for fsspec; None: the engine opens files by itself, or by its `own` reader of HTTP."""
        if self.way in LOCAL or (self.way == "http" and own):
            return None
        if self.way == "http":
            return over_http()
        if self.way == "nfs":
            return engines_nfs.files_of(self.address, self.mount)
        from diskside.filesystem import DisksideFileSystem

        return DisksideFileSystem(session=self.session(), skip_instance_cache=True)

    def copy(self, urls):
        """Has fsspec's cache copy the files that it does not have."""
        import fsspec
        from diskside.filesystem import DisksideFileSystem

        fsspec.register_implementation("diskside", DisksideFileSystem, clobber=True)
        options = {"cache_storage": str(self.cache), "same_names": True, "skip_instance_cache": True}
        fsspec.open_local(urls, filecache=options, diskside={"session": self.session(), "skip_instance_cache": True})


def over_http():
    """fsspec's file system for HTTP, with what DuckDB asks for besides."""
    from email.utils import parsedate_to_datetime

    from fsspec.implementations.http import HTTPFileSystem

    class Dated(HTTPFileSystem):
        def modified(self, path):
            return parsedate_to_datetime(self.info(path)["Last-Modified"])

    return Dated(skip_instance_cache=True)


def with_file_for_each_thread(files):
    """The file system with files that DuckDB's threads can share: one sets the position, and another reads before the first does."""
    opened = files.open
    files.open = lambda *words, **options: FileForEachThread(lambda: opened(*words, **options))
    return files


class FileForEachThread:
    def __init__(self, opened):
        self._opened, self._own, self._all = opened, threading.local(), []
        self._file()

    def _file(self):
        if not hasattr(self._own, "file"):
            self._own.file = self._opened()
            self._all.append(self._own.file)
        return self._own.file

    def __getattr__(self, name):
        return getattr(self._file(), name)

    def close(self):
        for file in self._all:
            file.close()


def rows_of(found):
    """Rows of an Arrow table or a frame of Polars."""
    if hasattr(found, "get_columns"):
        found = found.to_arrow()
    columns = [column.to_pylist() for column in found.columns]
    return list(zip(*columns, strict=True))


if __name__ == "__main__":
    main()
