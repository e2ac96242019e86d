"""The host's part of bench/python/run: prints one JSON document."""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import diskside
import numpy
import pyarrow.parquet
import zarr


class Stage(NamedTuple):
    url: str
    """Of the export."""
    directory: Path
    """What is exported."""
    programs: Path
    size: str
    session: diskside.Session
    server: int
    """The server's process."""

    def sized(self, full, quick, smoke):
        return {"full": full, "quick": quick, "smoke": smoke}[self.size]


def main():
    url, directory, programs, size, chosen, server = sys.argv[1:]
    wait_for(url)
    with diskside.connect(url) as session:
        stage = Stage(url, Path(directory), Path(programs), size, session, int(server))
        bars, means = [], []
        for name in chosen.split(","):
            if name == "mean":
                means = mean_rows(stage)
                bars += mean_bars(means)
            elif name in MEASURED:
                bars += MEASURED[name](stage)
    print(json.dumps({"bars": bars, "means": means}))


def bar(name, measured, most=None, least=None, beside=None):
    met = (most is None or measured <= most) and (least is None or measured >= least)
    return {"bar": name, "measured": measured, "most": most, "least": least, "beside": beside, "met": met}


def wait_for(url):
    until = time.monotonic() + 20
    while True:
        try:
            with diskside.connect(url) as session:
                session.ls()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def seconds_of(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def import_time(stage):
    def started(code):
        return seconds_of(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    codes = ["import diskside, sys; assert 'numpy' not in sys.modules", "pass", "import numpy"]
    rounds = [[started(code) for code in codes] for _ in range(stage.sized(21, 11, 2))]
    ours, nothing, of_numpy = (1000 * statistics.median(times) for times in zip(*rounds, strict=True))
    return [bar("import, ms", ours - nothing, most=50, beside=f"numpy: {of_numpy - nothing:.0f} ms")]


@contextlib.contextmanager
def apart(server):
    """A server on the first processor of this machine, and this process, with what it starts, on the last."""
    all_of_them = sorted(os.sched_getaffinity(0))

    def bind(process, processors):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), processors)

    bind(server, all_of_them[:1])
    bind(os.getpid(), all_of_them[-1:])
    try:
        yield
    finally:
        bind(server, all_of_them)
        bind(os.getpid(), all_of_them)


def small_run(stage):
    with apart(stage.server):
        return small_runs(stage)


