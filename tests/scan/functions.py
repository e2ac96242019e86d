"""Functions over columns: the same as what DuckDB computes, wherever they run; and how they fail."""

import hashlib
import subprocess
import sys
from pathlib import Path

import duckdb
import generated
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
REVENUE = ROOT / "functions" / "columns_revenue.bpf.c"
PLACES = ["local", "host", "device", "auto"]
# Days from 1970-01-01 to the first days of 1994 and 1995.
YEAR = ["--arg", "from=8766", "--arg", "to=9131"]
Q6 = "l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24"

HEAD = '#include "diskside.h"\n'
ENTRY = "__s64 {name}(struct out *out, const struct rows *in, __u64 rows, const {args} *args, const struct ds_call *call)"
SELECTED = """
DS_SELECT;
struct args { __s64 above; char kind[]; };
struct rows {
    const __s64 *price DS_DECIMAL(2);
    const __u8 *price__valid, *kind__valid, *flag;
    const __u8 *flag__valid;
    struct ds_dict kind;
    struct ds_utf8 word;
    const __u8 *word__valid;
    const ds_f64 *ratio;
    const __u8 *ratio__valid;
};
struct out { __u8 selected; };
SEC("columns/selected") ENTRY {
    __u64 wanted = ~0ull, len = call->args_len - sizeof(args->above);
    for (__u64 i = 0; i < in->kind.count; i++) {
        const __u32 *at = in->kind.values.offsets + i;
        if (at[1] - at[0] == len && ds_memcmp(in->kind.values.bytes + at[0], args->kind, len) == 0) wanted = i;
    }
    for (__u64 i = 0; i < rows; i++) {
        int dear = in->price__valid[i] && in->price[i] > args->above;
        int is_kind = in->kind__valid[i] && in->kind.codes[i] == wanted;
        int is_long = in->word__valid[i] && in->word.offsets[i + 1] - in->word.offsets[i] > 5;
        out[i].selected = dear && (is_kind || is_long || (in->flag__valid[i] && in->flag[i]));
    }
    return rows;
}
"""
SELECTED_SQL = "price > 100.00 and (coalesce(kind = 'b', false) or coalesce(strlen(word) > 5, false) or coalesce(flag, false))"
LISTED = """
DS_CONCATENATE;
DS_OUTPUT(64, 1, 0);
struct rows { const __s64 *sorted; const __s8 *small; const __u8 *small__valid; };
struct out { __s64 sorted; ds_f64 half; __s64 price DS_DECIMAL(2); __u8 hidden DS_RESULT_HIDDEN; char name[8]; };
SEC("columns/listed") ENTRY {
    __u64 found = 0;
    for (__u64 i = 0; i < rows; i++)
        if (in->small__valid[i] && in->small[i] > 2) {
            struct out *row = out + found++;
            row->sorted = in->sorted[i];
            row->half = ds_f64_mul(ds_f64_from_i64(in->small[i]), 0x3fe0000000000000); /* 0.5 */
            row->price = in->small[i];
            row->name[0] = 'a' + in->small[i];
        }
    return found * sizeof(*out);
}
"""
LISTED_SQL = "select sorted, small * 0.5::double, (small::decimal(15, 2) / 100)::decimal(19, 2), chr(97 + small) from {} where small > 2"
SUMMED = """
struct rows { const __s64 *sorted; const __s8 *small; const __u8 *small__valid; };
struct out { __s64 total; __u64 rows; ds_f64 least; };
SEC("columns/summed") ENTRY {
    out->least = ds_f64_from_i64(1ll << 62);
    for (__u64 i = 0; i < rows; i++) {
        out->total += in->small__valid[i] ? in->small[i] * in->sorted[i] : 0;
        out->least = ds_f64_min(out->least, ds_f64_from_i64(in->sorted[i]));
    }
    out->rows = rows;
    return sizeof(*out);
}
SEC("combine/summed") __s64 fold(struct out *acc, __u64 acc_len, __u64 cap, const struct out *part, __u64 part_len) {
    acc->least = acc_len ? ds_f64_min(acc->least, part->least) : part->least;
    acc->total += part->total;
    acc->rows += part->rows;
    return sizeof(*acc);
}
"""
SUMMED_SQL = "select sum(small * sorted)::bigint, count(*), min(sorted)::double from {}"


