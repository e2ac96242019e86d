"""Lookups at the server are made only in tables whose files it can read, and not in what is deleted there.

A table with a collator, or with values in Huffman's code, could be looked up in: the server compared bytes, said that keys which exist
were absent, and gave encoded values. ds_wt_truncate marked the file with the table's name, which is another one than the table's if that
has a `source` or column groups; then deleted values were found. In WiredTiger 11 all values that have a time fell back, after
a trip for nothing.
"""

import unittest

from lab import StepLab

INVAL = 22
TABLE = "key_format=S,value_format=S,leaf_page_max=4KB"
PUSH = 2


class Tables(StepLab):
    def filled(self, name, *options, uri="table:t", count=5000):
        """A table, of which nothing is in the cache."""
        steps = self.right_database(name)
        self.done(steps, "create", uri, ",".join([TABLE, *options]))
        for part in [option for option in options if option.startswith("colgroups=")] and ["a", "b"]:
            self.done(steps, "create", f"colgroup:t:{part}", f"columns=({part})")
        self.assertEqual(self.done(steps, "put", uri, 0, count, 1), [count])
        self.done(steps, "checkpoint")
        self.done(steps, "close")
        return self.right_database(name, "cache_size=1MB", takeover="true")

    def pushed(self, steps, uri="table:t", count=1000):
        self.done(steps, "policy", uri, PUSH)
        self.assertEqual(self.done(steps, "look", uri, 0, count, 1), [count, 0, 0])
        return self.done(steps, "stats")[2]

    def test_tables_that_a_server_reads_wrong_are_refused_by_name(self):
        cases = {"collator=backwards": "collator", "huffman_value=english": "huffman_value", "huffman_key=english": "huffman_key"}
        for at, (option, word) in enumerate(cases.items()):
            with self.subTest(option):
                try:
                    steps = self.filled(f"refused{at}", option)
                except AssertionError as error:
                    # Newer versions have no Huffman's code.
                    self.assertIn("huffman", option)
                    self.assertIn("create", str(error))
                    continue
                for uri in ("table:t", "file:t.wt"):
                    error, _, said = steps("policy", uri, PUSH)
                    self.assertEqual(error, INVAL)
                    self.assertIn(uri, said)
                    self.assertIn(word, said)
                self.assertEqual(self.done(steps, "look", "table:t", 0, 1000, 1), [1000, 0, 0])
                self.assertEqual(self.done(steps, "stats")[2], 0)

    def test_other_tables_are_looked_up_in(self):
        for at, option in enumerate(["", "prefix_compression=true", 'source="file:other.wt"']):
            with self.subTest(option):
                steps = self.filled(f"pushed{at}", *filter(None, [option]))
                self.assertGreater(self.pushed(steps), 500)

    def test_a_range_is_deleted_in_all_files_of_a_table(self):
        for at, (option, pushed) in enumerate([("", "table:t"), ('source="file:other.wt"', "file:other.wt")]):
            with self.subTest(option):
                steps = self.filled(f"truncated{at}", *filter(None, [option]))
                self.pushed(steps, pushed)
                self.done(steps, "truncate", "table:t", 1000, 3999)
                self.assertEqual(self.done(steps, "look", "table:t", 0, 5000, 1), [2000, 3000, 0])
                error, _, said = steps("policy", pushed, PUSH)
                self.assertEqual(error, INVAL)
                self.assertIn("truncated", said)

    def test_a_table_of_column_groups_has_several_files(self):
        steps = self.filled("groups", "value_format=SS", "columns=(k,a,b)", "colgroups=(a,b)", count=0)
        error, _, said = steps("policy", "table:t", PUSH)
        self.assertEqual(error, INVAL)
        self.assertIn("colgroup:TABLE:NAME", said)
        self.done(steps, "policy", "colgroup:t:b", PUSH)
        self.assertEqual(steps("truncate", "table:none", 0, 1)[0], 2)

    def test_what_was_decided_about_a_table_ends_with_it(self):
        """A table that was made again under its old name was still refused, because the one before had been truncated."""
        steps = self.filled("again")
        self.done(steps, "truncate", "table:t", 0, 100)
        self.assertEqual(steps("policy", "table:t", PUSH)[0], INVAL)
        self.done(steps, "drop", "table:t")
        self.done(steps, "create", "table:t", TABLE)
        self.done(steps, "policy", "table:t", PUSH)

    def test_values_with_times_are_looked_up(self):
        steps = self.right_database("times")
        self.done(steps, "create", "table:t", TABLE)
        self.done(steps, "timestamp", "oldest_timestamp=1")
        self.done(steps, "put", "table:t", 0, 5000, 1, "commit_timestamp=10")
        self.done(steps, "timestamp", "stable_timestamp=20")
        self.done(steps, "checkpoint")
        self.done(steps, "close")
        steps = self.right_database("times", "cache_size=1MB")
        self.done(steps, "policy", "table:t", PUSH)
        before = self.done(steps, "stats")
        self.assertEqual(self.done(steps, "look", "table:t", 0, 1000, 1), [1000, 0, 0])
        _, trips, pushed, fallbacks = (now - then for now, then in zip(self.done(steps, "stats"), before))
        self.assertGreater(pushed, 900)
        self.assertLess(fallbacks, 50)
        self.assertLess(trips, 1200)


if __name__ == "__main__":
    unittest.main()
