"""The queries of bench/scan/engines, as one writes them for each engine.

DuckDB and DataFusion (`diskside.sql`) take the same SQL. A function for Polars has LazyFrames by the names of their tables, one for
pyarrow has datasets, and one for `session.scan` has what makes scans. Each gives an Arrow table or a frame; its rows have to be the same.
"""

import datetime
import decimal
import re
from typing import NamedTuple

import tpch

DAY = datetime.date
ENGINES = ["duckdb", "polars", "pyarrow", "sql", "scan"]


class Query(NamedTuple):
    tables: list[str]
    sql: str
    polars: object = None
    pyarrow: object = None
    scan: object = None

    def has(self, engine):
        return engine in ("duckdb", "sql") or getattr(self, engine) is not None


def number(text, kind):
    """A constant of a column's type: Parquet's are decimals, those of CSV floating-point and whole numbers."""
    kind = str(kind).lower()
    return decimal.Decimal(text) if "decimal" in kind else int(text) if "int" in kind else float(text)


def polars_q6(tables):
    import polars as pl

    kinds = tables["lineitem"].collect_schema()
    discount, quantity = pl.col("l_discount"), pl.col("l_quantity")
    low, high = (number(text, kinds["l_discount"]) for text in ("0.05", "0.07"))
    wanted = tables["lineitem"].filter(
        (pl.col("l_shipdate") >= DAY(1994, 1, 1))
        & (pl.col("l_shipdate") < DAY(1995, 1, 1))
        & (discount >= low)
        & (discount <= high)
        & (quantity < number("24", kinds["l_quantity"]))
    )
    return wanted.select((pl.col("l_extendedprice") * discount).sum().alias("revenue")).collect()


def pyarrow_q6(tables):
    import pyarrow as pa
    import pyarrow.compute as pc

    lineitem, field = tables["lineitem"], pc.field

    def value(name, text):
        kind = lineitem.schema.field(name).type
        return pa.scalar(number(text, kind), kind)

    wanted = (
        (field("l_shipdate") >= DAY(1994, 1, 1))
        & (field("l_shipdate") < DAY(1995, 1, 1))
        & (field("l_discount") >= value("l_discount", "0.05"))
        & (field("l_discount") <= value("l_discount", "0.07"))
        & (field("l_quantity") < value("l_quantity", "24"))
    )
    found = lineitem.to_table(columns=["l_extendedprice", "l_discount"], filter=wanted)
    return pa.table({"revenue": [pc.sum(pc.multiply(found["l_extendedprice"], found["l_discount"]))]})


def scan_q6(csv=False):
    low, high = ("5e-2", "7e-2") if csv else ("0.05", "0.07")
    where = (
        f"l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01' and l_discount between {low} and {high} "
        f"and l_quantity < {'24e0' if csv else '24'}"
    )
    return lambda scan: scan("lineitem", where=where, aggregate="sum(l_extendedprice * l_discount) as revenue").arrow()


def polars_q1(tables):
    import polars as pl

    price = pl.col("l_extendedprice") * (1 - pl.col("l_discount"))
    sums = [
        pl.col("l_quantity").sum().alias("sum_qty"),
        pl.col("l_extendedprice").sum().alias("sum_base_price"),
        price.sum().alias("sum_disc_price"),
        (price * (1 + pl.col("l_tax"))).sum().alias("sum_charge"),
        pl.col("l_quantity").mean().alias("avg_qty"),
        pl.col("l_extendedprice").mean().alias("avg_price"),
        pl.col("l_discount").mean().alias("avg_disc"),
        pl.len().alias("count_order"),
    ]
    wanted = tables["lineitem"].filter(pl.col("l_shipdate") <= DAY(1998, 9, 2))
    return wanted.group_by("l_returnflag", "l_linestatus").agg(sums).collect()


