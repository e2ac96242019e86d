"""The server is lost: what was not durable is missed, and what was durable is not.

WiredTiger's log was on, ten commits were written without sync, and the server lost power. The next commit with sync failed, and the
nine behind it succeeded, though the first lost record ended the log: recovery found none of them. In another case two threads synced
after the loss, and one of them was told that all was well. And a server that ended with nothing unsynced made WiredTiger give up at the
next checkpoint: the write that found the connection lost had been counted as if the server had confirmed it.
"""

import unittest

from lab import StepLab

PANIC = -31804
LOGGED = "cache_size=50MB,log=(enabled,file_max=1MB,prealloc=false),transaction_sync=(enabled,method=fsync)"
TABLE = "key_format=S,value_format=S"


class Loss(StepLab):
    def logs(self, name):
        return {file.name: file.read_bytes() for file in (self.server.data / name).glob("WiredTigerLog.*")}

    def logged(self, name):
        """A database with ten records that are durable, ten that are only written; the durable part of its log."""
        steps = self.right_database(name, LOGGED)
        self.done(steps, "create", "table:t", TABLE)
        self.done(steps, "checkpoint")
        self.assertEqual(self.done(steps, "put", "table:t", 0, 10, 1, "sync=on"), [10])
        durable = self.logs(name)
        self.assertEqual(self.done(steps, "put", "table:t", 10, 20, 1, "sync=off"), [10])
        self.done(steps, "flush", "sync=off")
        self.assertNotEqual(self.logs(name), durable)
        return steps, durable

    def recovered(self, name, count):
        steps = self.right_database(name, LOGGED, takeover="true")
        self.assertEqual(self.done(steps, "get", "table:t", 0, 30, 1), [count, 30 - count, 0])

    def test_no_commit_is_confirmed_behind_one_that_was_lost(self):
        steps, durable = self.logged("commits")
        self.lose_power("commits", durable)
        error, done, said = steps("put", "table:t", 20, 30, 1, "sync=on")
        self.assertEqual((error, done), (PANIC, [0]), said)
        self.assertIn("the server was lost after it was written", said)
        self.assertEqual(steps("checkpoint")[0], PANIC)
        steps.end()
        self.recovered("commits", 10)

    def test_all_threads_that_sync_are_told(self):
        steps, durable = self.logged("threads")
        self.lose_power("threads", durable)
        for _ in range(2):
            _, errors, _ = steps("flush-twice")
            self.assertEqual(errors, [PANIC, PANIC])
        self.assertEqual(steps("put", "table:t", 20, 21, 1, "sync=on")[:2], (PANIC, [0]))
        steps.end()
        self.recovered("threads", 10)

    def test_a_log_that_a_server_kept_is_recovered_whole(self):
        steps, _ = self.logged("kept")
        self.lose_power("kept", {})
        self.assertEqual(steps("flush", "sync=on")[0], PANIC, "nothing tells whether it was kept")
        steps.end()
        self.recovered("kept", 20)

    def test_a_server_that_ends_with_nothing_unsynced_ends_nothing(self):
        steps = self.right_database("idle")
        self.done(steps, "create", "table:t", TABLE)
        self.done(steps, "put", "table:t", 0, 100, 1)
        self.done(steps, "checkpoint")
        for version in range(2, 5):
            self.server.kill()
            self.server.start()
            self.done(steps, "put", "table:t", 0, 50, version)
            self.done(steps, "checkpoint")
        self.done(steps, "close")
        steps = self.right_database("idle")
        self.assertEqual(self.done(steps, "get", "table:t", 0, 50, 4), [50, 0, 0])
        self.assertEqual(self.done(steps, "get", "table:t", 50, 100, 1), [50, 0, 0])


if __name__ == "__main__":
    unittest.main()
