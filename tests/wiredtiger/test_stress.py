"""Readers that check what they read, beside a writer and checkpoints; and the mistakes that this has to find."""

import time
import unittest

from lab import Lab

KEYS = 60000


class Stress(Lab):
    def sound(self, name, how, layout, seconds):
        self.filled(name, layout=layout, keys=KEYS)
        counts = self.right(name, how=how, layout=layout, keys=KEYS, seconds=seconds, cache="1MB")
        self.assertGreater(min(counts["reads"], counts["twice"], counts["scanned"], counts["written"], counts["checkpoints"]), 0)
        self.right(name, task="verify")
        return counts

    def test_plain_reads(self):
        counts = self.sound("plain", "plain", "small", 1)
        # Of the table none: WiredTiger's own files are read along paths, too.
        self.assertLess(counts["paths"] + counts["ahead"], 20)
        self.assertEqual(counts["pushed"], 0)

    def test_paths(self):
        counts = self.sound("path", "path", "small", 3)
        self.assertGreater(min(counts["paths"], counts["served"], counts["ahead"]), 0, counts)

    def test_paths_with_pages_of_default_lengths(self):
        self.sound("path-default", "path", "default", 2)

    def test_lookups_at_the_server(self):
        counts = self.sound("push", "push", "small", 3)
        self.assertGreater(counts["pushed"], 0, counts)

    def test_lookups_with_pages_of_default_lengths(self):
        counts = self.sound("push-default", "push", "default", 2)
        self.assertGreater(counts["pushed"], 0, counts)

    def test_lookups_of_few_keys_that_are_written_all_the_time(self):
        self.filled("hot", keys=KEYS)
        counts = self.right("hot", how="push", keys=KEYS, hot=6000, seconds=2, cache="1MB", readers=4)
        self.assertGreater(counts["pushed"], 0, counts)


class Mistakes(Lab):
    """Each of these is a rule that the extension keeps. Without the rule the stress finds wrong reads, or WiredTiger gives up: else the
    tests above would prove nothing."""

    def found(self, name, tries, **arguments):
        for _ in range(tries):
            code, counts, said = self.run_stress(name, **arguments)
            if code != 0:
                return said
        self.fail(f"not found: {counts}")

    def test_blocks_that_are_served_though_they_were_written_since(self):
        self.filled("unlogged", keys=KEYS)
        self.found("unlogged", 3, how="path", keys=KEYS, seconds=8, cache="1MB", config="unlogged=true,takeover=true")

    def test_lookups_behind_the_refusal(self):
        self.filled("late", keys=KEYS)
        self.found("late", 3, how="push", keys=KEYS, hot=6000, seconds=10, cache="1MB", config="late=true,takeover=true", readers=8)

    def test_lookups_in_a_range_that_was_truncated(self):
        self.filled("truncated", keys=20000)
        said = self.found("truncated", 1, task="truncate", keys=20000, cache="50MB", wrapped=0)
        self.assertIn("WRONG: truncated", said)

    def test_a_table_that_was_truncated_is_not_looked_up_in(self):
        self.filled("wrapped", keys=20000)
        self.right("wrapped", task="truncate", keys=20000, cache="50MB")


class Losses(Lab):
    def test_a_new_database_is_made_at_the_server(self):
        code, _, said = self.run_stress("new", task="fill", keys=2000, cache="50MB")
        self.assertEqual(code, 3)
        self.assertIn("there is no such directory", said)
        code, _, said = self.run_stress("new", task="fill", keys=2000, cache="50MB", config="make_directory=true")
        self.assertEqual(code, 0, said)
        self.assertEqual(self.right("new", task="verify")["scanned"], 2000)

    def test_readers_continue_when_the_server_was_killed(self):
        self.filled("read", keys=KEYS)
        process = self.begin("read", task="read", how="path", keys=KEYS, seconds=3, cache="1MB")
        process.stdout.readline()
        time.sleep(1)
        self.server.kill()
        time.sleep(0.5)
        self.server.start()
        code, counts, said = self.ended(process)
        self.assertEqual((code, counts and counts["wrong"]), (0, 0), said)
        self.assertGreater(counts["reopened"], 0)

    def test_a_database_whose_server_was_killed_is_opened_again(self):
        self.filled("killed", keys=KEYS)
        process = self.begin("killed", how="path", keys=KEYS, seconds=4, cache="1MB", config="timeout=20")
        process.stdout.readline()
        time.sleep(1.5)
        self.server.kill()
        time.sleep(0.5)
        self.server.start()
        code, counts, said = self.ended(process)
        # What was not durable may be lost: then WiredTiger gives up, and recovers when it is opened again.
        self.assertNotIn("WRONG", said)
        self.assertIn(code, (0, 3, -6), said)
        self.assertTrue(code == 0 or "the server was lost" in said, said)
        verified = self.right("killed", task="verify", config="takeover=true")
        self.assertGreater(verified["scanned"], KEYS // 2)

    def test_a_database_is_opened_by_one_process(self):
        self.filled("owned", keys=1000)
        process = self.begin("owned", task="read", keys=1000, seconds=50)
        process.stdout.readline()
        for _ in ("it has the database", "it was killed, and may have it still"):
            code, _, said = self.run_stress("owned", task="verify")
            self.assertEqual(code, 3)
            self.assertIn("a process has the database open", said)
            process.kill()
            process.communicate()
        self.right("owned", task="verify", config="takeover=true")
        self.right("owned", task="verify")


if __name__ == "__main__":
    unittest.main()