def pyarrow_q1(tables):
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = ["l_quantity", "l_extendedprice", "l_discount", "l_tax"]
    found = tables["lineitem"].to_table(
        columns=["l_returnflag", "l_linestatus", *numbers], filter=pc.field("l_shipdate") <= DAY(1998, 9, 2)
    )
    # Products of three decimals have more digits than Arrow's.
    quantity, price, discount, tax = (pc.cast(found[name], pa.float64()) for name in numbers)
    sold = pc.multiply(price, pc.subtract(1.0, discount))
    columns = {
        "flag": found["l_returnflag"],
        "status": found["l_linestatus"],
        "quantity": quantity,
        "price": price,
        "sold": sold,
        "charge": pc.multiply(sold, pc.add(1.0, tax)),
        "discount": discount,
    }
    sums = [(name, "sum") for name in ("quantity", "price", "sold", "charge")]
    means = [(name, "mean") for name in ("quantity", "price", "discount")]
    return pa.table(columns).group_by(["flag", "status"]).aggregate([*sums, *means, ([], "count_all")])


def scan_q1(scan):
    sums = (
        "sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)), "
        "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)"
    )
    return scan("lineitem", where="l_shipdate <= date '1998-09-02'", by="l_returnflag,l_linestatus", aggregate=sums).arrow()


def polars_q3(tables):
    import polars as pl

    customer = tables["customer"].filter(pl.col("c_mktsegment") == "BUILDING").select("c_custkey")
    orders = tables["orders"].filter(pl.col("o_orderdate") < DAY(1995, 3, 15))
    lineitem = tables["lineitem"].filter(pl.col("l_shipdate") > DAY(1995, 3, 15))
    joined = customer.join(orders, left_on="c_custkey", right_on="o_custkey").join(lineitem, left_on="o_orderkey", right_on="l_orderkey")
    revenue = (pl.col("l_extendedprice") * (1 - pl.col("l_discount"))).sum().alias("revenue")
    groups = joined.group_by("o_orderkey", "o_orderdate", "o_shippriority").agg(revenue)
    first = groups.sort("revenue", "o_orderdate", descending=[True, False]).head(10)
    return first.select("o_orderkey", "revenue", "o_orderdate", "o_shippriority").collect()


def polars_q12(tables):
    import polars as pl

    lineitem = tables["lineitem"].filter(
        pl.col("l_shipmode").is_in(["MAIL", "SHIP"])
        & (pl.col("l_commitdate") < pl.col("l_receiptdate"))
        & (pl.col("l_shipdate") < pl.col("l_commitdate"))
        & (pl.col("l_receiptdate") >= DAY(1994, 1, 1))
        & (pl.col("l_receiptdate") < DAY(1995, 1, 1))
    )
    urgent = pl.col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    groups = tables["orders"].join(lineitem, left_on="o_orderkey", right_on="l_orderkey").group_by("l_shipmode")
    return groups.agg(urgent.sum().alias("high"), (~urgent).sum().alias("low")).collect()


def polars_q14(tables):
    import polars as pl

    lineitem = tables["lineitem"].filter((pl.col("l_shipdate") >= DAY(1995, 9, 1)) & (pl.col("l_shipdate") < DAY(1995, 10, 1)))
    sold = (pl.col("l_extendedprice") * (1 - pl.col("l_discount"))).cast(pl.Float64)
    joined = lineitem.join(tables["part"], left_on="l_partkey", right_on="p_partkey")
    promoted = pl.when(pl.col("p_type").str.starts_with("PROMO")).then(sold).otherwise(0.0)
    return joined.select((100 * promoted.sum() / sold.sum()).alias("promo_revenue")).collect()


def pyarrow_q14(tables):
    import pyarrow as pa
    import pyarrow.compute as pc

    month = (pc.field("l_shipdate") >= DAY(1995, 9, 1)) & (pc.field("l_shipdate") < DAY(1995, 10, 1))
    lineitem = tables["lineitem"].to_table(columns=["l_partkey", "l_extendedprice", "l_discount"], filter=month)
    joined = lineitem.join(tables["part"].to_table(columns=["p_partkey", "p_type"]), "l_partkey", "p_partkey", join_type="inner")
    price, discount = (pc.cast(joined[name], pa.float64()) for name in ("l_extendedprice", "l_discount"))
    sold = pc.multiply(price, pc.subtract(1.0, discount))
    promoted = pc.if_else(pc.starts_with(joined["p_type"], "PROMO"), sold, 0.0)
    return pa.table({"promo_revenue": [100 * pc.sum(promoted).as_py() / pc.sum(sold).as_py()]})


