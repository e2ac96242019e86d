"""How the command behaves in a shell: exit codes, pipes, completions, and without privileges."""

import json
import os
import shutil
import subprocess

from system import DISKSIDE, Case, project_text

OUT_OF_BOUNDS = """
#include "diskside.h"
SEC("read/beyond")
__s64 beyond(char *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    return in[in_len];
}
"""


class Shell(Case):
    def test_exit_codes_say_who_has_to_act(self):
        text = self.write("text", "some text\n")
        self.diskside("run", "wc", text)
        self.diskside("run", "no_such_function", text, status=2)
        self.diskside("run", "grep", text, "--arg", "patern=x", status=2)
        self.diskside("run", "wc", self.directory / "absent", status=4)
        broken = self.write("broken.bpf.c", "this is not C")
        self.diskside("run", broken, text, status=3)
        self.diskside("run", self.write("not.o", b"\x7fELF and then nothing"), text, status=3)

    def test_an_access_out_of_bounds_names_the_line(self):
        text = self.write("text", "some text\n")
        source = self.write("beyond.bpf.c", OUT_OF_BOUNDS)
        done = self.diskside("run", source, text, status=1)
        line = OUT_OF_BOUNDS.split("\n").index("    return in[in_len];") + 1
        self.assertIn(f"beyond.bpf.c:{line}", done.said)
        self.assertIn("input", done.said)

    def test_a_reader_that_has_enough_is_no_failure(self):
        text = self.write("text", project_text())
        script = f"set -o pipefail; '{DISKSIDE}' run grep '{text}' --arg pattern=e | head -n 1"
        done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count(b"\n"), 1)

    def test_a_broken_pipe_or_a_full_disk_leaves_no_half_result(self):
        text = self.write("text", project_text())
        out = self.directory / "result"
        self.diskside("run", "grep", text, "--arg", "pattern=a", "--out", out)
        whole = out.read_bytes()
        script = f"ulimit -f 8; trap '' XFSZ; '{DISKSIDE}' run grep '{text}' --arg pattern=e --out '{out}'"
        done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(out.read_bytes(), whole)
        left = sorted(path.name for path in self.directory.iterdir())
        self.assertEqual(left, ["result", "text"])

    def test_json_is_one_document_and_nothing_else(self):
        text = self.write("text", "a b c\n")
        done = self.diskside("run", "wc", text, "--json", "--stats")
        document = json.loads(done.stdout)
        self.assertIn("schema", document)
        self.assertEqual(document["stats"]["input_bytes"], 6)

    def test_bash_accepts_the_completions(self):
        script = self.diskside("completions", "bash").stdout
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_user_without_privileges_can_run_functions(self):
        if os.getuid() != 0:
            self.skipTest("this user has no privileges to give up")
        text = self.write("text", "a b c\n")
        self.directory.chmod(0o755)
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        # The directory that it was built in may be closed to others.
        program = shutil.copy(DISKSIDE, self.directory / "diskside")
        done = subprocess.run(
            [program, "run", "wc", text],
            capture_output=True,
            timeout=60,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            **nobody,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
