"""Databases on an attached volume: a target, a mounted file system, MariaDB and PostgreSQL. Needs root."""

import contextlib
import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time

from namespaces import HOST, TARGET, Namespaces

NQN = "nqn.2026-11.io.diskside:bench"
THREADS = 16


class Stage:
    """A target, a volume, and a mounted file system, over a link of so many Mbit/s."""

    def __init__(self, release, image, cell, variant, rate_mbit):
        self.release, self.image, self.cell, self.variant, self.rate_mbit = release, image, cell, variant, rate_mbit

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self.namespaces = stack.enter_context(Namespaces("cp", "10.77.3"))
            for side in (TARGET, HOST):
                device = self.namespaces.devices[side]
                limit = ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{self.rate_mbit}mbit",
                         "burst", "128kb", "latency", "40ms"]
                output(self.namespaces.inside(side, limit))
            self.start_target()
            stack.callback(lambda: stopped(self.target))
            self.mount(stack)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start_target(self):
        page = self.cell["page"]
        options = "rw,size=3GiB" + (f",atomic={page // 1024}KiB" if self.variant in ("off", "deltas", "larger-off") else "")
        command = [f"{self.release}/diskside", "serve", "--listen", f"{self.namespaces.addresses[TARGET]}:4420", "--insecure",
                   "--nqn", NQN, "--no-compute", "--volume", f"data={self.image},{options}"]
        self.target, _ = started(self.namespaces.inside(TARGET, command))

    def kill_target(self):
        self.target.kill()
        self.target.wait()

    def mount(self, stack):
        page, cache = self.cell["page"], self.cell["cache"]
        deltas = ["--deltas", f"base_cache={cache}MiB,page={page // 1024}KiB"] if self.variant == "deltas" else []
        url = f"nvme-tcp://{self.namespaces.addresses[TARGET]}:4420/{NQN}/1"
        process, line = started(self.namespaces.inside(HOST, [f"{self.release}/diskside", "attach", url, *deltas]))
        stack.callback(stopped, process)
        self.host_pid, device = process.pid, line.rpartition(" is ")[2]
        if self.variant == "load":
            output(["mkfs.ext4", "-q", "-O", "bigalloc", "-C", str(page), "-E", "nodiscard", device])
        point = stack.enter_context(tempfile.TemporaryDirectory())
        os.chmod(point, 0o755)
        output(["mount", "-o", "noatime,nodiscard", device, point])
        stack.callback(output, ["umount", point])
        with open(f"/sys/block/{os.path.basename(device)}/loop/backing_file") as backing:
            self.statistics = os.path.join(os.path.dirname(backing.read().strip()), "deltas")
        self.data = os.path.join(point, "data")

    def counters(self):
        found = {"wire_bytes": self.wire_bytes(), "target_cpu_us": cpu_us(self.target.pid), "host_cpu_us": cpu_us(self.host_pid)}
        if self.variant == "deltas":
            with open(self.statistics) as lines:
                found |= {name: int(value) for name, value in (line.split() for line in lines)}
        return found

    def wire_bytes(self):
        name, device = self.namespaces.names[HOST], self.namespaces.devices[HOST]
        told = json.loads(output(["ip", "-n", name, "-s", "-j", "link", "show", "dev", device]))[0]["stats64"]
        return told["rx"]["bytes"] + told["tx"]["bytes"]