CITIES = ["UNITED KI1", "UNITED KI5"]
SSB_Q33 = """select c_city, s_city, d_year, sum(lo_revenue) as revenue
from ssb_customer, lineorder, ssb_supplier, dates
where lo_custkey = c_custkey and lo_suppkey = s_suppkey and lo_orderdate = d_datekey
    and (c_city = 'UNITED KI1' or c_city = 'UNITED KI5') and (s_city = 'UNITED KI1' or s_city = 'UNITED KI5')
    and d_year >= 1992 and d_year <= 1997
group by c_city, s_city, d_year
order by d_year asc, revenue desc"""


def polars_ssb(tables):
    import polars as pl

    customer = tables["ssb_customer"].filter(pl.col("c_city").is_in(CITIES)).select("c_custkey", "c_city")
    supplier = tables["ssb_supplier"].filter(pl.col("s_city").is_in(CITIES)).select("s_suppkey", "s_city")
    dates = tables["dates"].filter(pl.col("d_year").is_between(1992, 1997)).select("d_datekey", "d_year")
    joined = (
        tables["lineorder"]
        .join(supplier, left_on="lo_suppkey", right_on="s_suppkey")
        .join(customer, left_on="lo_custkey", right_on="c_custkey")
        .join(dates, left_on="lo_orderdate", right_on="d_datekey")
    )
    return joined.group_by("c_city", "s_city", "d_year").agg(pl.col("lo_revenue").cast(pl.Int64).sum()).collect()


def pyarrow_ssb(tables):
    import pyarrow.compute as pc

    field = pc.field
    customer = tables["ssb_customer"].to_table(columns=["c_custkey", "c_city"], filter=field("c_city").isin(CITIES))
    supplier = tables["ssb_supplier"].to_table(columns=["s_suppkey", "s_city"], filter=field("s_city").isin(CITIES))
    dates = tables["dates"].to_table(columns=["d_datekey", "d_year"], filter=(field("d_year") >= 1992) & (field("d_year") <= 1997))
    # As one joins with pyarrow: keys of the small tables select rows of the large one.
    wanted = field("lo_custkey").isin(customer["c_custkey"]) & field("lo_suppkey").isin(supplier["s_suppkey"])
    orders = tables["lineorder"].to_table(columns=["lo_custkey", "lo_suppkey", "lo_orderdate", "lo_revenue"], filter=wanted)
    return star_sums(orders, customer, supplier, dates)


def scan_ssb(scan):
    cities = ", ".join(f"'{city}'" for city in CITIES)
    customer = scan("ssb_customer", "c_custkey,c_city", where=f"c_city in ({cities})").arrow()
    supplier = scan("ssb_supplier", "s_suppkey,s_city", where=f"s_city in ({cities})").arrow()
    dates = scan("dates", "d_datekey,d_year", where="d_year between 1992 and 1997").arrow()
    keys = [", ".join(map(str, table.column(0).to_pylist())) for table in (customer, supplier)]
    where = f"lo_custkey in ({keys[0]}) and lo_suppkey in ({keys[1]})"
    return star_sums(scan("lineorder", "lo_custkey,lo_suppkey,lo_orderdate,lo_revenue", where=where).arrow(), customer, supplier, dates)


def star_sums(orders, customer, supplier, dates):
    joined = orders.join(customer, "lo_custkey", "c_custkey", join_type="inner")
    joined = joined.join(supplier, "lo_suppkey", "s_suppkey", join_type="inner").join(dates, "lo_orderdate", "d_datekey", join_type="inner")
    sums = joined.group_by(["c_city", "s_city", "d_year"]).aggregate([("lo_revenue", "sum")])
    return sums.select(["c_city", "s_city", "d_year", "lo_revenue_sum"])


