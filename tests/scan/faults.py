"""Disks that hang, fail or are written below files that are scanned: a scan ends with an error that says so, and others are done
meanwhile. The disk is a volume that is attached here, so this needs root."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

BROKEN = "Input/output error (os error 5)"
PATIENCE_S = 60


def check(diskside, serve, children_of, directory):
    usable = all(Path(path).exists() for path in ("/dev/fuse", "/dev/loop-control")) and shutil.which("mkfs.ext4")
    if os.getuid() != 0 or not usable:
        print("NOT TESTED: scans over a disk that fails: that needs root, FUSE, loop devices and mkfs.ext4")
        return
    with Disk(diskside, directory) as disk, serve(disk.mounted, ["--user", "root"]) as server:
        random.seed(7)
        numbers = pa.table({"n": [random.getrandbits(62) for _ in range(1_500_000)]})
        # Where the image is cut, the file system has nothing of its own.
        (disk.mounted / "ballast").write_bytes(bytes(16 << 20))
        pq.write_table(numbers, disk.mounted / "f.parquet", row_group_size=50_000)
        pa_csv.write_csv(numbers.slice(0, 300_000), disk.mounted / "f.csv")
        calm = directory / "calm.parquet"
        pq.write_table(numbers.slice(0, 1000), calm)

        def scan(file, place, *options):
            command = [diskside, "scan", f"{server.url}/{file}", "--place", place, *options]
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def ended(process, what):
            try:
                out, told = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                sys.exit(f"scan: {what} does not end")
            return process.returncode, out, told.decode()

        wanted = ["--aggregate", "max(n),count(n)", "--format", "csv"]
        whole = ended(scan("f.parquet", "device", *wanted), "a scan of a disk that is well")
        if whole[0] != 0:
            sys.exit(f"scan: a disk that is well: {whole}")

        # Somebody writes into the file while its rows are read.
        process = scan("f.parquet", "device", "--format", "csv")
        process.stdout.read(1000)
        with open(disk.mounted / "f.parquet", "r+b") as file:
            file.write(b"PAR1")
        code, _, told = ended(process, "a scan of a file that is written")
        if code != 4 or "changed while it was read" not in told:
            sys.exit(f"scan: a file that is written while it is scanned: {code}: {told}")

        disk.forget("f.parquet", "f.csv")
        disk.attached.send_signal(signal.SIGSTOP)
        try:
            waiting = scan("f.parquet", "device", *wanted)
            given_up = scan("f.csv", "device", *wanted)
            here = subprocess.run([diskside, "scan", calm, *wanted], capture_output=True, timeout=PATIENCE_S)
            time.sleep(1)
            if here.returncode != 0 or waiting.poll() is not None or given_up.poll() is not None:
                sys.exit(f"scan: a disk that hangs: {here}, {waiting.poll()}, {given_up.poll()}")
            given_up.send_signal(signal.SIGINT)
            if (code := ended(given_up, "a scan that was interrupted while its disk hangs")[0]) != 130:
                sys.exit(f"scan: Ctrl-C while the disk hangs ended it with {code}")
        finally:
            disk.attached.send_signal(signal.SIGCONT)
        if ended(waiting, "a scan whose disk hangs no more") != whole:
            sys.exit("scan: after its disk hung a scan has another result")
        until = time.monotonic() + PATIENCE_S
        # The one that waits for the next scan.
        while len(children := children_of(server.process.pid)) > 1:
            if time.monotonic() > until:
                sys.exit(f"scan: processes of scans that have ended are left: {children}")
            time.sleep(0.01)

        disk.forget("f.parquet", "f.csv")
        os.truncate(disk.image, 1 << 20)
        for file in ["f.parquet", "f.csv"]:
            for place in ["device", "host"]:
                code, _, told = ended(scan(file, place, *wanted), "a scan of a disk that fails")
                if code != 4 or BROKEN not in told or file not in told:
                    sys.exit(f"scan: a disk that fails below {file}, at the {place}: {code}: {told}")


class Disk:
    """A file system on a volume that is attached here."""

    def __init__(self, diskside, directory):
        self.diskside, self.directory = diskside, directory
        self.image, self.mounted = directory / "image", directory / "mounted"
        self.mounted.mkdir()

    def __enter__(self):
        volume = f"disk={self.image},rw,size=256MiB"
        nqn = "nqn.2026-11.org.example:faults"
        self.server, said = self._start("serve", "--listen", "127.0.0.1:0", "--nqn", nqn, "--volume", volume)
        self.attached, said = self._start("attach", said.split()[-1])
        self.device = said.split()[-1]
        subprocess.run(["mkfs.ext4", "-q", self.device], check=True)
        subprocess.run(["mount", self.device, self.mounted], check=True)
        self.mounted.chmod(0o755)
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.mounted], check=False)
        subprocess.run([self.diskside, "detach", self.device], check=False, capture_output=True)
        for process in [self.attached, self.server]:
            process.kill()
            process.wait()
            process.stdout.close()

    def _start(self, *arguments):
        quiet = {**os.environ, "DISKSIDE_LOG": "error"}
        process = subprocess.Popen([self.diskside, *arguments], text=True, stdout=subprocess.PIPE, env=quiet)
        return process, process.stdout.readline()

    def forget(self, *names):
        """What is on the disk is nowhere else."""
        for name in names:
            with open(self.mounted / name, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
