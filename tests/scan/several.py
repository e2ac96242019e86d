"""Scans of several files: directories, partitions and patterns, beside DuckDB; and what is refused of them."""

import csv
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

REGIONS = ["north", "a/b c", "50%", "x=y", "\u00e9t\u00e9", None]
DAYS = ["2024-01-31", "2024-02-29", None]


def compare(server, rng, plans, table, plan, compare_one):
    """Compares random plans over directories, and gives how many there were."""
    compared = 0
    for root, source in [partitioned(server, rng, table), flat(server, rng, table)]:
        for index in range(plans * 2):
            wanted = plan(rng) if root.name == "flat" else with_partitions(rng, plan(rng))
            compare_one(server, root, wanted, ["host", "device", "local", "auto"][index % 4], source=source)
            compared += 1
        pattern = root / "**" / "*.par?uet"
        compare_one(server, pattern, plan(rng), "local", source=source)
        compare_one(server, pattern, plan(rng), "device", source=source)
        compared += 2
    root, source = texts(server)
    for place in ["host", "device", "local"]:
        sums = {"where": "price > 1.5", "aggregate": ["sum(price)", "count(*)", "max(year)"], "by": ["city"]}
        compare_one(server, root, sums, place, ["--types", "price decimal(10, 2), year text"], source)
        rows = {"where": "year >= '2001' or city is null", "columns": ["year", "price", "city"]}
        compare_one(server, root, rows, place, ["--types", "price decimal(10, 2), year text"], source)
        compared += 2
    return compared


def partitioned(server, rng, table):
    """A table in directories as Hive has them; some files lack columns, and some directories have files that are hidden."""
    root = server.directory / "hive"
    found = table(rng, 4000)
    for number in range(16):
        region, day = rng.choice(REGIONS), rng.choice(DAYS)
        directory = root / f"year={rng.choice(['2022', '2023', '-5'])}" / f"on={hive(day)}" / f"region={hive(region)}"
        directory.mkdir(parents=True, exist_ok=True)
        part = found.slice(number * 250, 250)
        # The first one has all: DuckDB sorts by paths, too, and so a type is not that of a missing column.
        lacking = rng.sample(["wide", "ratio", "word", "flag", "moment"], rng.randrange(3))
        pq.write_table(part.drop_columns(lacking), directory / f"part{number:02}.parquet", row_group_size=100)
        (directory / "_SUCCESS").write_text("")
        (directory / ".part.parquet.crc").write_text("no Parquet")
    types = "{'year': bigint, 'on': date, 'region': varchar}"
    return root, f"read_parquet('{root}/**/*.parquet', hive_partitioning=true, hive_types={types}, union_by_name=true)"


def hive(value):
    """A value as Hive writes it into a name."""
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    return "".join(f"%{ord(char):02X}" if char in "/%=" else char for char in value)


def flat(server, rng, table):
    root = server.directory / "flat"
    (root / "deeper").mkdir(parents=True)
    found = table(rng, 3000)
    for number, name in enumerate(["b.parquet", "a.parquet", "deeper/c.parquet", "deeper/d.parquet", "e.parquet"]):
        pq.write_table(found.slice(number * 700, 700), root / name, row_group_size=300)
    return root, f"read_parquet('{root}/**/*.parquet', hive_partitioning=false)"


