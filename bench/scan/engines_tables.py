"""Writes the tables of bench/scan/engines: TPC-H's, those of the Star Schema Benchmark, and a wide one in the like of ClickBench's."""

import datetime
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tpch

#: Scale factor of TPC-H and the Star Schema Benchmark, and rows of the wide table.
SIZES = {"full": ("1", 1_000_000), "quick": ("0.3", 300_000), "smoke": ("0.01", 6_000)}
ROW_GROUP = 122_880
NATIONS = (
    "ALGERIA,ARGENTINA,BRAZIL,CANADA,EGYPT,ETHIOPIA,FRANCE,GERMANY,INDIA,INDONESIA,IRAN,IRAQ,JAPAN,JORDAN,KENYA,MOROCCO,MOZAMBIQUE,"
    "PERU,CHINA,ROMANIA,SAUDI ARABIA,VIETNAM,RUSSIA,UNITED KINGDOM,UNITED STATES"
).split(",")
WANTED_CITIES = ["UNITED KI1", "UNITED KI5"]
WORDS = (
    "fox river quiet winter garden price camera ticket engine mirror market silver planet coffee window bicycle forest doctor school "
    "island bridge letter orange violin summer ladder copper meadow rocket harbor castle pepper"
).split()


def write(directory, size, tpchgen):
    """All tables into a directory."""
    scale, rows = SIZES[size]
    for kind, tables in [("parquet", tpch.TABLES), ("csv", ["lineitem"])]:
        command = [tpchgen, kind, "--scale-factor", scale, "--tables", ",".join(tables), "--output-dir", directory]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    tables = {name: plain(pq.read_table(directory / f"{name}.parquet")) for name in tpch.TABLES}
    tables |= star(float(scale)) | {"hits": hits(rows)}
    for name, table in tables.items():
        pq.write_table(table, directory / f"{name}.parquet", row_group_size=ROW_GROUP, compression="snappy")


