"""Databases that change, servers that vanish, and all that a program does beside reading."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import unittest

from lab import EXTENSION, LOADER, Lab, last_error, statistics


class Service(unittest.TestCase):
    def setUp(self):
        self.lab = Lab()
        self.addCleanup(self.lab.close)

    def table(self, name="t.db", rows=2000, letter="a", mode="DELETE", page_size=4096):
        connection = self.lab.make(name, page_size)
        self.addCleanup(connection.close)
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, x)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", ((id, letter * 500) for id in range(rows)))
        connection.execute("COMMIT")
        return connection

    def open(self, name="t.db", **parameters):
        connection = self.lab.connect(name, **parameters)
        self.addCleanup(connection.close)
        return connection

    def refused(self, name, **parameters):
        with self.assertRaises(sqlite3.OperationalError) as caught:
            self.open(name, **parameters)
        self.assertIn("unable to open database file", str(caught.exception))
        return last_error()

    def failed(self, connection, query):
        with self.assertRaises(sqlite3.OperationalError) as caught:
            connection.execute(query).fetchall()
        self.assertIn("disk I/O error", str(caught.exception))
        return last_error()

    def test_a_changed_database_is_an_error_and_never_a_mix(self):
        writer = self.table()
        before, other = self.open(), self.open()
        self.assertEqual(before.execute("SELECT x FROM t WHERE id = 3").fetchone()[0][0], "a")
        writer.execute("UPDATE t SET x = replace(x, 'a', 'b')")
        why = self.failed(before, "SELECT sum(length(x)) FROM t")
        self.assertIn("/data/t.db: the database changed since it was opened", why)
        self.failed(other, "SELECT count(*) FROM t WHERE x LIKE 'a%'")
        # Pages that are there are all of the version that was opened.
        self.assertEqual(before.execute("SELECT x FROM t WHERE id = 3").fetchone()[0][0], "a")
        after = self.open()
        self.assertEqual(after.execute("SELECT DISTINCT substr(x, 1, 1) FROM t").fetchall(), [("b",)])

    def test_a_replaced_database_is_read_to_its_end(self):
        """The file that is open keeps its data; the next connection reads the new one."""
        self.table()
        self.table("new.db", letter="n").close()
        before = self.open()
        os.replace(self.lab.directory / "new.db", self.lab.directory / "t.db")
        letters = None
        with contextlib.suppress(sqlite3.OperationalError):
            letters = before.execute("SELECT DISTINCT substr(x, 1, 1) FROM t").fetchall()
        self.assertIn(letters, ([("a",)], None))
        self.assertEqual(self.open().execute("SELECT DISTINCT substr(x, 1, 1) FROM t").fetchall(), [("n",)])

    def test_a_writer_beside_readers_never_gives_a_mix(self):
        writer = self.table(rows=300)
        ended = threading.Event()

        def write():
            own = sqlite3.connect(self.lab.directory / "t.db", isolation_level=None)
            own.execute("PRAGMA synchronous=OFF")
            letter = 0
            while not ended.is_set():
                own.execute("UPDATE t SET x = ?", (chr(97 + letter % 26) * 500,))
                letter += 1
                time.sleep(0.02)
            own.close()

        thread = threading.Thread(target=write)
        thread.start()
        whole, until = 0, time.monotonic() + 5
        try:
            while time.monotonic() < until and whole < 20:
                with contextlib.suppress(sqlite3.OperationalError):
                    with contextlib.closing(self.lab.connect("t.db")) as connection:
                        found = connection.execute("SELECT count(*), count(DISTINCT x) FROM t").fetchone()
                        self.assertEqual(found, (300, 1))
                        whole += 1
        finally:
            ended.set()
            thread.join()
        self.assertGreater(whole, 0, "nothing could be read beside a writer")
        writer.close()

    def test_a_write_ahead_log_has_to_be_written_back(self):
        writer = self.table(mode="WAL")
        why = self.refused("t.db")
        self.assertIn("write-ahead log", why)
        self.assertIn("wal_checkpoint(TRUNCATE)", why)
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.assertEqual(self.open().execute("SELECT count(*) FROM t").fetchone(), (2000,))
        writer.close()
        self.assertEqual((self.lab.directory / "t.db").read_bytes()[18:20], b"\x02\x02")
        self.assertEqual(self.open().execute("SELECT count(*) FROM t").fetchone(), (2000,))

    def test_a_journal_of_a_transaction_is_refused(self):
        writer = self.table()
        writer.execute("PRAGMA cache_size=5")
        writer.execute("BEGIN")
        writer.execute("UPDATE t SET x = 'b'")
        self.assertTrue((self.lab.directory / "t.db-journal").exists())
        self.assertIn("a transaction is changing it", self.refused("t.db"))
        writer.execute("ROLLBACK")
        writer.execute("PRAGMA journal_mode=PERSIST")
        writer.execute("UPDATE t SET x = 'c' WHERE id = 1")
        self.assertGreater((self.lab.directory / "t.db-journal").stat().st_size, 0)
        self.assertEqual(self.open().execute("SELECT x FROM t WHERE id = 1").fetchone(), ("c",))

    def test_a_symbolic_link_is_refused(self):
        """SQLite keeps journals beside what it leads to: rows of a transaction that went on were read by its name."""
        self.table()
        (self.lab.directory / "link.db").symlink_to("t.db")
        self.assertIn("it is a symbolic link", self.refused("link.db"))
        (self.lab.directory / "linked").symlink_to(".")
        self.assertEqual(self.open("linked/t.db").execute("SELECT count(*) > 0 FROM t").fetchone(), (1,))

    def test_nothing_is_written_but_temporary_tables(self):
        self.table()
        connection = self.open()
        for change in ("INSERT INTO t VALUES (-1, 1)", "DELETE FROM t", "CREATE TABLE u(x)", "VACUUM"):
            with self.assertRaisesRegex(sqlite3.OperationalError, "readonly|read-only"):
                connection.execute(change)
            connection.rollback()
        connection.execute("PRAGMA temp_store=FILE")
        connection.execute("PRAGMA cache_size=10")
        connection.execute("CREATE TEMP TABLE copied AS SELECT * FROM t")
        ordered = "SELECT count(*) FROM (SELECT DISTINCT x || id FROM copied ORDER BY x || id)"
        self.assertEqual(connection.execute(ordered).fetchone(), (2000,))

    def test_databases_here_and_there_are_joined(self):
        self.table()
        here = self.lab.directory / "here.db"
        with contextlib.closing(sqlite3.connect(here)) as connection:
            connection.execute("CREATE TABLE wanted(id)")
            connection.execute("INSERT INTO wanted VALUES (5), (6), (99999)")
            connection.commit()
        joined = "SELECT count(*) FROM wanted JOIN t USING (id)"
        local = sqlite3.connect(here, uri=True)
        self.addCleanup(local.close)
        local.execute("ATTACH ? AS far", (self.lab.uri("t.db"),))
        self.assertEqual(local.execute(joined).fetchone(), (2,))
        far = self.open()
        far.execute("ATTACH ? AS near", (str(here),))
        self.assertEqual(far.execute(joined).fetchone(), (2,))
        far.execute("INSERT INTO wanted VALUES (7)")
        self.assertEqual(far.execute(joined).fetchone(), (3,))

    def test_what_is_not_there_or_misspelt_says_so(self):
        self.assertIn("/data/absent.db", self.refused("absent.db"))
        self.table()
        self.assertIn("timeout=soon: a number from 1 to 3600", self.refused("t.db", timeout="soon"))
        with self.assertRaises(sqlite3.OperationalError):
            sqlite3.connect("file:diskside://?vfs=diskside", uri=True)
        self.assertIn("names no host", last_error())
        # An empty file is an empty database, and text is none.
        (self.lab.directory / "empty.db").touch()
        self.assertEqual(self.open("empty.db").execute("SELECT count(*) FROM sqlite_schema").fetchone(), (0,))
        (self.lab.directory / "text.db").write_text("not a database " * 1000)
        with self.assertRaisesRegex(sqlite3.DatabaseError, "not a database"):
            self.open("text.db").execute("SELECT 1 FROM sqlite_schema")

    def test_names_may_have_any_characters(self):
        name = "a b?&#%25 \u00e9.db"
        self.table(name, rows=5).close()
        # SQLite decodes the URI, and then the URL is decoded: a percent sign is written twice.
        written = "a b%3f&%23%252525 \u00e9.db"
        uri = f"file:diskside://{self.lab.address}/data/{written}?vfs=diskside"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            self.assertEqual(connection.execute("SELECT count(*) FROM t").fetchone(), (5,))

    def test_a_server_that_is_gone_is_an_error_in_bounded_time(self):
        self.table(rows=20_000)
        connection = self.open(timeout=2)
        connection.execute("SELECT x FROM t WHERE id = 1").fetchone()
        self.lab.end()
        began = time.monotonic()
        self.assertIn("/data/t.db", self.failed(connection, "SELECT sum(length(x)) FROM t"))
        self.refused("t.db", timeout=2)
        self.assertLess(time.monotonic() - began, 12)
        # A server with the same file continues.
        self.lab.serve()
        self.assertEqual(connection.execute("SELECT sum(length(x)) FROM t").fetchone(), (10_000_000,))

    def test_a_server_that_stops_answering_is_an_error_in_bounded_time(self):
        self.table(rows=20_000)
        connection = self.open(timeout=2)
        self.lab.server.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            self.failed(connection, "SELECT sum(length(x)) FROM t")
        finally:
            self.lab.server.send_signal(signal.SIGCONT)
        self.assertLess(time.monotonic() - began, 12)

    def test_a_restarted_server_is_not_noticed(self):
        self.table(rows=20_000)
        connection = self.open()
        connection.execute("SELECT x FROM t WHERE id = 1").fetchone()
        self.lab.end()
        self.lab.serve()
        self.assertEqual(connection.execute("SELECT sum(length(x)) FROM t").fetchone(), (10_000_000,))

    def test_threads_with_connections_of_their_own_and_with_one(self):
        self.table(rows=5000)
        shared, wrong = self.open(), []

        def work(number):
            with contextlib.closing(self.lab.connect("t.db", cache_mib=1)) as own:
                for connection in [own, shared] * 5:
                    found = connection.execute("SELECT count(*), sum(length(x)) FROM t WHERE id >= ?", (number,)).fetchone()
                    if found != (5000 - number, 500 * (5000 - number)):
                        wrong.append(found)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(wrong, [])
        self.assertFalse(any(thread.is_alive() for thread in threads))

    def test_a_query_can_be_interrupted(self):
        self.table(rows=20_000)
        connection = self.open(ahead_kib=0)
        timer = threading.Timer(0.3, connection.interrupt)
        timer.start()
        began = time.monotonic()
        with self.assertRaisesRegex(sqlite3.OperationalError, "interrupted"):
            connection.execute("SELECT count(*) FROM t a JOIN t b ON length(a.x) > length(b.x) - b.id % 2").fetchall()
        self.assertLess(time.monotonic() - began, 5)

    def test_a_child_process_opens_databases_of_its_own(self):
        self.table()
        self.open().execute("SELECT count(*) FROM t").fetchone()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                found = self.lab.connect("t.db", timeout=5).execute("SELECT count(*) FROM t").fetchone()
                os._exit(0 if found == (2000,) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_the_shell_opens_a_database(self):
        shell = shutil.which("sqlite3")
        self.assertIsNotNone(shell, "run scripts/setup --for sqlite")
        self.table()
        commands = [f".load {EXTENSION.removesuffix('.so')}", f".open '{self.lab.uri('t.db')}'",
                    "SELECT count(*), sum(length(x)) FROM t;", "PRAGMA diskside_stats;"]
        done = subprocess.run([shell, ":memory:"], input="\n".join(commands), capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("2000|1000000", done.stdout, done.stderr)
        self.assertIn('"trips":', done.stdout, done.stderr)
        commands[1] = f".open '{self.lab.uri('absent.db')}'"
        commands[2:] = ["SELECT diskside_error();"]
        done = subprocess.run([shell, ":memory:"], input="\n".join(commands), capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("/data/absent.db", done.stdout, done.stderr)

    def test_it_is_loaded_once_however_often_it_is_asked_for(self):
        for _ in range(3):
            with contextlib.closing(sqlite3.connect(":memory:")) as connection:
                connection.enable_load_extension(True)
                connection.load_extension(EXTENSION)
                self.assertIsNone(connection.execute("SELECT diskside_error() WHERE 0").fetchone())
        self.table()
        self.assertGreater(statistics(self.open())["trips"], 0)
        self.assertTrue(LOADER.execute("SELECT 1").fetchone())


if __name__ == "__main__":
    unittest.main()
