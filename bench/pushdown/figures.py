"""The figures: which cells are measured, and how."""

import contextlib
import itertools
import json
import mmap
import os
import statistics
import struct
import subprocess
import sys
import time

import groups
from lab import MIB, Attached, Link, Load, Server, drop, note

TARGET_ROW = [97 + i % 26 for i in range(64)]
# Arguments by name, and as the bytes that native code gets.
FUNCTIONS = {
    "stats64": ([], b""),
    "stats32": ([], b""),
    "knn": (
        ["k=8", "row_len=64", "target=" + ",".join(map(str, TARGET_ROW))],
        struct.pack("<III", 64, 8, 0) + bytes(TARGET_ROW),
    ),
    "grep": (["pattern=DISKSIDE"], struct.pack("<I", 0) + b"DISKSIDE"),
    "bitmap": ([], b""),
}
READS = ["stats64", "stats32", "knn", "grep"]
PLAIN = ["buffered", "direct", "mmap"]
SIDES = ["host", "device", "auto"]
REQUEST, AT_ONCE = 8 * MIB, 2
# A round of a shorter time is made of several passes, so that it tells more than the machine's other doings.
ROUND_LEAST_S, PASSES_MAX = 0.4, 8


class Bench:
    def __init__(self, arguments, release, directory):
        self.arguments, self.release, self.directory = arguments, release, directory
        self.size, self.rounds = arguments.size * MIB, arguments.rounds
        self.quick, self.smoke = arguments.quick, arguments.smoke
        self.request = min(REQUEST, self.size // 8)
        self.passes_max = 1 if arguments.quick else PASSES_MAX
        self.cells, self.missing = [], []

    def miss(self, figure, what, why):
        """Takes note of what cannot be measured here."""
        note("")
        print(f"bench: {figure}: not measured: {what}: {why}", file=sys.stderr)
        self.missing.append({"figure": figure, "what": what, "why": str(why)})

    @contextlib.contextmanager
    def group(self, figure, what, controller, amount):
        """A control group, or None, of which it is taken note."""
        with contextlib.ExitStack() as stack:
            try:
                path = stack.enter_context(groups.group(controller, amount))
            except (groups.NoGroup, OSError) as why:
                self.miss(figure, what, why)
                path = None
            yield path

    @contextlib.contextmanager
    def stage(self, rate=None, delay_ms=0, cpu=None):
        """A link with a target at its end."""
        with Link(self.release, rate or self.arguments.link, delay_ms) as link:
            with Server(link, self.release, self.directory, cpu) as server:
                self.link, self.server = link, server
                yield

    def session(self, function, mode, name="data.bin", warm="none", group=None, **options):
        """The load of host, device, auto or read."""
        args, _ = FUNCTIONS[function]
        command = [f"{self.release}/examples/pushdown", self.server.url(name), function, mode, "--warm", warm]
        for arg in args:
            command += ["--arg", arg]
        options = {"request": self.request, "at_once": AT_ONCE, "cache": 2 * self.size} | options
        if function == "bitmap":
            options["write"] = os.path.join(self.directory, "runs.bin")
        elif self.arguments.trace and mode in ("host", "device"):
            options["trace"] = os.path.join(self.arguments.trace, f"{self.link.name}-{function}-{warm}-{mode}".replace(" ", ""))
        for option, value in options.items():
            command += [f"--{option.replace('_', '-')}", str(value)]
        # What runs over a cache that has everything changes nothing in it.
        stays_warm = warm == "all" and options["cache"] >= 2 * self.size
        return Load(self.link, command, group, stays_warm)

    def commands(self, function, mode, request):
        """The load of function commands, or of the standard ones, over the file as a volume."""
        args, _ = FUNCTIONS[function]
        command = [f"{self.release}/examples/standard", self.server.volume(1), function, mode]
        for arg in args:
            command += ["--arg", arg]
        command += ["--len", str(self.size), "--request", str(request), "--at-once", str(AT_ONCE)]
        return Load(self.link, command)

    def plain(self, function, mode, device, warm="none", length=None, request=None, group=None):
        """The load of a native program."""
        _, args = FUNCTIONS[function]
        command = [f"build/plain-{function}", device, mode, args.hex(), str(length or self.size)]
        command += [str(request or self.request), str(AT_ONCE), warm]
        if function == "bitmap":
            command.append(os.path.join(self.directory, "runs.bin"))
        return Load(self.link, command, group)

    def plain_modes(self):
        return [] if self.why_no_plain() else PLAIN

    def why_no_plain(self):
        if self.link.rate == "none":
            return "a volume is attached over a link (--link)"
        return None if os.path.exists("/dev/fuse") else "this machine has no /dev/fuse"

    def measure(self, figure, row, loads, rounds=None, same=True):
        """Rounds in turn. A load is (mode, loads that run together); its time is until the last of them ends."""
        wanted, functions = self.arguments.mode, self.arguments.function
        loads = [(mode, together) for mode, together in loads if not wanted or mode in wanted]
        named = [name for name in FUNCTIONS if name in row]
        if not loads or (functions and named and not set(named) & set(functions)):
            return
        note(f"{figure}: {row}")
        with contextlib.ExitStack() as stack:
            running = [(mode, [stack.enter_context(load) for load in together]) for mode, together in loads]
            taken = [[] for _ in running]
            for _ in range(rounds or self.rounds):
                for (_, together), runs in zip(running, taken):
                    runs.append(self.round(together))
        all_runs = [(mode, [run for passes in rounds_ for runs in passes for run in runs])
                    for (mode, _), rounds_ in zip(running, taken)]
        results = {mode: {run["result"] for run in runs} for mode, runs in all_runs}
        if same and len(set().union(*results.values())) > 1:
            sys.exit(f"bench: {figure}, {row}: results differ: {results}")
        for (mode, _), rounds_ in zip(running, taken):
            self.add(figure, row, mode, rounds_)

    def round(self, together):
        """Passes until they are long enough together, each from the same state of all caches."""
        passes, took_s = [], 0.0
        while not passes or (took_s < ROUND_LEAST_S and len(passes) < self.passes_max):
            for load in together:
                if not (passes and load.stays_warm):
                    load.warm()
            for name in ("data.bin", "more.bin"):
                drop(os.path.join(self.directory, name))
            for load in together:
                load.start()
            passes.append([load.finish() for load in together])
            took_s += max(run["seconds"] for run in passes[-1])
        return passes

    def add(self, figure, row, mode, rounds):
        """A cell: seconds of a pass are the mean of a round's, and the median of these."""
        last = rounds[-1][-1]
        longest = [[max(run["seconds"] for run in runs) for runs in passes] for passes in rounds]
        seconds = [statistics.mean(passes) for passes in longest]
        plans = {}
        for plan, count in itertools.chain.from_iterable(run["plans"].items() for run in last):
            plans[plan] = plans.get(plan, 0) + count
        cell = {"figure": figure, "row": row, "mode": mode, "link": self.link.name}
        cell |= {"seconds": statistics.median(seconds), "rounds": seconds, "passes": [len(p) for p in longest]}
        # The first pass of a pair also brings the function to the device, and measures.
        cell |= {"first": longest[0][0], "bytes": sum(run["bytes"] for run in last)}
        cell |= {"each": [run["seconds"] for run in last], "plans": plans}
        # Loads that run together share the link: the longest count has all of it.
        wire = [run["wire_bytes"] for run in last if run["wire_bytes"] is not None]
        self.cells.append(cell | {"wire_bytes": max(wire, default=None)})


def modes(bench):
    """Five functions in six modes, cold and with half of the file in the host's cache.

    `last half` was read one piece after another, `random half` are pieces here and there.
    """
    warmths = {"cold": "none", "last half": "last-half", "random half": "pieces"}
    with bench.stage(), attached(bench, 1, "modes") as disk:
        for function in READS:
            for label, warm in warmths.items():
                if bench.quick and label != "cold" and function != "stats64":
                    continue
                if bench.smoke and (function, label) != ("stats64", "last half"):
                    continue
                loads = [(m, [bench.plain(function, m, disk, warm)]) for m in bench.plain_modes()]
                loads += [(m, [bench.session(function, m, warm=warm)]) for m in SIDES]
                bench.measure("modes", f"{function}, {label}", loads)


def writes(bench):
    """A bitmap that expands 32-fold on its way to stable media, beside the disk's own rate.

    `disk` writes as many bytes to a file of the same file system, at the target: 8 MiB at a time with
    O_DIRECT, and fsync.
    """
    with bench.stage(), attached(bench, 2, "writes") as disk:
        loads = [(m, [bench.plain("bitmap", m, disk)]) for m in bench.plain_modes()]
        loads += [(m, [bench.session("bitmap", m, name="out.bin")]) for m in SIDES]
        loads.append(("disk", [DiskWrite(bench)]))
        bench.measure("writes", "bitmap", loads, same=False)


def sizes(bench):
    """stats64 over a file smaller than, like, and larger than the host's cache, read once before.

    The cache is the session's; of `buffered` it is the page cache within a control group, as far as
    this machine gives one.
    """
    cache = bench.size // 2
    lengths = (("half the cache", cache // 2), ("the cache", cache), ("twice the cache", 2 * cache))
    with bench.stage(), attached(bench, 1, "sizes") as disk:
        with bench.group("sizes", "buffered", "memory", cache + 24 * MIB) as group:
            for label, length in lengths[-1:] if bench.smoke else lengths:
                loads, request = [], min(bench.request, length // 8)
                if group and bench.plain_modes():
                    loads.append(("buffered", [bench.plain("stats64", "buffered", disk, "all", length, request, group)]))
                cached = {"len": length, "cache": cache, "request": request}
                loads += [(m, [bench.session("stats64", m, warm="all", **cached)]) for m in SIDES]
                bench.measure("sizes", label, loads)


def pairs(bench):
    """Two functions at once, each over half of a file of its own; until both have ended."""
    with bench.stage():
        chosen = list(itertools.combinations(FUNCTIONS, 2))
        if bench.quick:
            chosen = chosen[:1]
        for a, b in chosen:
            files = {a: "data.bin", b: "out.bin" if b == "bitmap" else "more.bin"}
            for label, warm in (("cold", "none"), ("last half", "last-half"))[: 1 if bench.quick else 2]:
                loads = [
                    (m, [paired(bench, f, m, files[f], warm) for f in (a, b)])
                    for m in SIDES
                ]
                bench.measure("pairs", f"{a} + {b}, {label}", loads, same=False)


def paired(bench, function, mode, name, warm):
    warm = "none" if function == "bitmap" else warm
    return bench.session(function, mode, name, warm, at_once=1, len=bench.size // 2)


def chunks(bench):
    """Bytes of a request, and of what the device computes on at a time."""
    with bench.stage():
        for function in ("stats64",) if bench.quick else ("stats64", "grep"):
            for request in (MIB // 4, 2 * MIB, 16 * MIB)[1 if bench.smoke else 0 : 2 if bench.quick else 3]:
                options = {"request": request, "chunk": min(request, 8 * MIB)}
                loads = [(m, [bench.session(function, m, **options)]) for m in SIDES]
                bench.measure("chunks", f"{function}, {request / MIB:g} MiB", loads)
            sizes_ = [MIB // 16, MIB // 4, MIB, 2 * MIB, 8 * MIB]
            sizes_ = sizes_[1:2] if bench.smoke else sizes_[1:3] if bench.quick else sizes_
            whole = {"request": 0, "at_once": 1}
            loads = [(f"{size // 1024} KiB", [bench.session(function, "device", chunk=size, **whole)]) for size in sizes_]
            bench.measure("chunks", f"{function}, one request, by chunks", loads)


def standard(bench):
    """Function commands beside the standard ones: copy to memory, execute, read.

    Both over a volume, by requests of so many bytes, two at once; a function command computes on all of its
    request at once, as an execution does.
    """
    with bench.stage():
        for function in ("stats64",) if bench.quick else ("stats64", "stats32"):
            for request in (MIB // 16, MIB, 8 * MIB)[2 if bench.smoke else 0 :: 2 if bench.quick else 1]:
                loads = [(m, [bench.commands(function, m, min(request, bench.request))]) for m in ("functions", "standard")]
                bench.measure("standard", f"{function}, {request // 1024} KiB", loads)


def threads(bench):
    """Requests at once."""
    with bench.stage():
        for at_once in (4,) if bench.smoke else (1, 4) if bench.quick else (1, 2, 4, 8):
            loads = [(m, [bench.session("knn", m, at_once=at_once)]) for m in SIDES]
            bench.measure("threads", f"knn, {at_once}", loads)


def policies(bench):
    """auto by lambda-IO's periodic profiling, of n requests the first k, beside ours: many small requests."""
    request = bench.size // 1024
    profiling = [(200, 5)] if bench.quick else [(200, 5), (50, 5), (200, 20), (1000, 5)]
    with bench.stage():
        for function, warm in (("stats64", "none"),) if bench.quick else (("stats64", "none"), ("stats64", "pieces")):
            options = {"request": request, "chunk": request, "at_once": 1, "warm": warm}
            loads = [(m, [bench.session(function, m, **options)]) for m in SIDES]
            for n, k in profiling:
                policy = f"periodic:{n}:{k}"
                loads.append((f"n={n} k={k}", [bench.session(function, "auto", policy=policy, **options)]))
            label = "cold" if warm == "none" else "random half"
            bench.measure("policies", f"{function}, {label}, {request // 1024} KiB", loads)


def links(bench):
    """1 and 10 Gb/s, with and without 2 ms of added round trip; nothing cached, and all of it."""
    if bench.arguments.link == "none":
        bench.miss("links", "everything", "it needs links of known rates (--link)")
        return
    chosen = [("1gbit", 0), ("10gbit", 0), ("1gbit", 1), ("10gbit", 1)]
    for rate, delay_ms in chosen[-1:] if bench.quick else chosen:
        with bench.stage(rate, delay_ms):
            for function in ("stats32",) if bench.quick else ("stats32", "knn"):
                for label, warm in (("cold", "none"), ("all cached", "all"))[bench.smoke :]:
                    loads = [(m, [bench.session(function, m, warm=warm)]) for m in ("read", *SIDES)[warm == "all" :]]
                    bench.measure("links", f"{bench.link.name}, {function}, {label}", loads, same=False)


def slow(bench):
    """A device with a fraction of a processor (control group), beside a host with all of it."""
    for percent in (25,) if bench.quick else (50, 25, 10):
        row = f"{percent} % of a processor"
        with bench.group("slow", row, "cpu", percent / 100) as group:
            if not group:
                continue
            with bench.stage(cpu=group):
                for function in ("knn",) if bench.quick else ("stats64", "knn"):
                    loads = [(m, [bench.session(function, m)]) for m in SIDES]
                    bench.measure("slow", f"{row}, {function}", loads)


def calls(bench):
    """An empty prepared Call beside a read of 4 KiB: latency of one at a time on the same connection.

    Medians of so many of each in turns, for a target of one volume in memory, in one process with its host, over
    loopback: what else takes time there is little, so the ratio is the harder one to keep.
    """
    # Fewer tell nothing: they take less than a second.
    pairs_, rounds = (1000, 1) if bench.smoke else (10_000, max(5, bench.rounds))
    command = [f"{bench.release}/examples/call_latency", str(pairs_), str(rounds)]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    taken = [json.loads(line) for line in lines]
    for mode in "read", "call":
        seconds = [line[mode] for line in taken]
        cell = {"figure": "calls", "row": "one at a time", "mode": mode, "link": "loopback"}
        cell |= {"seconds": statistics.median(seconds), "rounds": seconds, "passes": [pairs_] * rounds, "first": seconds[0]}
        bench.cells.append(cell | {"bytes": 4096 if mode == "read" else 0, "each": [], "plans": {}, "wire_bytes": None})


class DiskWrite:
    """Writes as many bytes as the bitmap has to a file at the target."""

    def __init__(self, bench):
        self.path, self.size = os.path.join(bench.directory, "disk.bin"), bench.size
        self.buffer = mmap.mmap(-1, REQUEST)
        self.buffer.write(os.urandom(REQUEST))

    stays_warm = True

    def __enter__(self):
        self.file = os.open(self.path, os.O_WRONLY | os.O_DIRECT)
        return self

    def __exit__(self, *_):
        os.close(self.file)

    def warm(self):
        pass

    def start(self):
        started = time.monotonic()
        for offset in range(0, self.size, REQUEST):
            os.pwrite(self.file, memoryview(self.buffer)[: min(REQUEST, self.size - offset)], offset)
        os.fsync(self.file)
        self.seconds = time.monotonic() - started

    def finish(self):
        return {"seconds": self.seconds, "bytes": self.size, "result": "", "plans": {}, "wire_bytes": None}


@contextlib.contextmanager
def attached(bench, number, figure):
    """A volume of the target as a block device, where plain programs run."""
    if why := bench.why_no_plain():
        bench.miss(figure, ", ".join(PLAIN), why)
        yield None
        return
    with Attached(bench.server, number) as device:
        yield device.device


FIGURES = {
    "modes": modes,
    "writes": writes,
    "sizes": sizes,
    "pairs": pairs,
    "chunks": chunks,
    "standard": standard,
    "threads": threads,
    "policies": policies,
    "links": links,
    "slow": slow,
    "calls": calls,
}
