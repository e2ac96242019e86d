"""Shipped functions give what coreutils, grep and Python give."""

import os
import random
import struct
import subprocess

from system import Case, project_text

# Chunks small enough that records cross their ends, and more than one thread.
WAYS = [[], ["--chunk", "4KiB"], ["--chunk", "64KiB", "--threads", "2"], ["--tier", "interp"]]


class Functions(Case):
    def test_wc_counts_as_coreutils_does(self):
        # Older coreutils count no word that has only bytes beyond ASCII; all agree on ASCII.
        ascii_only = project_text().translate(None, bytes(range(128, 256)))
        text = self.write("text", ascii_only)
        command = ["wc", "-l", "-w", "-c", text]
        said = subprocess.run(
            command, capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"}
        ).stdout.split()
        for way in WAYS:
            (row,) = self.run_json("wc", text, options=way)["rows"]
            counted = [int(row[name]) for name in ("lines", "words", "bytes")]
            self.assertEqual(counted, [int(n) for n in said[:3]], way)

    def test_grep_finds_the_lines_that_grep_finds(self):
        text = self.write("text", project_text())
        for pattern in ["unsafe", "SPDX-License", "}", "no line has this in it at all"]:
            found = subprocess.run(
                ["grep", "-a", "-F", pattern, text],
                capture_output=True,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            ).stdout
            for way in WAYS:
                # What a test is about may itself contain the pattern; compare bytes, not counts.
                done = self.diskside("run", "grep", text, "--arg", f"pattern={pattern}", *way)
                self.assertEqual(done.stdout, found, (pattern, way))
            for function in ("grep_count", "grep_scalar"):
                (row,) = self.run_json(function, text, pattern=pattern)["rows"]
                self.assertEqual(int(row["rows"]), found.count(b"\n"), (function, pattern))

    def test_regex_finds_the_lines_that_grep_finds(self):
        text = self.write("text", project_text())
        for pattern in [r"^use [a-z_]+::", r"fn [a-z]*(read|write)[a-z]*\(", r"[0-9]{3,}", r"\.$", r"^$", "no line (has|had) this"]:
            found = subprocess.run(
                ["grep", "-a", "-E", pattern, text],
                capture_output=True,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            ).stdout
            for way in WAYS:
                done = self.diskside("run", "regex", text, "--arg", f"pattern={pattern}", *way)
                self.assertEqual(done.stdout, found, (pattern, way))
            (row,) = self.run_json("regex_count", text, pattern=pattern)["rows"]
            self.assertEqual(int(row["rows"]), found.count(b"\n"), pattern)

    def test_stats_are_those_of_python(self):
        values = [random.Random(1).randrange(-(2**63), 2**63) for _ in range(100_000)]
        column = self.write("column", struct.pack(f"<{len(values)}q", *values))
        wrapped = (sum(values) + 2**63) % 2**64 - 2**63
        for way in WAYS:
            (row,) = self.run_json("stats64", column, options=way)["rows"]
            got = [int(row[name]) for name in ("count", "sum", "min", "max")]
            self.assertEqual(got, [len(values), wrapped, min(values), max(values)], way)

    def test_topk_is_the_head_of_a_sorted_list(self):
        values = [random.Random(2).randrange(1000) for _ in range(50_000)]
        column = self.write("column", struct.pack(f"<{len(values)}q", *values))
        order = sorted(range(len(values)), key=lambda i: (-values[i], i))[:7]
        for way in WAYS:
            rows = self.run_json("topk", column, options=way, k=7)["rows"]
            got = [(int(row["index"]), int(row["value"])) for row in rows]
            self.assertEqual(got, [(i, values[i]) for i in order], way)

    def test_several_files_are_one_source_after_another(self):
        parts = [self.write(f"part{i}", b"one\ntwo\n" * (i + 1)) for i in range(3)]
        (row,) = self.run_json("wc", *parts)["rows"]
        self.assertEqual(int(row["lines"]), 12)
