"""A file of some hundred bytes that has more than 2^31 rows: each row group has 2^30 times the same number, in one run."""

import json
import subprocess
import sys

import pyarrow.parquet as pq

ROWS, GROUPS = 1 << 30, 3
# Types of Thrift's compact protocol.
I32, I64, TEXT, LIST, STRUCT = 5, 6, 8, 9, 12
# Values of Parquet's metadata.
INT32, REQUIRED, PLAIN, RLE, RLE_DICTIONARY, DATA_PAGE, DICTIONARY_PAGE = 1, 0, 0, 3, 8, 0, 2
VALUE = 7


def check(diskside, server):
    path = server.directory / "many.parquet"
    path.write_bytes(file())
    found = pq.ParquetFile(path)
    if (found.metadata.num_rows, found.metadata.num_row_groups) != (ROWS * GROUPS, GROUPS):
        sys.exit(f"scan: a file of many rows is not as pyarrow reads it: {found.metadata}")

    def scan(place, *options):
        url = [path] if place == "local" else [f"{server.url}/{path.name}", "--place", place]
        out = server.directory / "result"
        command = [diskside, "scan", *url, *options, "--format", "csv", "--out", out, "--json"]
        done = subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE)
        return out.read_text().split("\n")[1:-1], json.loads(done.stdout)

    for options, wanted, read in [
        (["--aggregate", "count(*)"], [f"{ROWS * GROUPS}"], ROWS * GROUPS),
        (["--aggregate", "count(*)", "--row-groups", "1..3"], [f"{ROWS * 2}"], ROWS * 2),
        (["--columns", "n", "--limit", "3"], ["7", "7", "7"], None),
        (["--columns", "n", "--limit", "70000", "--row-groups", "2..3"], ["7"] * 70_000, None),
        (["--columns", "n", "--where", "n = 7", "--limit", "2"], ["7", "7"], None),
        # The statistics say so.
        (["--aggregate", "count(*)", "--where", "n > 7"], ["0"], 0),
    ]:
        places = ["local", "host", "device"] + (["both"] if options == ["--aggregate", "count(*)"] else [])
        for place in places:
            rows, told = scan(place, *options)
            if rows != wanted or read not in (None, told["rows_read"]) or told["row_groups"] != GROUPS:
                sys.exit(f"scan: {options} over {ROWS * GROUPS} rows at {place}: {rows[:3]}, {told}")


def file():
    """All row groups have the same column chunk."""
    value = VALUE.to_bytes(4, "little")
    # A run in codes of one bit: its length, and the code.
    run = bytes([1]) + varint(ROWS << 1) + bytes([0])
    dictionary = page(DICTIONARY_PAGE, 7, [(1, I32, 1), (2, I32, PLAIN)], value)
    data = page(DATA_PAGE, 5, [(1, I32, ROWS), (2, I32, RLE_DICTIONARY), (3, I32, RLE), (4, I32, RLE)], run)
    start = 4
    chunk = [
        (1, I32, INT32),
        (2, LIST, (I32, [PLAIN, RLE, RLE_DICTIONARY])),
        (3, LIST, (TEXT, [b"n"])),
        (4, I32, 0),
        (5, I64, ROWS),
        (6, I64, len(dictionary + data)),
        (7, I64, len(dictionary + data)),
        (9, I64, start + len(dictionary)),
        (11, I64, start),
        (12, STRUCT, [(3, I64, 0), (5, TEXT, value), (6, TEXT, value)]),
    ]
    column = [(2, I64, 0), (3, STRUCT, chunk)]
    group = [(1, LIST, (STRUCT, [column])), (2, I64, len(dictionary + data)), (3, I64, ROWS)]
    schema = [[(4, TEXT, b"root"), (5, I32, 1)], [(1, I32, INT32), (3, I32, REQUIRED), (4, TEXT, b"n")]]
    footer = struct([(1, I32, 2), (2, LIST, (STRUCT, schema)), (3, I64, ROWS * GROUPS), (4, LIST, (STRUCT, [group] * GROUPS))])
    return b"PAR1" + dictionary + data + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def page(kind, field, header, content):
    return struct([(1, I32, kind), (2, I32, len(content)), (3, I32, len(content)), (field, STRUCT, header)]) + content


def struct(fields):
    out, before = b"", 0
    for number, kind, value in fields:
        out += bytes([(number - before) << 4 | kind]) + encoded(kind, value)
        before = number
    return out + b"\0"


def encoded(kind, value):
    if kind == STRUCT:
        return struct(value)
    if kind == LIST:
        of, items = value
        return bytes([len(items) << 4 | of]) + b"".join(encoded(of, item) for item in items)
    if kind == TEXT:
        return varint(len(value)) + value
    return varint(value << 1)


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