def small_runs(stage):
    (stage.directory / "small.u64").write_bytes(numpy.arange(1000, dtype="<u8").tobytes())
    name, runs = f"{stage.url}/small.u64", stage.sized(1500, 300, 20)
    by_python, by_rust = {"device": [], "auto": []}, {"opened": [], "device": [], "auto": []}
    for _ in range(stage.sized(7, 3, 1)):
        for place, times in by_python.items():
            for _ in range(20):
                stage.session.run("stats64", name, place=place)
            times.append(statistics.median(seconds_of(lambda at=place: stage.session.run("stats64", name, place=at)) for _ in range(runs)))
        command = [stage.programs / "examples/small_runs", name, str(runs)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for times, one in zip(by_rust.values(), told.split(), strict=True):
            times.append(int(one) * 1e-9)

    def compared(what, python, rust):
        ratio = statistics.median(mine / other for mine, other in zip(python, rust, strict=True))
        beside = f"Python {1e6 * statistics.median(python):.0f} us, Rust {1e6 * statistics.median(rust):.0f} us"
        return bar(f"a small run{what}: Python / Rust", ratio, most=1.3, beside=beside)

    return [
        # As a user of the library writes it: it opens the file, and runs.
        compared("", by_python["device"], by_rust["opened"]),
        # The same request to the byte.
        compared(", same request", by_python["device"], by_rust["device"]),
        compared(", auto", by_python["auto"], by_rust["auto"]),
    ]


COPIED = """
#include "diskside.h"
DS_SPLIT_RECORDS(8);
DS_CONCATENATE;
SEC("read/copied")
__s64 copied(void *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call) {
    ds_memcpy(out, in, in_len);
    return in_len;
}
"""


def large_result(stage):
    size = stage.sized(1 << 30, 1 << 28, 1 << 24)
    path = stage.directory / "large.u64"
    with open(path, "wb") as file:
        for first in range(0, size // 8, 1 << 20):
            numpy.arange(first, first + (1 << 20), dtype="<u8").tofile(file)
    result = diskside.run(diskside.function(source=COPIED), path, result_max=size + 1)
    before = resident_mib()
    values = numpy.frombuffer(result, "<u8")
    assert values.nbytes == size and (values[::511] == numpy.arange(size // 8, dtype="<u8")[::511]).all()
    more = resident_mib() - before
    # What holds the indexes for the comparison is given back, and may stay with the allocator.
    copied = seconds_of(lambda: values.copy())
    path.unlink()
    return [bar("1 GiB into numpy: more memory, MiB", max(more, 0), most=64, beside=f"copying it takes {copied:.2f} s")]


def resident_mib():
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) / 1024


NEEDED = ["l_quantity", "l_extendedprice", "l_discount", "l_shipdate"]


def columns(stage):
    import fsspec

    path = lineitem(stage)
    footer = pyarrow.parquet.ParquetFile(path).metadata
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    needed = sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in NEEDED)
    # Of the footer, its length and the last four bytes.
    needed += footer.serialized_size + 8
    name = f"{stage.url}/{path.name}".removeprefix("diskside://")

    def usual_cache(fs):
        with fs.open(name, cache_type="readahead", block_size=5 << 20) as file:
            return pyarrow.parquet.read_table(file, columns=NEEDED, pre_buffer=False)

    def moved(read):
        with diskside.connect(stage.url) as session:
            fs = fsspec.filesystem("diskside", session=session, skip_instance_cache=True)
            session.ls()
            before = received_bytes()
            found = read(fs)
            got = (received_bytes() - before) / needed
        assert found.num_rows == footer.num_rows
        return got

    ours = [
        moved(lambda fs: pyarrow.parquet.read_table(name, columns=NEEDED, filesystem=fs)),
        moved(lambda fs: pyarrow.dataset.dataset(name, filesystem=fs).to_table(columns=NEEDED)),
    ]
    beside = f"{moved(usual_cache):.2f} by fsspec's usual cache; {needed / 1e6:.1f} MB needed of {path.stat().st_size / 1e6:.1f}"
    return [bar("columns of query 6: bytes moved / needed", max(ours), most=1.05, beside=beside)]


def lineitem(stage):
    """TPC-H's, in sixteen row groups."""
    scale = stage.sized("0.3", "0.1", "0.01")
    program = Path(sys.executable).parent / "tpchgen-cli"
    command = [program, "parquet", "--scale-factor", scale, "--tables", "lineitem", "--output-dir", stage.directory]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    path = stage.directory / "lineitem.parquet"
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table, path, row_group_size=-(-table.num_rows // 16))
    return path


def received_bytes():
    """Of all network devices of this namespace, packets' headers included."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[0]) for line in lines)


#: Of the relay, each way, in seconds: far enough apart that a busy moment is no round trip.
DELAYS = (0.005, 0.05)


def shards(stage):
    from diskside.zarr import ZarrStore
    from zarr.storage import FsspecStore

    whole = numpy.arange(16_000, dtype="f4").reshape(40, 400)
    array = zarr.create_array(ZarrStore(f"{stage.url}/row.zarr"), shape=whole.shape, chunks=(10, 10), shards=(40, 100), dtype="f4", overwrite=True)
    array[:] = whole

    def plain(url, session):
        import fsspec

        fs = fsspec.filesystem("diskside", session=session, asynchronous=True, skip_instance_cache=True)
        return FsspecStore(fs, read_only=True, path=url.removeprefix("diskside://"))

    ways = {"ours": lambda url, session: ZarrStore(url, read_only=True, session=session), "plain": plain}
    times = {way: [] for way in ways}
    host = stage.url.split("/")[2]
    for delay in DELAYS:
        relay = subprocess.Popen([stage.programs / "examples/relay", host, str(int(1e6 * delay))], stdout=subprocess.PIPE, text=True)
        try:
            url = stage.url.replace(host, relay.stdout.readline().strip())
            for way, store_of in ways.items():
                rounds = [row_times(store_of, url, whole) for _ in range(stage.sized(7, 5, 1))]
                # The fastest: whatever else the machine does only adds to what is counted here.
                times[way].append([min(of) for of in zip(*rounds, strict=True)])
        finally:
            relay.terminate()
            relay.wait()

    def trips(way, which):
        # What does not wait for the network is the same over both delays.
        fast, slow = times[way]
        return (slow[which] - fast[which]) / (2 * (DELAYS[1] - DELAYS[0]))

    return [
        bar("a row through 4 shards: round trips", round(trips("ours", 0), 1), most=3, beside=f"{trips('plain', 0):.1f} by zarr's store for fsspec"),
        bar("another row of them: round trips", round(trips("ours", 1), 1), most=3, beside=f"{trips('plain', 1):.1f} by zarr's store for fsspec"),
    ]


def row_times(store_of, url, whole):
    """The times of a row of an array that is open, of shards that were not used before, and of another one of them."""
    with diskside.connect(url) as session:
        array = zarr.open_array(store_of(f"{url}/row.zarr", session), mode="r")
        took = []
        for index in [7, 23]:
            began = time.perf_counter()
            row = array[index, :]
            took.append(time.perf_counter() - began)
            assert (row == whole[index]).all()
            # Until files that were open count as looked for no more.
            time.sleep(0.15)
        return took


def mean_rows(stage):
    from diskside.zarr import ZarrStore
    from diskside.zarr import statistics as statistics_of

    zarr.config.set({"async.concurrency": 64})
    # lz4 is none of format 3's own codecs.
    warnings.filterwarnings("ignore", category=zarr.errors.ZarrUserWarning)
    side = stage.sized(4000, 2000, 400)
    values = measured_field(side)
    expected = values.mean()
    session, url = stage.session, f"{stage.url}/mean.zarr"

    def opened():
        session.drop_cache()
        return zarr.open_array(ZarrStore(url, read_only=True, session=session), mode="r")

    def read():
        assert abs(opened()[:].mean() - expected) < 1e-9

    def at(place):
        def reduce():
            assert abs(statistics_of(opened(), place=place).mean - expected) < 1e-9

        return reduce

    rows = []
    for codec, how in ways_to_store(side).items():
        array = zarr.create_array(
            ZarrStore(url, session=session), shape=values.shape, chunks=(side // 8, side // 8), dtype="f8", overwrite=True, **how
        )
        array[:] = values
        stored = sum(path.stat().st_size for path in (stage.directory / "mean.zarr").rglob("*") if path.is_file())
        ways = {"read_s": read, "host_s": at("host"), "server_s": at("device"), "auto_s": at("auto")}
        # `auto` learns which side is faster.
        for _ in range(stage.sized(6, 4, 1)):
            ways["auto_s"]()
        times = {name: [] for name in ways}
        for _, name in itertools.product(range(stage.sized(7, 3, 1)), ways):
            times[name].append(seconds_of(ways[name]))
        rows.append({"codec": codec, "stored_bytes": stored} | {name: statistics.median(of) for name, of in times.items()})
    return rows


def measured_field(side):
    """Smooth, with noise in the last digits that are kept: a third to a half of it remains when it is compressed."""
    x = numpy.linspace(0, 20, side)
    smooth = (numpy.sin(x)[:, None] * numpy.cos(x)[None, :] * 1000).round(1)
    noise = numpy.random.default_rng(2).integers(0, 10, (side, side)) / 100
    return smooth + noise


def ways_to_store(side):
    from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
    from zarr.codecs.numcodecs import LZ4

    return {
        "none": {"compressors": None},
        "none, in shards": {"compressors": None, "shards": (side // 2, side // 2)},
        "crc32c": {"compressors": Crc32cCodec()},
        "blosc: lz4, bytes shuffled": {"compressors": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")},
        "blosc: zstd, bits shuffled": {"compressors": BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle")},
        "lz4": {"compressors": LZ4()},
        "zstd": {"compressors": ZstdCodec(level=3)},
        "gzip": {"compressors": GzipCodec(level=5)},
    }


def mean_bars(rows):
    """The array as it is, and the codec that does worst."""
    ratio = {row["codec"]: row["read_s"] / row["server_s"] for row in rows}
    auto = {row["codec"]: row["auto_s"] / min(row["host_s"], row["server_s"]) for row in rows}
    worst, lost = min(ratio, key=ratio.get), max(auto, key=auto.get)
    return [
        bar("mean at the server: x reading, no codec", ratio["none"], least=5),
        bar("mean at the server: x reading, worst codec", ratio[worst], least=5, beside=worst),
        bar("mean by auto: x the better side, worst codec", auto[lost], most=1.25, beside=lost),
    ]


MEASURED = {"import": import_time, "run": small_run, "result": large_result, "columns": columns, "shards": shards}


if __name__ == "__main__":
    main()
