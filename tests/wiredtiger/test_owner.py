"""One process has a database, whatever becomes of its server meanwhile.

A process from which the database was taken over wrote on, and when it closed it removed the file that guarded the new owner: a
third one was let in beside that. Names could not be changed for longer than half of `timeout` while the server was away. A database could
not be opened read-only where its export was.
"""

import time
import unittest

from lab import StepLab

BUSY, PANIC = 16, -31804
TABLE = "key_format=S,value_format=S"


class Owners(StepLab):
    def made(self, name, **options):
        steps = self.right_database(name, **options)
        self.done(steps, "create", "table:t", TABLE)
        self.done(steps, "put", "table:t", 0, 500, 1)
        self.done(steps, "checkpoint")
        return steps

    def test_a_process_that_lost_the_database_writes_nothing_and_guards_its_new_owner(self):
        first = self.made("taken")
        second = self.right_database("taken", takeover="true")
        time.sleep(1.1)
        first("put", "table:t", 0, 500, 2)
        error, _, said = first("checkpoint")
        self.assertEqual(error, PANIC)
        self.assertIn("another process has taken the database over", said)
        first("close")
        first.end()
        third = self.database("taken")
        self.assertIn(third.opened[0], (BUSY,), third.opened)
        self.done(second, "put", "table:t", 500, 600, 1)
        self.done(second, "checkpoint")
        self.done(second, "close")
        last = self.right_database("taken")
        self.assertEqual(self.done(last, "get", "table:t", 0, 700, 1), [600, 100, 0])
        self.done(last, "close")
        left = sorted(file.name for file in (self.server.data / "taken").glob("WiredTiger.diskside*"))
        self.assertEqual(left, [])

    def test_names_are_changed_when_the_server_comes_back_within_the_timeout(self):
        steps = self.made("names", timeout="8")
        self.server.kill()
        steps.tell("create", "table:new", TABLE)
        time.sleep(5)
        self.server.start()
        error, _, said = steps.answer()
        self.assertEqual(error, 0, said)
        self.done(steps, "put", "table:new", 0, 10, 1)
        self.done(steps, "checkpoint")
        self.done(steps, "close")
        steps = self.right_database("names")
        self.assertEqual(self.done(steps, "get", "table:new", 0, 10, 1), [10, 0, 0])

    def test_a_database_is_read_where_its_export_cannot_be_written(self):
        self.done(self.made("read"), "close")
        for rights in ("", ",rw"):
            self.server.kill()
            self.server.rights = rights
            self.server.start()
            steps = self.right_database("read", "cache_size=50MB,readonly=true", make_directory="false")
            self.assertEqual(self.done(steps, "get", "table:t", 0, 501, 1), [500, 1, 0])
            self.done(steps, "close")


if __name__ == "__main__":
    unittest.main()
