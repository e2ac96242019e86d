"""How many round trips queries take: the reason why the VFS knows the format of pages."""

import contextlib
import random
import unittest

from lab import Lab, statistics

ROWS = 4000


class Trips(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.addClassCleanup(cls.lab.close)
        rng = random.Random(1)
        with contextlib.closing(cls.lab.make("wide.db")) as connection:
            connection.execute("BEGIN")
            # Two rows to a page; the other table's pages lie between.
            connection.execute("CREATE TABLE wide(id INTEGER PRIMARY KEY, n, r, x)")
            connection.execute("CREATE TABLE other(id INTEGER PRIMARY KEY, x)")
            connection.execute("CREATE INDEX wide_r ON wide(r)")
            order = rng.sample(range(ROWS), ROWS)
            for number in range(ROWS):
                connection.execute("INSERT INTO wide VALUES (?, ?, ?, ?)", (number, number % 97, order[number], rng.randbytes(1900)))
                if number % 3 == 0:
                    connection.execute("INSERT INTO other VALUES (?, ?)", (number, rng.randbytes(1900)))
            connection.execute("COMMIT")
            count = "SELECT count(*) FROM dbstat WHERE name = 'wide' AND pagetype = 'leaf'"
            cls.leaves = connection.execute(count).fetchone()[0]
        with contextlib.closing(cls.lab.make("values.db")) as connection:
            connection.execute("CREATE TABLE long(id INTEGER PRIMARY KEY, x)")
            connection.execute("BEGIN")
            for number in range(40):
                connection.execute("INSERT INTO long VALUES (?, ?)", (number, rng.randbytes(30_000)))
            connection.execute("INSERT INTO long VALUES (40, ?)", (rng.randbytes(3_000_000),))
            connection.execute("COMMIT")

    def open(self, name, **parameters):
        connection = self.lab.connect(name, **parameters)
        self.addCleanup(connection.close)
        return connection

    def trips(self, connection, query):
        before = statistics(connection)
        connection.execute(query).fetchall()
        after = statistics(connection)
        return {name: after[name] - before[name] for name in after}

    def cold(self, name, query, **parameters):
        """The trips of a query over a database of which nothing is kept: another connection would share its pages."""
        with contextlib.closing(self.lab.connect(name, **parameters)) as connection:
            took = self.trips(connection, query)
        self.assertGreater(took["trips"], 0, "something was kept")
        return took

    def test_a_scan_of_2000_leaves_takes_few_trips(self):
        self.assertGreaterEqual(self.leaves, ROWS // 2)
        for query in ("SELECT sum(length(x)), sum(n) FROM wide", "SELECT n FROM wide ORDER BY id DESC"):
            took = self.cold("wide.db", query)
            self.assertLess(took["trips"], 40, f"{query}: {took}")
            self.assertLess(took["bytes"], (self.leaves + 60) * 4096, f"{query}: {took}")
            plain = self.cold("wide.db", query, ahead_kib=0, around_kib=0)
            self.assertGreater(plain["trips"], self.leaves, f"{query}: {plain}")

    def test_a_lookup_takes_its_path_alone_and_none_when_warm(self):
        connection = self.open("wide.db")
        opened = statistics(connection)
        self.assertEqual(opened["trips"], 1, opened)
        # The root, and a leaf; an interior page between where there is one.
        first = self.trips(connection, "SELECT n FROM wide WHERE id = 1999")
        self.assertIn(first["trips"], (1, 2, 3), first)
        self.assertLessEqual(first["bytes"], 3 * 16384, first)
        again = self.trips(connection, "SELECT n FROM wide WHERE id = 1999")
        self.assertEqual((again["trips"], again["bytes"]), (0, 0), again)
        other = self.trips(connection, "SELECT n FROM wide WHERE id = 3000")
        self.assertIn(other["trips"], (1, 2), other)
        rng = random.Random(2)
        for _ in range(30):
            took = self.trips(connection, f"SELECT n FROM wide WHERE id = {rng.randrange(ROWS)}")
            self.assertLessEqual(took["trips"], 2, took)
            self.assertLessEqual(took["bytes"], 2 * 16384, took)

    def test_rows_by_an_index_take_few_trips(self):
        query = "SELECT sum(length(x)) FROM wide INDEXED BY wide_r WHERE r < 300"
        took = self.cold("wide.db", query)
        self.assertLess(took["trips"], 40, took)
        plain = self.cold("wide.db", query, ahead_kib=0, around_kib=0)
        self.assertGreater(plain["trips"], 200, plain)
        self.assertLess(took["bytes"], plain["bytes"] * 1.5 + 100_000, f"{took} {plain}")

    def test_a_range_of_rows_takes_few_trips(self):
        took = self.cold("wide.db", "SELECT n FROM wide WHERE id BETWEEN 1000 AND 1100")
        self.assertLessEqual(took["trips"], 9, took)

    def test_long_values_take_few_trips(self):
        took = self.cold("values.db", "SELECT length(hex(x)) FROM long WHERE id = 40")
        self.assertLess(took["trips"], 20, took)
        plain = self.cold("values.db", "SELECT hex(x) FROM long WHERE id = 40", ahead_kib=0, around_kib=0)
        self.assertGreater(plain["trips"], 700, plain)
        many = self.cold("values.db", "SELECT sum(length(hex(x))) FROM long WHERE id < 40")
        self.assertLess(many["trips"], 30, many)

    def test_connections_to_one_version_share_its_pages(self):
        query = "SELECT sum(length(x)) FROM wide"
        first, second = self.open("wide.db", cache_mib=128), self.open("wide.db", cache_mib=128)
        self.trips(first, query)
        took = self.trips(second, query)
        self.assertEqual(took["trips"], 0, took)

    def test_a_small_cache_is_enough_for_a_scan(self):
        took = self.cold("wide.db", "SELECT sum(length(x)) FROM wide", cache_mib=1, ahead_kib=256)
        self.assertLess(took["trips"], 120, took)
        self.assertLess(took["bytes"], (self.leaves + 200) * 4096, took)


if __name__ == "__main__":
    unittest.main()