def polars_like(tables):
    import polars as pl

    wanted = tables["hits"].filter(pl.col("url").str.contains("/fox/", literal=True))
    return wanted.select("watch_id", "url", "region").collect()


def pyarrow_like(tables):
    import pyarrow.compute as pc

    wanted = pc.match_substring(pc.field("url"), "/fox/")
    return tables["hits"].to_table(columns=["watch_id", "url", "region"], filter=wanted)


def polars_top(tables):
    import polars as pl

    groups = tables["hits"].filter(pl.col("search_phrase") != "").group_by("search_phrase").agg(pl.len().alias("visits"))
    return groups.sort("visits", "search_phrase", descending=[True, False]).head(10).collect()


def pyarrow_top(tables):
    import pyarrow.compute as pc

    found = tables["hits"].to_table(columns=["search_phrase"], filter=pc.field("search_phrase") != "")
    groups = found.group_by("search_phrase").aggregate([([], "count_all")])
    return groups.sort_by([("count_all", "descending"), ("search_phrase", "ascending")]).slice(0, 10)


def scan_top(scan):
    options = {"by": "search_phrase", "aggregate": "count(*) as visits", "order": "visits desc, search_phrase", "limit": 10}
    return scan("hits", where="search_phrase <> ''", **options).arrow()


def polars_distinct(tables):
    import polars as pl

    groups = tables["hits"].group_by("region").agg(pl.col("user_id").n_unique().alias("users"))
    return groups.sort("users", "region", descending=[True, False]).head(10).collect()


def pyarrow_distinct(tables):
    groups = tables["hits"].to_table(columns=["region", "user_id"]).group_by("region").aggregate([("user_id", "count_distinct")])
    return groups.sort_by([("user_id_count_distinct", "descending"), ("region", "ascending")]).slice(0, 10)


LIKE = "select watch_id, url, region from hits where url like '%/fox/%'"
TOP = "select search_phrase, count(*) as visits from hits where search_phrase <> '' group by 1 order by visits desc, search_phrase limit 10"
DISTINCT = "select region, count(distinct user_id) as users from hits group by region order by users desc, region limit 10"
SQL = tpch.queries("1")


def scan_like(scan):
    return scan("hits", "watch_id,url,region", where="url like '%/fox/%'").arrow()


QUERIES = {
    "q6": Query(["lineitem"], SQL["q6"], polars_q6, pyarrow_q6, scan_q6()),
    "q1": Query(["lineitem"], SQL["q1"], polars_q1, pyarrow_q1, scan_q1),
    "q3": Query(["customer", "orders", "lineitem"], SQL["q3"], polars_q3),
    "q12": Query(["orders", "lineitem"], SQL["q12"], polars_q12),
    "q14": Query(["part", "lineitem"], SQL["q14"], polars_q14, pyarrow_q14),
    "ssb3.3": Query(["ssb_customer", "ssb_supplier", "dates", "lineorder"], SSB_Q33, polars_ssb, pyarrow_ssb, scan_ssb),
    "like": Query(["hits"], LIKE, polars_like, pyarrow_like, scan_like),
    "top": Query(["hits"], TOP, polars_top, pyarrow_top, scan_top),
    "distinct": Query(["hits"], DISTINCT, polars_distinct, pyarrow_distinct),
    # q6 over text.
    "csv": Query(["lineitem"], SQL["q6"], polars_q6, pyarrow_q6, scan_q6(csv=True)),
}
#: Those that are run if no others are asked for.
USUAL = list(QUERIES)
#: All of TPC-H: the others are in SQL alone.
TPCH = list(SQL)
QUERIES |= {name: Query([of for of in tpch.TABLES if re.search(rf"\b{of}\b", SQL[name])], SQL[name]) for name in TPCH if name not in QUERIES}
