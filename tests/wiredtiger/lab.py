"""A server, and programs that use WiredTiger over it."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

DISKSIDE = os.environ["DISKSIDE"]
BUILT = os.environ["DISKSIDE_BUILT"]
ROOT = Path(__file__).resolve().parents[2]


def compiled(directory, name):
    """The program tests/wiredtiger/NAME.c."""
    program = Path(directory) / name
    if not program.exists():
        command = ["cc", "-std=gnu11", "-O1", "-Wall", "-Werror", f"-I{ROOT}/crates/wiredtiger/include"]
        if include := os.environ.get("DISKSIDE_WIREDTIGER_INCLUDE"):
            command.append(f"-I{include}")
        command += [str(ROOT / f"tests/wiredtiger/{name}.c"), "-o", str(program), f"-L{BUILT}", f"-Wl,-rpath,{BUILT}"]
        if library := os.environ.get("DISKSIDE_WIREDTIGER_LIBRARY"):
            command += [f"-L{library}", f"-Wl,-rpath,{library}"]
        subprocess.run([*command, "-ldiskside_wiredtiger", "-lwiredtiger", "-lpthread"], check=True)
    return program


class Server:
    """A server of the directory `data` below this one. It can be killed, and started again at the same address."""

    def __init__(self, directory):
        self.data = Path(directory) / "data"
        self.data.mkdir(exist_ok=True)
        self.address = "127.0.0.1:0"
        self.rights = ",rw"
        self.start()

    def start(self):
        command = [DISKSIDE, "serve", "--listen", self.address, "--export", f"data={self.data}{self.rights}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = re.search(r"diskside://([^/]+)/", self.process.stdout.readline())[1].replace("localhost", "127.0.0.1")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def url(self, name):
        return f"diskside://{self.address}/data/{name}"


class Lab(unittest.TestCase):
    """Tests with a server of their own."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="diskside-wiredtiger-")
        cls.server = Server(cls.directory.name)
        cls.stress = compiled(cls.directory.name, "stress")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.directory.cleanup()

    def begin(self, name, **arguments):
        """The stress program over a database."""
        words = [f"{key}={value}" for key, value in arguments.items()]
        place = [] if "home" in arguments else [f"url={self.server.url(name)}"]
        command = [str(self.stress), *place, *words]
        environment = os.environ | {"LD_LIBRARY_PATH": BUILT}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def ended(self, process, seconds=60):
        """Its exit code, its counts and what it said."""
        try:
            out, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        lines = [line for line in out.splitlines() if line.startswith("{")]
        return process.returncode, json.loads(lines[-1]) if lines else None, said

    def run_stress(self, name, **arguments):
        return self.ended(self.begin(name, **arguments))

    def filled(self, name, **arguments):
        """A new database with all keys."""
        (self.server.data / name).mkdir()
        code, _, said = self.run_stress(name, task="fill", home=self.server.data / name, **arguments)
        self.assertEqual(code, 0, said)

    def right(self, name, **arguments):
        """A run in which nothing was wrong."""
        code, counts, said = self.run_stress(name, **arguments)
        self.assertEqual((code, counts and counts["wrong"]), (0, 0), said)
        return counts


class Steps:
    """A program that does with a database what it is told, step by step (steps.c)."""

    def __init__(self, program, url, config="cache_size=50MB", **options):
        environment = os.environ | {"LD_LIBRARY_PATH": BUILT}
        # WiredTiger may say more than a pipe holds.
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True, env=environment
        )
        given = "".join(f",{key}={value}" for key, value in options.items())
        self.opened = self("open", config, f'url="{url}"{given}')

    def __call__(self, *words):
        """The error of a step, its counts, and the library's words."""
        self.tell(*words)
        return self.answer()

    def tell(self, *words):
        self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            raise AssertionError(f"it ended: {self.process.wait()}, {self.said.read()}")
        error, *counts, said = line.rstrip("\n").split("\t")
        return int(error), [int(count) for count in counts if count.lstrip("-").isdigit()], said

    def end(self):
        """The process ends as if it were killed, when its steps are done."""
        if not self.said.closed:
            self.process.stdin.close()
            self.process.wait(60)
            self.process.stdout.close()
            self.said.close()


class StepLab(Lab):
    """Tests of which each tells a program step by step."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.steps = compiled(cls.directory.name, "steps")

    def database(self, name, config="cache_size=50MB", **options):
        """A program that has the database open; it is made if it is not there."""
        steps = Steps(self.steps, self.server.url(name), config, **({"make_directory": "true", "push_old": "true"} | options))
        self.addCleanup(steps.end)
        return steps

    def right_database(self, name, config="cache_size=50MB", **options):
        steps = self.database(name, config, **options)
        self.assertEqual(steps.opened[0], 0, steps.opened)
        return steps

    def done(self, steps, *words):
        error, counts, said = steps(*words)
        self.assertEqual(error, 0, (words, said))
        return counts

    def lose_power(self, directory, keep):
        """The server's machine loses power: of some files is left what was synced, as `keep` has them."""
        self.server.kill()
        for name, content in keep.items():
            (self.server.data / directory / name).write_bytes(content)
        self.server.start()
