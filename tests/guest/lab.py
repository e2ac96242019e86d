"""The machine outside of the guests: what a boot's `host.py` works with."""

import collections
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A guest that is silent for so long hangs.
SILENCE_S = 240
# One that has not come to its first case in so long is started once more: under emulation a kernel stands still now and then while it boots.
BOOT_S = 120
CONTROL = re.compile(r"\x1b(\[[?0-9;]*[a-zA-Z]|c)|\r")


class Failure(Exception):
    """What was expected did not happen."""


class Lab:
    """A directory for the boot's volumes, and every process that the boot started."""

    def __init__(self, boot, image, program, only=""):
        self.boot = boot
        self.image = image
        self.program = program
        self.only = only
        self.directory = Path(tempfile.mkdtemp(prefix="diskside-guest-"))
        self.failures = []
        self.lately = collections.deque(maxlen=48)
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory)

    def file(self, name, len_mib):
        """A sparse file for a volume."""
        path = self.directory / name
        with open(path, "wb") as file:
            file.truncate(len_mib << 20)
        return path

    def target(self, *arguments, port=None):
        return Target(self, arguments, port)

    def guest(self, settings, cases=None, forward=None, cpus=2, name="guest", programs=()):
        """Boots a guest that runs `cases` (default: the boot's own) and has `programs` beside the image's."""
        cases = [c for c in cases or self.boot.glob("*.sh") if self.only in c.stem or c.stem < "01"]
        cases.sort(key=lambda case: case.name)
        return Guest(self, settings, cases, forward, cpus, name, programs)

    def diskside(self, *arguments, timeout_s=120, given=None):
        """Runs the command line to its end, with `given` as its input, and returns what it printed."""
        command = [self.program, *map(str, arguments)]
        said = f"diskside {' '.join(map(str, arguments))}"
        try:
            done = subprocess.run(
                command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"{said}: not done after {timeout_s} s") from None
        if done.returncode != 0:
            raise Failure(f"{said}: {done.stderr.strip()}")
        return done.stdout

    def expect(self, what, holds):
        if not holds:
            raise Failure(what)
        self.say(f"  so: {what}")

    def say(self, line, who=""):
        """Shown at once, under the boot's name: boots run side by side, and may hang."""
        self.lately.append(line)
        print(f"{self.boot.name}{who}| {line}", flush=True)

    def fail(self, what):
        """Kept with what was said just before: the end of the run repeats it, where it is looked for."""
        self.say(f"  FAILED: {what}")
        self.failures.append((what, list(self.lately)))


