"""A server that is reached over a slow way compresses results, once a scan has seen how slow it is; one on this machine does not."""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq

# So many bytes are passed on, and then none for so long: a quarter of a gigabit in a second.
PIECE, PAUSE_S = 64 << 10, 0.002


def check(diskside, server, directory):
    rng = random.Random(5)
    found = {"n": [rng.getrandbits(62) for _ in range(300_000)], "text": [f"a text of some length {n % 50}" for n in range(300_000)]}
    pq.write_table(pa.table(found), directory / "slow.parquet", row_group_size=100_000)
    address = server.url.removeprefix("diskside://").split("/")[0]
    with Way(address) as way:
        far = server.url.replace(address, way.address)

        def scan(place, url=far, options=("--where", "n > 5")):
            command = [diskside, "scan", f"{url}/slow.parquet", *options, "--place", place, "--format", "arrow", "--json"]
            variables = os.environ | {"XDG_STATE_HOME": str(directory / "state of slow")}
            out = directory / "result"
            done = subprocess.run([*command, "--out", out], check=True, timeout=120, stdout=subprocess.PIPE, env=variables)
            return json.loads(done.stdout), out.read_bytes()

        (first, rows), (here, of_host) = scan("device"), scan("host")
        (second, packed), (near, of_near) = scan("device"), scan("device", server.url)
        both, _ = scan("both", options=["--aggregate", "count(*)"])
    told = [of["compression"] for of in (first, here, second, near, both)]
    if told != ["none", "none", "lz4", "none", "lz4"]:
        sys.exit(f"scan: how results of a slow link, and of this machine, were compressed: {told}")
    if second["received_bytes"] * 1.5 > first["received_bytes"]:
        sys.exit(f"scan: a compressed result has {second['received_bytes']} bytes, another one {first['received_bytes']}")
    if not rows == of_host == packed == of_near:
        sys.exit("scan: a result depends on how it travels")


class Way:
    """A slow way to an address."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.target, self.listener = (host.strip("[]"), int(port)), socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        # It ends when the listener is closed.
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target)
                for ends in [(near, far), (far, near)]:
                    for end in ends:
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=passes, args=ends, daemon=True).start()


def passes(one, other):
    with contextlib.suppress(OSError):
        while received := one.recv(PIECE):
            other.sendall(received)
            time.sleep(PAUSE_S * len(received) / PIECE)
        other.shutdown(socket.SHUT_WR)