def texts(server):
    """CSV files whose columns have other orders."""
    root = server.directory / "texts"
    for year in range(1999, 2004):
        (root / f"year={year}").mkdir(parents=True)
        with open(root / f"year={year}" / "prices.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["city", "price"] if year % 2 else ["price", "city"])
            for row in range(200):
                cells = [["Ulm", "Bonn", ""][row % 3], f"{row % 40}.{year % 100:02}"]
                rows.writerow(cells if year % 2 else cells[::-1])
    types = "types={'price': 'decimal(10, 2)'}, hive_types={'year': varchar}"
    return root, f"read_csv('{root}/**/*.csv', union_by_name=true, hive_partitioning=true, {types})"


def with_partitions(rng, plan):
    """The plan with conditions on columns that paths say, which are selected, grouped by and summed up as well."""
    conditions = [
        "year = 2022",
        "year in (2023, -5)",
        "year + small > 2020",
        "\"on\" >= date '2024-02-01'",
        "\"on\" is null",
        "region like '%/%'",
        "region <> 'north'",
        "region is null or year < 0",
        "not (region in ('x=y', '50%'))",
        "sorted > year",
    ]
    added = rng.choice(conditions)
    if rng.random() < 0.7:
        plan["where"] = f"({plan['where']}) {rng.choice(['and', 'or'])} {added}" if plan["where"] else added
    if "columns" in plan:
        plan["columns"] = plan["columns"] + rng.sample(["year", '"on"', "region"], rng.randrange(3))
        if "order" not in plan and rng.random() < 0.2:
            plan["columns"] = ["year", "region"]
    else:
        plan["by"] = plan["by"] + rng.sample(["year", '"on"', "region"], rng.randrange(3))
        plan["aggregate"] = plan["aggregate"] + rng.sample(
            ["max(year)", 'min("on")', "sum(year)", "avg(year)", "count(region)", "max(region)", "sum(year * small)", "avg(price)"], 2
        )
    return plan


def refusals(diskside, server):
    """What cannot be is said, with the names of the files, and a result that was not made is not there."""
    root = server.directory / "wrong"
    table = pa.table({"a": [1, 2], "year": [1, 2]})

    def write(name, table):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, root / name)

    write("types/a.parquet", table)
    write("types/b.parquet", table.set_column(0, "a", pa.array(["x", "y"])))
    write("twice/year=1/a.parquet", table)
    write("mixed/a.parquet", table)
    (root / "mixed/b.csv").write_text("a,year\n1,2\n")
    write("differ/k=1/a.parquet", table)
    write("differ/b.parquet", table)
    write("values/k=x/a.parquet", table)
    write("damaged/a.parquet", table)
    write("hidden/_a.parquet", table)
    many = pa.table({f"c{number}": [1] for number in range((16 << 10) + 1)})
    write("many/a.parquet", many.select(range(16 << 10)))
    write("many/b.parquet", many)
    long = pa.table({f"{'long' * 20}{number}": [1] for number in range(7000)})
    write("long/a.parquet", long)
    write("long/b.parquet", long)
    write("delta/n=1/a.parquet", table)
    (root / "delta/_delta_log").mkdir()
    (root / "delta/_delta_log/00000000000000000000.json").write_text("{}")
    write("lake/web/events/data/a.parquet", table)
    (root / "lake/web/events/metadata").mkdir()
    (root / "lake/web/events/metadata/v1.metadata.json").write_text("{}")
    (root / "late").mkdir()
    (root / "late/a.jsonl").write_text('{"a": 1}\n')
    (root / "late/b.jsonl").write_text('{"a": 1}\n' * 40_000 + '{"late": 2.5}\n')
    (root / "damaged/b.parquet").write_text("this is not a Parquet file")
    (root / "empty").mkdir()
    for name, options, code, told in [
        ("types", [], 2, ["column `a` is of type integer in ", "types/a.parquet, and of type text in ", "types/b.parquet"]),
        ("types", ["--columns", "year"], 0, []),
        ("twice", [], 2, ["column `year` is in ", "twice/year=1/a.parquet and in its path", "--no-partitions"]),
        ("twice", ["--no-partitions"], 0, []),
        ("mixed", [], 2, ["mixed/a.parquet is Parquet, and ", "mixed/b.csv is CSV with commas"]),
        ("differ", [], 2, ["differ/b.parquet has no column in its path, and ", "differ/k=1/a.parquet has k"]),
        ("differ", ["--no-partitions"], 0, []),
        ("values", ["--types", "k integer"], 2, ["values/k=x/a.parquet: 'x' in its path is not of the type of `k`"]),
        ("values", ["--types", "a text"], 2, ["only those of CSV and JSON are chosen"]),
        ("values", ["--types", "nothing text"], 2, ["there is no column `nothing` to have a type"]),
        ("values", ["--columns", "nothing"], 2, ["no column `nothing`; it has a, year, k"]),
        ("values", ["--where", "k = 1"], 2, ["is compared with a number, 1: a text is in quotes, as in '1'"]),
        ("values", ["--where", "k = 'y'"], 0, []),
        ("damaged", [], 4, ["damaged/b.parquet: it is ", "Parquet"]),
        ("many", [], 2, ["many/b.parquet has 16385 columns", "at most 16384", "Name those that are wanted (--columns)"]),
        ("many", ["--columns", "c16384"], 0, []),
        ("many", ["--aggregate", "sum(c3)"], 0, []),
        ("long", [], 2, ["long/a.parquet has 7000 columns", "512 KiB of names"]),
        ("delta", [], 2, ["it is a Delta table", "scan_delta of the Python package", "/wrong/delta/**/*.parquet'"]),
        ("delta/**/*.parquet", [], 0, []),
        ("delta/n=1", [], 0, []),
        ("lake", [], 2, ["web/events below it is an Iceberg table", "scan_iceberg", "/wrong/lake/web/events/**/*.parquet'"]),
        ("lake/web/events/**/*.parquet", [], 0, []),
        ("lake/web/events/data", [], 0, []),
        ("late", ["--where", "late > 2"], 2, ["no column `late`"]),
        ("late", ["--where", "late > 2", "--types", "late float"], 0, []),
        ("hidden", [], 2, ["there are no files in this directory, or only hidden ones"]),
        ("empty", [], 2, ["there are no files in this directory"]),
        ("*.arrow", [], 2, ["no file matches this pattern"]),
    ]:
        for file in [root / name, f"{server.url}/wrong/{name}"]:
            out = server.directory / "refused.csv"
            command = [diskside, "scan", file, *options, "--format", "csv", "--out", out]
            done = subprocess.run(command, text=True, stderr=subprocess.PIPE, timeout=60)
            if done.returncode != code or not all(one in done.stderr for one in told) or out.exists() != (code == 0):
                sys.exit(f"scan: {options} over {file}: {done.returncode}: {done.stderr}")
            out.unlink(missing_ok=True)


