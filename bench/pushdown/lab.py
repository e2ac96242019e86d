"""The stage: a link between two network namespaces, a target, loads, and caches that are cold when they should be."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from groups import grouped  # noqa: E402
from namespaces import HOST, TARGET, Namespaces  # noqa: E402
from relay import Relay  # noqa: E402

MIB = 1 << 20
NQN = "nqn.2026-11.io.diskside:bench"


def write_text(path, size):
    """Lines of text with a rare word, the same at each run."""
    chance = random.Random(20261121)
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 11))) for _ in range(4096)]
    block = bytearray()
    while len(block) < 4 * MIB:
        line = chance.choices(words, k=12)
        if chance.random() < 0.0005:
            line[5] = b"DISKSIDE"
        block += b" ".join(line) + b"\n"
    with open(path, "wb") as file:
        for _ in range(size // (4 * MIB)):
            file.write(block[: 4 * MIB])
        os.fsync(file.fileno())


def write_runs(path, size):
    """Input of `bitmap`: runs of 64, so that it expands 32-fold."""
    chance = random.Random(7)
    block = bytes(byte for value in chance.randbytes(MIB // 2) for byte in (64, value))
    with open(path, "wb") as file:
        for start in range(0, size, MIB):
            file.write(block[: min(MIB, size - start)])


def drop(path):
    """Takes a file out of this machine's page cache: what is dirty is written first."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Link:
    """Two namespaces and a link between them. `none` is loopback, `unlimited` a veth pair as fast as it is.

    With a delay each way, a relay at the host's end keeps the bytes.
    """

    def __init__(self, release, rate, delay_ms=0):
        self.release, self.rate, self.delay_ms, self.relay = release, rate, delay_ms, None
        self.name = rate if not delay_ms else f"{rate} +{2 * delay_ms:g} ms"
        self.spaces = None if rate == "none" else Namespaces("push", "10.211.77")
        self.address = self.spaces.addresses[TARGET] if self.spaces else "127.0.0.1"

    def __enter__(self):
        if not self.spaces:
            return self
        if os.geteuid() != 0:
            sys.exit("bench: a link of a known rate needs network namespaces, and these need root; or use --link none")
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.spaces)
            for name, device in zip(self.spaces.names, self.spaces.devices):
                self.shape(name, device)
            stack.pop_all()
        return self

    def why_not(self):
        """Why this machine has no such link, if it has none."""
        if os.geteuid() != 0:
            return "network namespaces need root"
        try:
            with self:
                return None
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)

    def shape(self, name, device):
        if self.rate != "unlimited":
            # A burst that a fast timer fills: a smaller one cannot reach 10 Gb/s.
            tbf = ["tbf", "rate", self.rate, "burst", "512k", "latency", "50ms"]
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", device, "root", *tbf], check=True)

    def __exit__(self, *_):
        if self.relay:
            self.relay.end()
        if self.spaces:
            self.spaces.__exit__()

    def reach(self, port):
        """Address and port where hosts reach a target that listens at this port."""
        address = f"{self.address}:{port}"
        if not self.delay_ms:
            return address
        relay = self.inside(HOST, [f"{self.release}/examples/relay"])
        self.relay = Relay(relay, address, int(1000 * self.delay_ms))
        return self.relay.address

    def inside(self, side, command):
        return self.spaces.inside(side, command) if self.spaces else command

    def wire_bytes(self):
        """Bytes that crossed the host's end, both ways; of loopback nothing is known."""
        if not self.spaces:
            return None
        read = self.inside(HOST, ["cat", "/proc/self/net/dev"])
        text = subprocess.run(read, check=True, capture_output=True, text=True).stdout
        fields = re.search(self.spaces.devices[HOST] + r":(.*)", text).group(1).split()
        return int(fields[0]) + int(fields[8])


class Server:
    """A target that exports the directory, and has data.bin and volume.bin as volumes too."""

    def __init__(self, link, release, directory, cpu=None):
        self.link, self.release, self.directory, self.cpu = link, release, directory, cpu

    def __enter__(self):
        owner = os.stat(self.directory)
        export = f"data={self.directory},uid={owner.st_uid},gid={owner.st_gid},rw"
        command = [f"{self.release}/diskside", "serve", "--nqn", NQN, "--export", export]
        for volume in ("data", "volume"):
            command += ["--volume", f"{volume}={self.directory}/{volume}.bin,rw,block=4096"]
        # A network of the machine's own: nobody else is on it.
        command += ["--listen", f"{self.link.address}:0", "--insecure"]
        with open("build/pushdown-target.log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                grouped(self.cpu, self.link.inside(TARGET, command)), stdout=subprocess.PIPE, stderr=log, text=True
            )
        for line in self.process.stdout:
            found = re.search(r"diskside://[^ ]*:(\d+)/data", line)
            if found:
                self.address = self.link.reach(found.group(1))
                return self
        sys.exit(f"bench: the target ended with {self.process.wait()}: see build/pushdown-target.log")

    def __exit__(self, *_):
        end(self.process)

    def url(self, name):
        return f"diskside://{self.address}/data/{name}"

    def volume(self, number):
        return f"nvme-tcp://{self.address}/{NQN}/{number}"


class Attached:
    """A volume of the target as a block device of the host, over the same link."""

    def __init__(self, server, number):
        command = [f"{server.release}/diskside", "attach", server.volume(number)]
        self.command = server.link.inside(HOST, command)

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if " is " not in line:
            sys.exit(f"bench: {' '.join(self.command)} ended with {self.process.wait()}")
        self.device = line.rstrip().split(" is ")[1]
        return self

    def __exit__(self, *_):
        end(self.process)


def end(process):
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)


class Load:
    """A process that warms its cache, or runs a round, when it is told to."""

    def __init__(self, link, command, group=None, stays_warm=False):
        self.link, self.command, self.stays_warm = link, grouped(group, link.inside(HOST, command)), stays_warm

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def warm(self):
        self.say("warm")
        self.line()

    def start(self):
        self.before = self.link.wire_bytes()
        self.say("go")

    def finish(self):
        run = self.line()
        run["wire_bytes"] = None if self.before is None else self.link.wire_bytes() - self.before
        return run

    def say(self, word):
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.ended()

    def line(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else self.ended()

    def ended(self):
        sys.exit(f"bench: {' '.join(self.command)} ended with {self.process.wait()}")


def note(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