class MariaDb:
    """MariaDB as this machine has it, with sysbench."""

    def __init__(self, cell, rows):
        self.cell, self.rows = cell, rows

    def create(self, data):
        output(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db",
                "--auth-root-authentication-method=normal", f"--innodb-log-file-size={self.cell['log']}M"])
        with self.running(data, 512, False) as running:
            running.sql("create database sbtest")
            running.sysbench("prepare", "--threads=2")

    @contextlib.contextmanager
    def running(self, data, pool, doublewrite):
        """A server that is there until the end, or until it is killed (`self.server`)."""
        with tempfile.TemporaryDirectory() as directory:
            self.socket = os.path.join(directory, "socket")
            log = os.path.join(directory, "log")
            self.server = server = start_mariadb(data, self.socket, log, pool, self.cell["log"], doublewrite)
            try:
                wait_for(lambda: self.sql("select 1", check=False), server, log)
                yield self
            finally:
                stopped(server)

    def work(self, seconds):
        told = self.sysbench("run", f"--time={seconds}", f"--threads={THREADS}", "--rand-type=uniform")
        number = lambda pattern: float(re.search(pattern, told).group(1))
        return {"tps": number(r"transactions: +\d+ +\(([\d.]+) per sec"), "transactions": number(r"transactions: +(\d+)"),
                "p95_ms": number(r"95th percentile: +([\d.]+)"), "seconds": number(r"total time: +([\d.]+)s")}

    def sysbench(self, what, *options):
        script = self.cell["script"]
        return output(["sysbench", script, "--db-driver=mysql", f"--mysql-socket={self.socket}", "--mysql-user=root", "--tables=4",
                       f"--table-size={self.rows}", "--mysql-ignore-errors=all", *options, what])

    def sql(self, text, check=True):
        ended = subprocess.run(["mariadb", "--no-defaults", f"--socket={self.socket}", "-uroot", "-Ne", text],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and ended.returncode != 0:
            raise RuntimeError(f"{text}: {ended.stderr}")
        return ended.stdout if ended.returncode == 0 else None


def start_mariadb(data, socket, log, pool, redo, doublewrite, *options):
    command = ["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--user=root", "--skip-networking",
               f"--innodb-buffer-pool-size={pool}M", f"--innodb-log-file-size={redo}M", "--innodb-flush-method=O_DIRECT",
               f"--innodb-doublewrite={int(doublewrite)}", "--innodb-io-capacity=20000", "--innodb-io-capacity-max=40000",
               "--innodb-flush-neighbors=0", "--innodb-buffer-pool-load-at-startup=0", "--innodb-buffer-pool-dump-at-shutdown=0",
               "--innodb-flush-log-at-trx-commit=1", "--max-connections=64", "--skip-log-bin", f"--log-error={log}", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Postgres:
    """PostgreSQL as this machine has it, with pgbench."""

    def __init__(self, cell, rows):
        self.cell, self.scale = cell, max(1, rows // 10_000)
        self.programs = max(os.path.join("/usr/lib/postgresql", version, "bin") for version in os.listdir("/usr/lib/postgresql"))

    def create(self, data):
        os.mkdir(data)
        shutil.chown(data, "postgres", "postgres")
        self.run("initdb", "--pgdata", data, "--data-checksums", "--no-sync")
        with self.running(data, 256, False) as running:
            running.run("pgbench", "-h", running.socket, "-i", "-q", "-s", str(self.scale), "postgres")

    @contextlib.contextmanager
    def running(self, data, pool, full_pages):
        with tempfile.TemporaryDirectory() as directory:
            shutil.chown(directory, "postgres", "postgres")
            self.socket = directory
            self.server = server = subprocess.Popen(self.command("postgres", *postgres_options(data, directory, pool, self.cell["log"], full_pages)),
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                ready = ["pg_isready", "-q", "-h", directory]
                wait_for(lambda: subprocess.run(self.command(*ready)).returncode == 0, server, "its log")
                yield self
            finally:
                stopped(server)

    def work(self, seconds):
        with tempfile.TemporaryDirectory() as directory:
            shutil.chown(directory, "postgres", "postgres")
            prefix = os.path.join(directory, "log")
            told = self.run("pgbench", "-h", self.socket, "-n", "-c", str(THREADS), "-j", "2", "-T", str(seconds), "-l",
                            "--log-prefix", prefix, "postgres")
            times = []
            for name in os.listdir(directory):
                with open(os.path.join(directory, name)) as lines:
                    times += [int(line.split()[2]) for line in lines]
        times.sort()
        number = lambda pattern: float(re.search(pattern, told).group(1))
        return {"tps": number(r"tps = ([\d.]+)"), "transactions": number(r"actually processed: (\d+)"),
                "p95_ms": times[len(times) * 95 // 100] / 1e3 if times else 0, "seconds": seconds}

    def run(self, program, *options):
        return output(self.command(program, *options))

    def command(self, program, *options):
        user = pwd.getpwnam("postgres")
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
                os.path.join(self.programs, program), *options]


def postgres_options(data, socket, pool, wal, full_pages):
    settings = {"shared_buffers": f"{pool}MB", "full_page_writes": "on" if full_pages else "off", "max_wal_size": f"{wal}MB",
                "min_wal_size": "32MB", "listen_addresses": "", "unix_socket_directories": socket, "checkpoint_timeout": "30s",
                "autovacuum": "off", "max_connections": "64"}
    return ["-D", data, *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))]


def wait_for(ready, server, log):
    for _ in range(600):
        if ready():
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    told = ""
    with contextlib.suppress(OSError), open(log) as lines:
        told = "".join(lines.readlines()[-20:])
    raise RuntimeError(f"the database does not start: {told}")


def cpu_us(pid):
    with open(f"/proc/{pid}/stat") as line:
        fields = line.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000 // os.sysconf("SC_CLK_TCK")


def started(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"{' '.join(command)} ended with {process.wait()}")
    return process, line


def stopped(process):
    process.terminate()
    try:
        process.wait(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def output(command):
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return ended.stdout
