"""Diskside's own host against the Linux kernel's target."""

import json
import os

from lab import HERE, free_port

VOLUME_MIB = 24
NQN = "nqn.2026-11.org.diskside:guest-nvmet"


def run(lab):
    port = free_port()
    cases = [HERE / "boots/kernel-target/00-nvmet.sh", lab.boot / "01-diskside.sh"]
    settings = {"ADDR": "0.0.0.0", "PORT": 4420, "NQN": NQN, "VOLUMES": "/run/volumes", "VOLUME_MIB": VOLUME_MIB}
    guest = lab.guest(settings, cases=cases, forward=[(port, 4420)])
    target = f"nvme-tcp://127.0.0.1:{port}"
    guest.on("discover", lambda: discover(lab, target))
    guest.on("info", lambda: info(lab, f"{target}/{NQN}"))
    guest.on("ping", lambda: ping(lab, f"{target}/{NQN}/1"))
    guest.on("copy", lambda nsid, *options: copy(lab, f"{target}/{NQN}/{nsid}", options))
    guest.on("fetch", lambda nsid: fetch(lab, f"{target}/{NQN}/{nsid}"))
    guest.run()


def discover(lab, target):
    found = json.loads(lab.diskside("discover", target, "--json"))["subsystems"]
    names = [subsystem["nqn"] for subsystem in found]
    lab.expect("discovery through the kernel's target names its subsystem", NQN in names)


def info(lab, url):
    document = json.loads(lab.diskside("info", url, "--json"))
    lab.expect("the kernel's controller has two volumes", len(document["volumes"]) == 2)


def ping(lab, url):
    document = json.loads(lab.diskside("ping", url, "--count", "5", "--json"))
    lab.expect("five reads were answered", document["count"] == 5)


def copy(lab, url, options):
    """A file of the volume's size goes there and is read back by --verify."""
    source = lab.directory / "source.img"
    if not source.exists():
        block = os.urandom(1 << 20)
        source.write_bytes(b"".join(bytes([i]) + block[1:] for i in range(VOLUME_MIB)))
    lab.diskside("cp", source, url, "--force", "--verify", *options, timeout_s=200)
    lab.say(f"  so: {VOLUME_MIB} MiB copied and verified {' '.join(options)}")


def fetch(lab, url):
    """What the guest wrote to its own disk is what we read over the wire."""
    got = lab.directory / "got.img"
    lab.diskside("cp", url, got, timeout_s=200)
    with open(got, "rb") as file:
        beginning = file.read(64)
    got.unlink()
    lab.expect("what the guest wrote is what we read", beginning.startswith(b"written by the guest"))
