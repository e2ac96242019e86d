"""Generated functions over columns: the same bytes at every place, with one processor and several, and over any files that rows are split among."""

import os
import sys

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

# Columns, by the members that read them.
MEMBERS = {
    "sorted": "const __s64 *",
    "small": "const __s8 *",
    "price": "const __s64 *",
    "day": "const __s32 *",
    "moment": "const __s64 *",
    "flag": "const __u8 *",
}
# Values that tell the rows of a column apart.
BORDERS = {"sorted": 2500, "small": 1, "price": 50_000, "day": 8900, "moment": 981173106789000, "flag": 1}
SUM = """
struct out { __u64 sum, weighted; };
SEC("columns/NAME") ENTRY {
    for (__u64 i = 0; i < rows; i++)
        if (VALID) {
            out->sum += (__u64)in->COLUMN[i];
            out->weighted += (__u64)in->COLUMN[i] * (__u64)in->OTHER[i];
        }
    return sizeof(*out);
}
SEC("combine/NAME") __s64 fold(struct out *acc, __u64 acc_len, __u64 cap, const struct out *part, __u64 part_len) {
    acc->sum += part->sum;
    acc->weighted += part->weighted;
    return sizeof(*acc);
}
"""
COUNT = """
struct out { __u64 below, rows; };
SEC("columns/NAME") ENTRY {
    for (__u64 i = 0; i < rows; i++) out->below += VALID && in->COLUMN[i] < BORDER;
    out->rows = rows;
    return sizeof(*out);
}
SEC("combine/NAME") __s64 fold(struct out *acc, __u64 acc_len, __u64 cap, const struct out *part, __u64 part_len) {
    acc->below += part->below;
    acc->rows += part->rows;
    return sizeof(*acc);
}
"""
# A hash of the rows in their order: it tells also whether they came in it.
CHAIN = """
struct out { __u64 hash, power; };
SEC("columns/NAME") ENTRY {
    out->power = 1;
    for (__u64 i = 0; i < rows; i++) {
        out->hash = out->hash * 1000003 + (VALID ? (__u64)in->COLUMN[i] : 5);
        out->power *= 1000003;
    }
    return sizeof(*out);
}
SEC("combine/NAME") __s64 fold(struct out *acc, __u64 acc_len, __u64 cap, const struct out *part, __u64 part_len) {
    if (acc_len == 0) acc->power = 1;
    acc->hash = acc->hash * part->power + part->hash;
    acc->power *= part->power;
    return sizeof(*acc);
}
"""
LISTED = """
DS_CONCATENATE;
DS_OUTPUT(64, 1, 0);
struct out { __u64 value; __u8 is_small; };
SEC("columns/NAME") ENTRY {
    __u64 found = 0;
    for (__u64 i = 0; i < rows; i++)
        if (VALID && in->COLUMN[i] >= BORDER && ((__u64)in->OTHER[i] & 7) == 0) {
            out[found].is_small = in->OTHER[i] < 3;
            out[found++].value = (__u64)in->COLUMN[i];
        }
    return found * sizeof(*out);
}
"""
MASK = """
DS_SELECT;
struct out { __u8 selected; };
SEC("columns/NAME") ENTRY {
    for (__u64 i = 0; i < rows; i++) out[i].selected = VALID && in->COLUMN[i] < BORDER;
    return rows;
}
"""


def check(run, rng, table, plan, count):
    """Runs so many functions, and gives how many results were compared."""
    whole, split = run.server.directory / "whole.parquet", run.server.directory / "split"
    found = table(rng, 9000)
    pq.write_table(found, whole, row_group_size=1100)
    split.mkdir()
    cuts = [0, *sorted(rng.randrange(9000) for _ in range(4)), 9000]
    for number, (first, end) in enumerate(zip(cuts, cuts[1:])):
        pq.write_table(found.slice(first, end - first), split / f"part{number}.parquet", row_group_size=rng.choice([90, 700, 5000]))
    compared = 0
    for number in range(count):
        # The first five are one of each.
        kind = [SUM, COUNT, CHAIN, LISTED, MASK][number % 5]
        function, options = generated(run, rng, kind, number), []
        if (where := plan(rng)["where"]) is not None:
            options += ["--where", where]
        if kind is MASK:
            options += rng.choice(
                [
                    ["--columns", "sorted,price,word"],
                    ["--aggregate", "count(*), sum(price), min(day), max(word)"],
                    ["--aggregate", "count(*), sum(small), avg(price)", "--by", "kind,flag"],
                    ["--columns", "sorted", "--order", "sorted desc", "--limit", "7"],
                ]
            )
        expected = None
        for path in [whole, split]:
            for place in ["local", "alone", "host", "device"]:
                result = outcome(run, function, path, place, options)
                # Rows come in as many batches as there are files; all else is one.
                result = result if kind in (SUM, COUNT, CHAIN) else rows(result)
                expected = expected or (result, place)
                if result != expected[0]:
                    sys.exit(f"scan: {function.read_text()}\n{options}: not the same at {place} over {path.name} as at {expected[1]} over {whole.name}")
                compared += 1
    return compared


def generated(run, rng, kind, number):
    """A function of a kind, over two columns, the second of which has no NULL."""
    column = rng.choice(list(MEMBERS))
    valid = "1" if column == "sorted" else f"in->{column}__valid[i]"
    members = f"{MEMBERS['sorted']}sorted;"
    if column != "sorted":
        members += f" {MEMBERS[column]}{column}; const __u8 *{column}__valid;"
    text = f"struct rows {{ {members} }};" + kind
    name = f"generated{number}"
    for word, instead in [("NAME", name), ("COLUMN", column), ("OTHER", "sorted"), ("VALID", valid), ("BORDER", str(BORDERS[column]))]:
        text = text.replace(word, instead)
    return run.source(name, text)


def outcome(run, function, path, place, options):
    """The bytes of a result. `alone` is here, on one processor, and so with one thread."""
    processors = os.sched_getaffinity(0)
    if place == "alone":
        os.sched_setaffinity(0, {min(processors)})
    try:
        done = run.scan(function, path, "local" if place == "alone" else place, options)
    finally:
        os.sched_setaffinity(0, processors)
    if done.returncode != 0:
        sys.exit(f"scan: {function.read_text()}\n{options} at {place} over {path}: {done.stderr}")
    return (run.server.directory / "result").read_bytes()


def rows(stream):
    """The rows of a stream in their order, whatever its batches."""
    with pa.ipc.open_stream(stream) as reader:
        found = reader.read_all()
    return found.schema.names, [str(kind) for kind in found.schema.types], found.to_pylist()