def check(diskside, server, rng, table, rows_of, plan, plans):
    """Compares functions with DuckDB, and gives how many comparisons there were."""
    run = Run(diskside, server, rows_of)
    lineitem = server.directory / "lineitem.parquet"
    for place in PLACES:
        run.compare(REVENUE, lineitem, place, YEAR, f"select sum(l_extendedprice * l_discount), count(*) from '{lineitem}' where {Q6}")
    for path, options in run.other_formats(lineitem):
        for place in PLACES:
            run.compare(REVENUE, path, place, YEAR + options, f"select sum(l_extendedprice * l_discount), count(*) from '{lineitem}' where {Q6}")
    documented = server.directory / "air.bpf.c"
    documented.write_text((ROOT / "docs" / "scan.md").read_text().split("```c\n")[1].split("```")[0])
    air = "l_shipmode = 'AIR' and l_quantity < 24 and l_shipdate >= date '1994-01-01'"
    sums = f"select sum(l_extendedprice * l_discount), count(*) from '{lineitem}' where {air}"
    run.compare(documented, lineitem, "device", ["--arg", "below=2400", "--where", "l_shipdate >= date '1994-01-01'"], sums)
    one, several = run.tables(rng, table)
    for path, options in one + several:
        source = f"'{one[0][0]}'" if (path, options) in one else f"read_parquet('{path}/*.parquet')"
        for place in [*PLACES, "both"] if (path, options) in one else PLACES:
            where = ["--where", "sorted >= 700 and kind is not null"]
            # A function with a result is called on one side, and rows come from one.
            if place != "both":
                run.compare(run.source("summed", SUMMED), path, place, options, SUMMED_SQL.format(source))
                run.compare(run.source("summed", SUMMED), path, place, options + where, SUMMED_SQL.format(f"(from {source} where {where[1]})"))
                run.compare(run.source("listed", LISTED), path, place, options, LISTED_SQL.format(source))
            selected = run.source("selected", SELECTED, "struct args")
            chosen = options + ["--arg", "above=10000", "--arg", "kind=b"]
            columns = chosen + ["--columns", "sorted,word,price"]
            if place != "both":
                run.compare(selected, path, place, columns, f"select sorted, word, price from {source} where {SELECTED_SQL}")
            sums = chosen + ["--aggregate", "count(*), sum(price)", "--by", "flag", *where]
            run.compare(selected, path, place, sums, f"select flag, count(*), sum(price) from {source} where {where[1]} and {SELECTED_SQL} group by flag")
            first = chosen + ["--columns", "sorted", "--order", "sorted desc", "--limit", "3"]
            run.compare(selected, path, place, first, f"select sorted from {source} where {SELECTED_SQL} order by sorted desc limit 3")
    run.no_rows(several[0][0])
    run.failures(one[0][0])
    run.grants(one[0][0])
    return run.compared + generated.check(run, rng, table, plan, plans)


