"""What the system tests share: the command, and text to run it over."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

DISKSIDE = os.environ["DISKSIDE"]
ROOT = Path(__file__).resolve().parent.parent.parent


class Case(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        self.directory = Path(tempfile.mkdtemp(prefix="diskside-system-"))
        self.addCleanup(shutil.rmtree, self.directory)

    def write(self, name, content):
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def diskside(self, *arguments, status=0, **options):
        """Runs the command; the exit code has to be `status`."""
        command = [DISKSIDE, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False, **options)
        said = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, status, f"{command}: {said}")
        done.said = said
        return done

    def run_json(self, function, *files, **arguments):
        """The JSON document of `diskside run`."""
        options = arguments.pop("options", [])
        for name, value in arguments.items():
            options = [*options, "--arg", f"{name}={value}"]
        done = self.diskside("run", function, *files, "--json", *options)
        return json.loads(done.stdout)


def project_text():
    """All of the project's own sources as one text: real lines, of all lengths."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "*.rs", "*.c", "*.h", "*.md"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    texts = (ROOT / os.fsdecode(name) for name in names if name)
    return b"".join(path.read_bytes() for path in texts if path.is_file())
