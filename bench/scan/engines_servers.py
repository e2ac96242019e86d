"""The servers of bench/scan/engines on one side of a link, its clients on the other, and what both have used."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import engines_nfs
from namespaces import HOST, TARGET, Namespaces

PORT, HTTP_PORT = 4426, 4427
HERE = Path(__file__).parent
TICK = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def link_of(rate, is_smoke):
    """The namespaces with a link of a rate; None, for loopback, if a smoke test may not make them."""
    with contextlib.ExitStack() as stack:
        try:
            if os.geteuid() != 0:
                raise OSError("network namespaces need root")
            link = stack.enter_context(Namespaces("engines", "10.211.85"))
            for name, device in zip(link.names, link.devices, strict=True):
                tbf = ["tbf", "rate", rate, "burst", "512k", "latency", "50ms"]
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", device, "root", *tbf], check=True)
        except (OSError, subprocess.SubprocessError) as error:
            if not is_smoke:
                sys.exit(f"bench: no link of a known rate: {error}")
            print(f"bench: no link of a known rate, so over loopback: {error}", file=sys.stderr)
            link = None
        yield link


class Stage:
    """The exported directory, the servers of it, and what clients need to know."""

    def __init__(self, link, programs, python, directory, environment):
        self.link, self.programs, self.python = link, programs, python
        self.directory, self.data = directory, directory / "data"
        self.address = link.addresses[TARGET] if link else "127.0.0.1"
        self.device = link.devices[HOST] if link else "lo"
        self.environment = os.environ | environment
        self.processes = contextlib.ExitStack()
        #: All are in one network.
        self.any_client = "self"
        #: The server of each way, and why there is none.
        self.servers, self.missing = {}, {}
        self.log = directory / "server.log"

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.processes = stack
            self.serve()
            self.serve_http()
            self.serve_nfs()
            self.processes = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.processes.close()

    def start(self, side, command, **options):
        inside = self.link.inside(side, command) if self.link else command
        process = self.processes.enter_context(subprocess.Popen(list(map(str, inside)), env=self.environment, **options))
        self.processes.callback(process.terminate)
        return process

    def serve(self):
        log = self.processes.enter_context(open(self.log, "wb"))
        listen = f"{self.address}:{PORT}"
        # A network of the machine's own: nobody else is on it.
        command = [self.programs / "diskside", "serve", "--listen", listen, "--export", f"data={self.data},uid=0,gid=0", "--insecure"]
        server = self.start(TARGET, command, stdout=subprocess.PIPE, stderr=log)
        if not server.stdout.readline():
            sys.exit(f"bench: the server does not start:\n{self.log.read_text()}")
        self.servers |= dict.fromkeys(["pushed", "host", "fsspec", "first", "again"], server.pid)

    def serve_http(self):
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if nginx is None:
            self.missing["http"] = "nginx is not installed: run scripts/setup --for objects"
            return
        configuration = self.directory / "nginx.conf"
        temporary = "".join(f"{kind}_temp_path {self.directory}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        # Workers of another user may not read what root keeps in a temporary directory.
        configuration.write_text(
            f"{'user root; ' if os.geteuid() == 0 else ''}daemon off; worker_processes 2; pid {self.directory}/nginx.pid; "
            f"error_log {self.directory}/nginx.log; events {{ }}\n"
            f"http {{ access_log off; sendfile on; tcp_nopush on; {temporary}\n"
            f"server {{ listen {self.address}:{HTTP_PORT}; root {self.data}; }} }}\n"
        )
        server = self.start(TARGET, [nginx, "-e", self.directory / "nginx.log", "-c", configuration], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while not is_listened_to(server.pid, HTTP_PORT):
            if server.poll() is not None or time.monotonic() > until:
                sys.exit(f"bench: nginx does not start:\n{(self.directory / 'nginx.log').read_text()}")
            time.sleep(0.02)
        self.servers["http"] = server.pid

    def serve_nfs(self):
        why = engines_nfs.lacking() or (None if self.link else "its server needs a network of its own, for its ports")
        if why:
            self.missing["nfs"] = why
            return
        said = self.directory / "nfs.log"
        with open(said, "wb") as log:
            server = self.start(TARGET, engines_nfs.server_of(self.directory, self.data), stdout=log, stderr=log)
        # The first of its processes waits for the others, whatever it is told.
        self.processes.callback(server.kill)
        until = time.monotonic() + 20
        while not is_listened_to(server.pid, engines_nfs.PORT):
            if server.poll() is not None or time.monotonic() > until:
                own = self.directory / "ganesha.log"
                sys.exit(f"bench: NFS-Ganesha does not start:\n{said.read_text()}{own.read_text() if own.exists() else ''}")
            time.sleep(0.02)
        # Not all file systems can be exported: an overlay cannot.
        probe = self.link.inside(HOST, [sys.executable, "-B", HERE / "engines_nfs.py", self.address, self.data])
        done = subprocess.run(list(map(str, probe)), stderr=subprocess.PIPE, text=True)
        if done.returncode:
            self.missing["nfs"] = done.stderr.strip()
        self.servers["nfs"] = server.pid

    def clients(self, engine, way, count):
        return [Client(self, engine, way, number) for number in range(count)]

    def received(self):
        """Bytes that have reached the clients' end of the link."""
        for line in Path(f"/proc/{self.any_client}/net/dev").read_text().splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == self.device:
                return int(numbers.split()[0])
        sys.exit(f"bench: no device {self.device}")

    def forget_pages(self):
        """Has the kernel drop the pages of the exported files, and of no others."""
        for path in self.data.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        largest = max(self.data.iterdir(), key=lambda path: path.stat().st_size)
        with open(largest, "rb") as file, contextlib.suppress(BlockingIOError):
            os.preadv(file.fileno(), [bytearray(4096)], largest.stat().st_size // 2 & ~4095, os.RWF_NOWAIT)
            sys.exit(f"bench: --cold: {largest.name} is still in memory; set TMPDIR to a directory of a disk")


class Client:
    """A process that runs queries by one engine in one way."""

    def __init__(self, stage, engine, way, number):
        wanted = {"engine": engine, "way": way, "server": f"{stage.address}:{PORT}", "http": f"http://{stage.address}:{HTTP_PORT}"}
        wanted |= {"mount": str(stage.data), "cache": str(stage.directory / f"cache-{engine}-{way}-{number}")}
        command = [stage.python, "-B", HERE / "engines_ways.py", json.dumps(wanted)]
        self.process = stage.start(HOST, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = f"{engine} {way}"
        stage.any_client = self.process.pid

    def tell(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": f"{self.name} ended with {self.process.wait()}"}

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def is_listened_to(process, port):
    """Whether a process of that network listens at the port."""
    lines = [line for kind in ("tcp", "tcp6") for line in Path(f"/proc/{process}/net/{kind}").read_text().splitlines()[1:]]
    return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines)


def processor_seconds(root):
    """Seconds of the processors that a process, all below it and those that ended have used."""
    children, used = {}, {}
    for entry in os.listdir("/proc"):
        # A process that ends meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if entry.isdigit():
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
                used[int(entry)] = sum(map(int, fields[11:15])) / TICK
    total, left = 0.0, [root]
    while left:
        process = left.pop()
        total += used.get(process, 0.0)
        left += children.get(process, [])
    return total