def parts(diskside, server):
    """A program that scans a file in parts finds out which files there are, and a part of another version than it knows fails."""
    path = server.directory / "parts.parquet"
    pq.write_table(pa.table({"a": pa.array(range(1000))}), path, row_group_size=300)

    def scan(*words):
        command = [diskside, "scan", *words]
        return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)

    for file in [path, f"{server.url}/parts.parquet"]:
        listed = json.loads(scan("--list", file).stdout)
        (found,) = listed["files"]
        if (found["file"], found["size_bytes"], listed["is_one_file"]) != (str(file), path.stat().st_size, True):
            sys.exit(f"scan: --list of {file}: {listed}")
        sums = []
        for groups in ["0..1", "1..3", "3..4"]:
            options = ["--row-groups", groups, "--versions", found["version"], "--aggregate", "count(*) as n, sum(a) as s"]
            sums.append(scan(file, *options, "--format", "csv").stdout.split()[-1])
        if sums != ["300,44850", "600,359700", "100,94950"]:
            sys.exit(f"scan: row groups of {file}: {sums}")
    for options, code, told in [
        (["--versions", "0123"], 4, "parts.parquet changed since its version was 0123"),
        (["--versions", "01,23"], 2, "--versions: 2 for 1 files"),
        (["--row-groups", "3..3"], 2, "`3..3` has no row group"),
    ]:
        done = scan(f"{server.url}/parts.parquet", *options, "--format", "csv")
        if done.returncode != code or told not in done.stderr:
            sys.exit(f"scan: {options}: {done.returncode}: {done.stderr}")
    done = scan(path, path, "--row-groups", "0..1", "--format", "csv")
    if done.returncode != 2 or "--row-groups: those of one file" not in done.stderr:
        sys.exit(f"scan: row groups of several: {done.returncode}: {done.stderr}")
