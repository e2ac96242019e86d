"""What the process that scans at a server may still do, as the kernel says while it is in the middle of a file."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

MIB = 1 << 20
# Bytes of address space of a scan at a server, and beyond them stacks of its threads.
MEMORY_LEN, STACKS_LEN_MAX = 128 * MIB, 64 * MIB


def check(diskside, server, path, children_of):
    """Looks at the process that scans a file, whose result nobody reads: it is long past its first look at the file."""
    command = [diskside, "scan", f"{server.url}/{path.name}", "--place", "device", "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            process.stdout.read(1000)
            # The file is its standard error.
            found = [child for child in children_of(server.process.pid) if opened(child).get(2) == str(path)]
            if len(found) != 1:
                sys.exit(f"scan: {len(found)} processes of the server have {path}")
            look_at(found[0], server.process.pid)
        finally:
            process.kill()


def look_at(child, server):
    status, of_server, limits = told(child), told(server), limits_of(child)
    if set(opened(child)) != {0, 1, 2}:
        sys.exit(f"scan: a process that scans has more open than its pipes and the file: {opened(child)}")
    # It has its server's filters, and two of its own: the second one forbids machine code. Each thread has them, not the first alone.
    filters = int(of_server["Seccomp_filters"]) + 2
    for name, wanted in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Seccomp_filters", str(filters))]:
        for thread in Path(f"/proc/{child}/task").iterdir():
            if (found := told(child, thread.name)[name]) != wanted:
                sys.exit(f"scan: a thread of a process that scans has {name} {found}, and not {wanted}")
    for name in ["Uid", "Gid"]:
        if status[name] != of_server[name]:
            sys.exit(f"scan: a process that scans has {name} {status[name]}, and its server {of_server[name]}")
    for name in ["CapEff", "CapPrm", "CapInh", "CapAmb"]:
        if int(status[name], 16) != 0:
            sys.exit(f"scan: a process that scans has {name} {status[name]}")
    for name in ["Max file size", "Max core file size", "Max open files"]:
        if limits[name] != ("0", "0"):
            sys.exit(f"scan: a process that scans has {name} {limits[name]}")
    soft, hard = limits["Max address space"]
    if soft != hard or not soft.isdecimal() or not MEMORY_LEN <= int(soft) <= MEMORY_LEN + STACKS_LEN_MAX:
        sys.exit(f"scan: a process that scans has {soft} bytes of address space, which may become {hard}")


def told(process, thread=None):
    task = f"task/{thread}/" if thread else ""
    lines = Path(f"/proc/{process}/{task}status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def limits_of(process):
    """Soft and hard limits, by name."""
    lines = Path(f"/proc/{process}/limits").read_text().splitlines()
    width = lines[0].index("Soft Limit")
    return {line[:width].strip(): tuple(line[width:].split()[:2]) for line in lines[1:]}


def opened(process):
    """What the descriptors of a process lead to."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[int(descriptor.name)] = os.readlink(descriptor)
    return found
