"""Runs queries in a session of Spark in several ways, which take turns, and prints what each took as JSON; see bench/scan/spark."""

import datetime
import decimal
import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))
import tpch  # noqa: E402

WAYS = ["auto", "host"]
# In these `auto` measures both sides.
FIRST_ROUNDS = 3


def main():
    wanted = json.loads(sys.argv[1])
    session = spark(wanted)
    tables = {}
    for way in WAYS:
        read = session.read.format("diskside").option("place", way)
        tables[way] = {table: read.load(f"{wanted['url']}/{table}.parquet") for table in tpch.TABLES}
    found = {}
    for name in wanted["queries"]:
        text = tpch.queries(wanted["scale"])[name]
        ways, rows = {way: [] for way in WAYS}, {}
        for at in range(wanted["rounds"] + FIRST_ROUNDS):
            # The first is not always the same one.
            for way in WAYS if at % 2 else WAYS[::-1]:
                for table, frame in tables[way].items():
                    frame.createOrReplaceTempView(table)
                seconds, moved, rows[way] = run(session, text, wanted["device"])
                if at >= FIRST_ROUNDS:
                    ways[way].append((seconds, moved))
        # Rows that are equal in what they are sorted by come in any order.
        if sorted(map(str, rows["auto"])) != sorted(map(str, rows["host"])):
            sys.exit(f"{name} has different rows: {rows}")
        found[name] = {"ways": ways, "rows": rows["auto"], "lineitem_bytes": of_lineitem(session, tables["auto"], text)}
        print(name, {way: [round(seconds, 2) for seconds, _ in runs] for way, runs in ways.items()}, file=sys.stderr)
    print(json.dumps(found))
    session.stop()


def spark(wanted):
    settings = {
        "spark.jars": wanted["jar"],
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": wanted["address"],
        "spark.driver.host": wanted["address"],
        "spark.log.level": "ERROR",
    }
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


def run(session, text, device):
    """Seconds, bytes that came over the link, and the rows."""
    before, began = received(device), time.monotonic()
    rows = session.sql(text).collect()
    seconds = time.monotonic() - began
    return seconds, received(device) - before, [[value(of) for of in row] for row in rows]


def of_lineitem(session, tables, text):
    """Bytes that servers sent for the scans of the largest table, as Spark's own metrics have them."""
    for table, frame in tables.items():
        frame.createOrReplaceTempView(table)
    session.sql(text).collect()
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = session._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    query = executions.apply(executions.size() - 1).executionId()
    values, nodes = store.executionMetrics(query), store.planGraph(query).allNodes()
    sent = {}
    for node in (nodes.apply(at) for at in range(nodes.size())):
        if "lineitem" not in node.desc():
            continue
        for metric in (node.metrics().apply(at) for at in range(node.metrics().size())):
            if metric.name() == "bytes that servers sent" and values.contains(metric.accumulatorId()):
                sent[metric.accumulatorId()] = int(values.apply(metric.accumulatorId()).replace(",", ""))
    return sum(sent.values())


def received(device):
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == device:
            return int(numbers.split()[0])
    raise SystemExit(f"no device {device}")


def value(of):
    if isinstance(of, (decimal.Decimal, datetime.date)):
        return str(of)
    return of


if __name__ == "__main__":
    main()