class Run:
    """Functions, and what they give."""

    def __init__(self, diskside, server, rows_of):
        self.diskside, self.server, self.rows_of, self.compared = diskside, server, rows_of, 0

    def source(self, name, text, args="void"):
        """A function as a file."""
        path = self.server.directory / f"{name}.bpf.c"
        entry = ENTRY.format(name=name, args=args)
        path.write_text(HEAD + text.replace("ENTRY", entry))
        return path

    def tables(self, rng, table):
        """Files with NULLs, dictionaries and borders of batches; and directories of such."""
        one, several = self.server.directory / "columns.parquet", self.server.directory / "parts"
        found = table(rng, 40_000)
        pq.write_table(found, one, row_group_size=37_000)
        several.mkdir()
        for number, (first, count) in enumerate([(0, 500), (500, 0), (500, 2500), (3000, 1)]):
            pq.write_table(found.slice(first, count), several / f"part{number}.parquet", row_group_size=700)
        empty = self.server.directory / "empty.parquet"
        pq.write_table(found.slice(0, 0), empty)
        arrow = one.with_suffix(".arrow")
        with pa.ipc.new_file(arrow, found.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(found, max_chunksize=11_000)
        return [(one, []), (arrow, [])], [(several, [])]

    def other_formats(self, path):
        """The same table as Arrow and as CSV, and the options that they take."""
        found = pq.read_table(path)
        arrow, text = path.with_suffix(".arrow"), path.with_suffix(".csv")
        with pa.ipc.new_file(arrow, found.schema) as writer:
            writer.write_table(found, max_chunksize=9000)
        duckdb.sql(f"copy (from '{path}') to '{text}' (header)")
        decimals = ", ".join(f"{name} decimal(15, 2)" for name in ["l_quantity", "l_extendedprice", "l_discount"])
        return [(arrow, []), (text, ["--types", decimals])]

    def compare(self, function, path, place, options, query):
        """The same rows as DuckDB's."""
        done = self.scan(function, path, place, options)
        if done.returncode != 0:
            sys.exit(f"scan: {function.name} {options} at {place} over {path}: {done.stderr}")
        with pa.ipc.open_stream(self.server.directory / "result") as reader:
            ours = self.rows_of(reader.read_all())
        theirs = self.rows_of(duckdb.sql(query).to_arrow_table())
        if ours != theirs:
            sys.exit(f"scan: {function.name} {options} at {place} over {path}: {ours[:3]}, and DuckDB has {theirs[:3]}")
        self.compared += 1

    def scan(self, function, path, place, options):
        """A scan with a function."""
        out = self.server.directory / "result"
        out.unlink(missing_ok=True)
        file = [path] if place == "local" else [f"{self.server.url}/{path.relative_to(self.server.directory)}", "--place", place]
        command = [self.diskside, "scan", *file, "--function", function, *options, "--format", "arrow", "--out", out]
        return subprocess.run(command, text=True, stderr=subprocess.PIPE, timeout=120)

    def no_rows(self, several):
        """Without a row that is wanted a function is not called, and what it would be folded into has no rows."""
        for path in [several, several / "part1.parquet"]:
            for place in PLACES:
                self.compare(self.source("summed", SUMMED), path, place, ["--where", "sorted < 0"], "select 1, 2, 3 where false")

    def failures(self, path):
        """A function that fails ends its scan, and says where."""
        rows = "struct rows {{ {} }}; struct out {{ __s64 a; }}; DS_CONCATENATE; SEC(\"columns/f\") ENTRY {{ {} }}\n"
        long = "".join(f"const __s64 *c{number};" for number in range(65))
        for members, body, code, told in [
            ("const __s64 *sorted;", "out->a = in->sorted[rows]; return 8;", 1, "read of 8 bytes of column `sorted` at offset 262144"),
            ("const __s64 *sorted;", "for (;;) *(volatile __s64 *)&out->a += 1;", 1, "loop iterations is used up"),
            ("const __s64 *sorted;", 'return DS_FAIL(DS_EINVAL, "no");', 1, "row group 0: columns/f returned -22: no"),
            ("const __s64 *sorted;", "return 7;", 1, "columns/f gave 7 bytes, which are not structures of 8 bytes"),
            ("const __s64 *nothing;", "return 0;", 2, "no column `nothing`"),
            ("const __s32 *sorted;", "return 0;", 2, "column `sorted` is of type integer, and columns/f declares it otherwise: it is `const __s64 *`"),
            ("const __s64 *price;", "return 0;", 2, "column `price` has NULL, and columns/f has no member that says in which rows"),
            ("const __s64 *price DS_DECIMAL(3); const __u8 *price__valid;", "return 0;", 2, "wants a decimal with 3 digits behind the point"),
            ("const __s64 *wide;", "return 0;", 2, "a function takes decimals of at most 18 digits"),
            ("struct ds_utf8 sorted;", "return 0;", 2, "declares it otherwise"),
            (long, "return 0;", 3, "the number of buffers of a columns program"),
            ("const __s64 *sorted;", "out->a = ds_now(); return 8;", 3, "uses a clock, a log or a state"),
        ]:
            function = self.source("f", rows.format(members, body))
            for place in ["local", "device"]:
                self.refused(function, path, place, [], code, told)
        summed = self.source("summed", SUMMED)
        self.refused(summed, path, "both", [], 2, "a function with a result is called on one side")
        self.refused(summed, path, "local", ["--columns", "sorted"], 2, "--columns is about rows, and summed gives a result of its own")
        self.refused(summed, path, "local", ["--arg", "a=1"], 2, "summed takes no arguments")
        self.refused(self.server.directory, path, "local", [], 4, f"cannot read {self.server.directory}: Is a directory")
        noise = self.server.directory / "noise.bpf.o"
        for content, told in [(b"no object", "ELF"), (b"\x7fELF" + bytes(600_000), "")]:
            noise.write_bytes(content)
            self.refused(noise, path, "local", [], 3, told)
        large = 'static const char bulk[300000] = {1};\n' + SUMMED.replace("out->rows = rows;", "out->rows = rows + (bulk[rows] == 77);")
        self.refused(self.source("large", large.replace("summed", "large")), path, "local", [], 2, "more than 256 KiB")

    def grants(self, path):
        """A host that may not load a function may not scan with it; one that may, may."""
        summed = self.server.directory / "summed.bpf.o"
        subprocess.run([self.diskside, "build", self.source("summed", SUMMED), "-o", summed], check=True, stdout=subprocess.DEVNULL)
        sha256 = hashlib.sha256(summed.read_bytes()).hexdigest()
        told = f'a [[grant]] with functions = ["sha256:{sha256}"] would let it'
        source = SUMMED_SQL.format(f"'{path}'")
        of_all = self.server
        for granted in ["", f', "sha256:{sha256}"']:
            config = of_all.directory / "grants.toml"
            config.write_text(f'[[grant]]\nto = ["*"]\nexports = {{ data = "r" }}\nfunctions = ["shipped:*"{granted}]\n')
            with type(of_all)(of_all.directory, ["--config", config]) as self.server:
                if granted:
                    self.compare(summed, path, "device", [], source)
                else:
                    self.refused(summed, path, "device", [], 2, told)
                    self.compare(summed, path, "auto", ["--explain"], source)
                    scan = self.scan(summed, path, "auto", ["--explain"])
                    if "scanned on this machine: the server refuses the function" not in scan.stderr:
                        sys.exit(f"scan: auto after a refusal: {scan.stderr}")
        self.server = of_all

    def refused(self, function, path, place, options, code, told):
        done = self.scan(function, path, place, options)
        if done.returncode != code or told not in done.stderr or (self.server.directory / "result").exists():
            sys.exit(f"scan: {function.name} {options} at {place}: {done.returncode}: {done.stderr}\nnot {code}: {told}\n{function.read_bytes()[-300:]}")