class Target:
    """A `diskside serve`. Its port stays the same when it is started again; one that is given is named in a configuration."""

    def __init__(self, lab, arguments, port=None):
        self.lab = lab
        self.port = port or free_port()
        self.arguments = arguments if port else ["--listen", f"127.0.0.1:{self.port}", *arguments]
        self.process = None
        self.start()

    def start(self):
        command = [self.lab.program, "serve", *map(str, self.arguments)]
        self.log = open(self.lab.directory / f"target-{self.port}.log", "ab")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        self.lab.processes.append(self.process)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failure(f"diskside serve ended with {self.process.returncode}: {self.said()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise Failure("diskside serve does not listen")

    def kill(self):
        """As a crash would: no goodbye."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """As an administrator would; it has to end by itself and in order."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            raise Failure("diskside serve does not end on SIGTERM") from None
        if status != 0:
            raise Failure(f"diskside serve ended with {status}: {self.said()}")

    def alive(self):
        return self.process.poll() is None

    def said(self):
        return self.all_said()[-2000:]

    def said_times(self, what):
        return self.all_said().count(what)

    def all_said(self):
        return Path(self.log.name).read_text(encoding="utf-8", errors="replace")


class Guest:
    """A Linux kernel under QEMU that runs cases and may ask its host for things."""

    def __init__(self, lab, settings, cases, forward, cpus, name, programs):
        self.lab = lab
        self.name = name
        self.answers = {}
        self.said = []
        self.cases = [case.stem for case in cases]
        initrd = lab.directory / f"{name}.cpio"
        pack(lab, initrd, settings, cases, programs)
        network = "user,id=net" + "".join(
            f",hostfwd=tcp:127.0.0.1:{outside}-:{inside}" for outside, inside in (forward or [])
        )
        accel = os.environ.get("GUEST_ACCEL", "tcg")
        self.command = (
            ["qemu-system-x86_64", "-accel", "tcg,thread=multi" if accel == "tcg" else accel]
            # Linux 6.12 crashes under emulation with five levels of page tables, and with cmpxchg16b.
            + ["-cpu", "max,la57=off,cx16=off", "-M", "q35", "-m", "1024", "-smp", str(cpus), "-nographic"]
            + ["-no-reboot", "-kernel", lab.image / "vmlinuz", "-initrd", initrd]
            + ["-append", "console=ttyS0 loglevel=2 panic=-1 nokaslr mitigations=off"]
            + ["-netdev", network, "-device", "virtio-net-pci,netdev=net", "-monitor", "none"]
        )
        self.begun, self.boots = False, 0
        self.boot()

    def boot(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
        self.lab.processes.append(self.process)
        self.boots += 1

    def on(self, action, answer):
        """When the guest says `host ACTION WORD...`, it gets what `answer(WORD...)` returns."""
        self.answers[action] = answer

    def run(self):
        """Runs the guest to its end and judges what it said."""
        passed, failed, ended = set(), set(), False
        for line in self.output():
            word, _, rest = line.partition(" ")
            if word == "@case":
                self.begun = True
                self.say(f"  {rest}:")
            elif word in ("@passed", "@failed"):
                case, _, seconds = rest.partition(" ")
                self.say(f"    {word[1:]}, {seconds} s")
                if word == "@passed":
                    passed.add(case)
                else:
                    failed.add(case)
                    self.fail(f"case {case}")
            elif word == "@host":
                self.answer(rest)
            elif word == "@kernel":
                self.fail(f"the guest's kernel says: {rest}")
            elif word == "@end":
                ended = True
            elif self.begun and not ended:
                self.say(f"    {line}")
        self.process.wait()
        if not ended:
            self.fail("the guest did not come to its end")
        for case in self.cases:
            if ended and case not in passed | failed:
                self.fail(f"case {case} was not run")

    def start(self):
        """Like `run`, in a thread; join what it returns."""
        thread = threading.Thread(target=self.run)
        thread.start()
        return thread

    def output(self):
        rest = b""
        while True:
            ready, _, _ = select.select([self.process.stdout], [], [], SILENCE_S if self.begun else BOOT_S)
            if not ready and not self.begun and self.boots == 1:
                self.say(f"silent for {BOOT_S} s while it boots: started once more")
                self.process.kill()
                self.process.wait()
                self.boot()
                rest = b""
                continue
            if not ready:
                self.fail(f"the guest was silent for {SILENCE_S} s")
                self.process.kill()
                return
            chunk = os.read(self.process.stdout.fileno(), 65536)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                text = CONTROL.sub("", line.decode("utf-8", "replace")).rstrip()
                if os.environ.get("GUEST_LOG"):
                    print(f"{self.name}| {text}", flush=True)
                if text:
                    yield text

    def answer(self, request):
        action, *words = request.split()
        try:
            if action not in self.answers:
                raise Failure(f"the guest asks for '{action}', which this boot does not know")
            said = self.answers[action](*words)
            answer = f"ok {said if said is not None else ''}"
        except Failure as failure:
            self.fail(str(failure))
            answer = "failed"
        self.process.stdin.write(answer.strip().encode() + b"\n")
        self.process.stdin.flush()

    def say(self, line):
        self.lab.say(line, f" {self.name}")

    def fail(self, what):
        self.lab.fail(f"{self.name}: {what}")


def pack(lab, initrd, settings, cases, programs):
    """The image, with init, the library, the cases, the settings and programs appended."""
    root = lab.directory / f"{initrd.stem}-root"
    (root / "boot/cases").mkdir(parents=True)
    shutil.copy(HERE / "init", root / "init")
    shutil.copy(HERE / "lib.sh", root / "boot/lib.sh")
    for case in cases:
        shutil.copy(case, root / "boot/cases" / case.name)
    (root / "boot/settings").write_text(
        "".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii"
    )
    for program in programs:
        install(Path(program), root)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    archive = subprocess.run(
        ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"],
        input=names.encode(),
        stdout=subprocess.PIPE,
        cwd=root,
        check=True,
    ).stdout
    shutil.copy(lab.image / "base.cpio", initrd)
    with open(initrd, "ab") as file:
        file.write(archive)


def install(program, root):
    """A program without what only a debugger needs, and the libraries that it asks for."""
    there = root / "usr/bin" / program.name
    there.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", there, program], check=True)
    asked = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    for library in re.findall(r"/[^ ]+", asked):
        copy = root / library.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, copy)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