def plain(table):
    """The same with texts of the usual type: pyarrow does not filter views, which the generator says that they are."""
    kinds = [pa.string() if field.type == pa.string_view() else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def cities():
    """The 250 cities of the Star Schema Benchmark: nine characters of a nation, and a digit."""
    return [f"{nation[:9]:9}{digit}" for nation in NATIONS for digit in range(10)]


def dimension(rng, prefix, rows):
    """Customers or suppliers. The first ones live in the cities that queries want, so that each has one at any scale."""
    names = np.array(cities())
    city = names[rng.integers(0, len(names), rows)]
    city[: len(WANTED_CITIES)] = WANTED_CITIES
    return pa.table(
        {
            f"{prefix}key": np.arange(1, rows + 1, dtype=np.int32),
            f"{prefix[:2]}name": [f"{'Customer' if prefix[0] == 'c' else 'Supplier'}#{key:09}" for key in range(1, rows + 1)],
            f"{prefix[:2]}city": city,
            f"{prefix[:2]}phone": [f"{number // 10**7}-{number % 10**7:07}" for number in rng.integers(10**9, 10**10, rows)],
        }
    )


def star(scale):
    """lineorder, dates (the benchmark's DATE), customer and supplier of the Star Schema Benchmark."""
    rng = np.random.default_rng(33)
    customers, suppliers, rows = max(300, int(30_000 * scale)), max(20, int(2_000 * scale)), int(6_000_000 * scale)
    days = [datetime.date(1992, 1, 1) + datetime.timedelta(days=day) for day in range(2556)]
    keys = np.array([int(f"{day:%Y%m%d}") for day in days], dtype=np.int32)
    dates = {
        "d_datekey": keys,
        "d_date": [f"{day:%B} {day.day}, {day.year}" for day in days],
        "d_dayofweek": [f"{day:%A}" for day in days],
        "d_month": [f"{day:%B}" for day in days],
        "d_year": np.array([day.year for day in days], dtype=np.int32),
        "d_yearmonthnum": keys // 100,
        "d_yearmonth": [f"{day:%b%Y}" for day in days],
        "d_weeknuminyear": np.array([(day.timetuple().tm_yday - 1) // 7 + 1 for day in days], dtype=np.int32),
    }
    quantity = rng.integers(1, 51, rows, dtype=np.int32)
    price = quantity * rng.integers(90_000, 200_000, rows, dtype=np.int32) // 10
    discount = rng.integers(0, 11, rows, dtype=np.int32)
    ordered = np.sort(rng.integers(0, len(keys) - 150, rows))
    lineorder = {
        "lo_orderkey": np.arange(rows, dtype=np.int64) // 4 + 1,
        "lo_linenumber": (np.arange(rows) % 4 + 1).astype(np.int32),
        "lo_custkey": rng.integers(1, customers + 1, rows, dtype=np.int32),
        "lo_partkey": rng.integers(1, 200_000, rows, dtype=np.int32),
        "lo_suppkey": rng.integers(1, suppliers + 1, rows, dtype=np.int32),
        "lo_orderdate": keys[rng.permutation(ordered)],
        "lo_orderpriority": of(rng, ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECI", "5-LOW"], rows),
        "lo_shippriority": of(rng, ["0"], rows),
        "lo_quantity": quantity,
        "lo_extendedprice": price,
        "lo_ordtotalprice": price * 4,
        "lo_discount": discount,
        "lo_revenue": price * (100 - discount) // 100,
        "lo_supplycost": price * 6 // 10,
        "lo_tax": rng.integers(0, 9, rows, dtype=np.int32),
        "lo_commitdate": keys[rng.integers(0, len(keys), rows)],
        "lo_shipmode": of(rng, ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"], rows),
    }
    # TPC-H has a customer and a supplier, too.
    return {
        "lineorder": pa.table(lineorder),
        "dates": pa.table(dates),
        "ssb_customer": dimension(rng, "c_cust", customers),
        "ssb_supplier": dimension(rng, "s_supp", suppliers),
    }


def hits(rows):
    """A hundred columns of visits to pages: keys, times, texts of which many are empty, and many columns of few values."""
    rng = np.random.default_rng(100)
    start = np.datetime64("2026-07-01T00:00:00")
    moments = start + np.sort(rng.integers(0, 31 * 86400, rows)).astype("timedelta64[s]")
    sites = [f"http://{a}-{b}.example/" for a in WORDS for b in WORDS]
    pages = [f"{a}/{b}-{c}.html" for a in WORDS for b in WORDS for c in WORDS[::4]]
    phrases = ["", *(f"{a} {b}" for a in WORDS for b in WORDS), *(f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[::3])]
    phrase = np.where(rng.random(rows) < 0.8, 0, often(rng, len(phrases) - 1, rows) + 1)
    columns = {
        "watch_id": rng.permutation(rows).astype(np.int64) * 7919 + 4_611_686_018_427,
        "event_time": pa.array(moments.astype("datetime64[us]")),
        "event_date": pa.array(moments.astype("datetime64[D]")),
        "user_id": often(rng, max(100, rows // 8), rows).astype(np.int64) * 1_000_003 + 17,
        "counter_id": often(rng, 6_000, rows).astype(np.int32),
        "region": often(rng, 5_000, rows).astype(np.int32),
        "url": joined(of(rng, sites, rows), of(rng, pages, rows), "?id=", rng.integers(0, 100_000, rows)),
        "referer": joined(of(rng, ["", *sites], rows), of(rng, pages, rows)),
        "title": joined(of(rng, WORDS, rows), " ", of(rng, WORDS, rows), " ", of(rng, WORDS, rows), " - ", of(rng, WORDS, rows)),
        "search_phrase": pa.array(phrases).take(pa.array(phrase)),
        "duration": rng.exponential(40, rows),
    }
    for number in range(12):
        columns[f"text{number}"] = of(rng, ["", *WORDS[: 2 + 2 * number]], rows)
    for number in range(6):
        columns[f"hash{number}"] = rng.integers(0, 1 << 62, rows)
    for number in range(16):
        columns[f"size{number}"] = often(rng, 300 * (number + 1), rows).astype(np.int32)
    while len(columns) < 100:
        number = len(columns)
        columns[f"flag{number}"] = (rng.integers(0, 2 + number, rows) * (rng.random(rows) < 0.3)).astype(np.int16)
    return pa.table(columns)


def often(rng, count, rows):
    """Numbers below count, of which the small ones are frequent."""
    return np.minimum((count * rng.random(rows) ** 4).astype(np.int64), count - 1)


def of(rng, values, rows):
    return pa.array(values).take(pa.array(rng.integers(0, len(values), rows)))


def joined(*parts):
    texts = [part if isinstance(part, str) else pc.cast(pa.array(part), pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def answers(directory, queries):
    """The rows of DuckDB over the files."""
    import duckdb

    found = {}
    for name, (tables, text, kind) in queries.items():
        connection = duckdb.connect()
        for table in tables:
            connection.execute(f"create view {table} as from '{directory}/{table}.{kind}'")
        found[name] = connection.sql(text).fetchall()
    return found


if __name__ == "__main__":
    to, of_size, program, wanted = sys.argv[1:]
    write(Path(to), of_size, program)
    print(json.dumps(answers(to, json.loads(wanted)), default=str))
