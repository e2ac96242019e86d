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
        self.start()

    def start(self):
        command = [DISKSIDE, "serve", "--listen", self.address, "--export", f"data={self.data},rw"]
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
